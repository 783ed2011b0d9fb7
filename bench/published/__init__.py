"""Published and simulated values: one file for each paper."""
