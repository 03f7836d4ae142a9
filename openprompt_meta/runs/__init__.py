"""Runs: training with validation, checkpoints and resume, testing, results."""
