"""Algorithms on a graph whose adjacency lists are on the target."""

TOPICS = (("graphs", "Graphs"),)
