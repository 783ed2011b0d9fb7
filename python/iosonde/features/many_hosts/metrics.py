"""Metrics of a run on several hosts."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric

METRICS = (
    Metric(
        name="host_fairness",
        title="Fairness between hosts",
        unit="",
        formula="Jain's index: square of the sum of all hosts' operations / (hosts × sum of their squares)",
        better="higher",
        kind="rate",
        expression=pl.col("hosts_jain_index"),
    ),
)
"""In the order of docs/metrics.md."""
