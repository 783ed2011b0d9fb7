"""Loads that software for machine learning applies to storage: weights of models, queries of indexes of vectors."""

TOPICS = (("ai", "AI loads"),)
