"""Other trainers: the questions as each takes them, and the reward as it asks for it.

Import the modules themselves: each needs the package of its extra.
"""
