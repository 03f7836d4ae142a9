"""Learning within a task (inner loop) and across tasks (meta-learners)."""
