"""Reading a dump: finding runs, reading lines, records and frames."""
