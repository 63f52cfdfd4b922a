"""Checking a dump and repairing a damaged one."""
