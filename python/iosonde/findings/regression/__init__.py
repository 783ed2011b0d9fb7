"""Regression check: comparison of a result set with its baselines, with exit codes for continuous integration.

The unit of observation is the session (one result set), because repeats within a session share whatever was particular
to that session. `check.py` reduces result sets to one value per cell and session and decides each cell, `writers.py`
prints the outcome.
"""
