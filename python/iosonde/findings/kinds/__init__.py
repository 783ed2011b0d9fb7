"""General kinds of findings: what a ratio, a highest value, a curve or a count establishes, and how it is written."""
