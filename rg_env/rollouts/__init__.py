"""Rollouts: from verdicts to records, and from any OpenAI-compatible server to a dump.

Imports no torch, Ray or SkyRL.
"""
