"""Reasoning Gym's datasets made deterministic, correct and thread-safe, without changing Reasoning Gym itself."""


class UnusableItemError(Exception):
    """This draw gives no usable item, for instance because its question has no clear answer; draw another one."""
