"""Restrictions of the scorer processes: Landlock, seccomp and resource limits."""
