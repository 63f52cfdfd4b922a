"""A run on the terminal: a process that shows it, owns its signals and cleans up after it.

Invariant: imports no torch, Ray or SkyRL, so that a command answers at once.
"""
