"""Benchmarks: every figure a ratio of two things measured alternately in one process. `make bench` runs them."""
