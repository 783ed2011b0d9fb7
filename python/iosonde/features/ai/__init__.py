"""Loads of software for machine learning: weights of models, queries of indexes of vectors, ingest of training data."""

TOPICS = (("ai", "AI loads"),)
