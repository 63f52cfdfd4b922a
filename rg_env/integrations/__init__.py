"""Rewards for other trainers, over the same guard and scorer processes: `trl` and `verifiers`.

Each module needs its trainer's package. Importing this package needs neither.
"""
