"""What a scorer process may not do: Landlock, seccomp and resource limits."""
