"""A study that writes levels of filling, each after a purge by the strongest means."""

from __future__ import annotations

from iosonde.planning import parse
from iosonde.study.model import Study


def fills(*levels: int) -> Study:
    """One short run of random writes at each level, in percent of the capacity."""
    return parse(f"""
name = "fills"
title = "Fills"
question = "What is left, and what then?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
purge = "strongest"
ramp = 0
duration = "none"
limit_bytes = "1MiB"

[[parts]]
name = "main"
factors.fill = {list(levels)}
rounds.max_rounds = 1

[profiles.standard]
""")
