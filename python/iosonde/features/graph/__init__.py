"""Algorithms on a graph whose adjacency lists are on the target.

The engine's spec (`spec.py`) of what a study sets (`parameters.py`) has the size that `size.py` estimates.
"""

TOPICS = (("graphs", "Graphs"),)
