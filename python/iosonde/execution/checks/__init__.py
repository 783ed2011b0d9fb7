"""Checks before the first run: what a plan writes, starts and loads, and what the engine and target can do."""
