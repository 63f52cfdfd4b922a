"""Rows: the items of a run and their prompts, as a trainer reads them."""
