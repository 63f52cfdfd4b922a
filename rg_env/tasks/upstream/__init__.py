"""Reasoning Gym's datasets, made deterministic and safe to call from threads, without changing Reasoning Gym itself."""
