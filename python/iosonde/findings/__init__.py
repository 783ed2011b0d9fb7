"""Answers of a result set: general kinds of findings, and the questions and observations that fill them."""
