"""Small studies as texts."""

from __future__ import annotations

STUDY = """
name = "small"
title = "A small study"
question = "?"
workload = "{workload}"
repeats = 1
shuffle = false
[measurement]
{measurement}
[[parts]]
{factors}
[profiles.standard]
"""


def study_text(workload: str, measurement: str, factors: str = "") -> str:
    """A study with one part, one repeat and the profile `standard`."""
    return STUDY.format(workload=workload, measurement=measurement, factors=factors)
