"""Looking at runs: the figures of the paper and more, and a page that holds them together."""
