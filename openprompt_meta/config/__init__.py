"""The configuration of a run: YAML in, a typed and checked ``RunConfig`` out, and back. Knows no torch."""
