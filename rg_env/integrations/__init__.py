"""Reasoning Gym outside of SkyRL: rewards for TRL, verifiers and verl, and the scorers over HTTP (`serve`).

Import the modules themselves: each needs the packages of its extra.
"""
