"""The settings of a run: what they are, where they come from, and the user's code that they name."""
