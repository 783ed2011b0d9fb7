"""Studies: the format of a study file, read and validated. What to measure is data (TOML); how is code elsewhere."""
