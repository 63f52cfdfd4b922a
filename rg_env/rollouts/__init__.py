"""From a response to its verdict, its reward and its record, and what many of them show."""
