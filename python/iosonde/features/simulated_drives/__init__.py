"""Simulated drives: models, targets that consist of them, and their state between runs."""
