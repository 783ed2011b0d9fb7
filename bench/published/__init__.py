"""Published figures beside simulated ones: one file for each paper."""
