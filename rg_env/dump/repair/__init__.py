"""Checking a dump and recovering a damaged one."""
