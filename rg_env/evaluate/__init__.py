"""Responses of a model behind a server, without training: collection, evaluation, and the suites of questions.

Imports no torch, Ray or SkyRL.
"""
