"""Findings about every result set in which they occur, without a question of the study."""
