"""Simulated drives: models, targets made of them, and their state between runs."""
