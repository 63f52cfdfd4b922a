"""Checking a dump, and finishing that of a run which ended without finishing it."""
