"""Using what was learned."""
