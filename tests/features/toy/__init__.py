"""A feature in one folder: a mark that a setup leaves over its device, read by an instrument and reported.

`tests/features/test_toy_feature.py` runs a study with it. No other file of iosonde knows it.
"""
