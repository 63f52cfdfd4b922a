"""Writing a dump: routing, the writer thread, batches, compression, and what a killed attempt left behind."""
