"""The mark as a metric."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric

METRICS = (
    Metric(
        name="toy_mark_squared",
        title="Square of the mark",
        unit="",
        formula="mark x mark",
        better="higher",
        kind="count",
        expression=pl.col("toy_mark_found") * pl.col("toy_mark_found"),
    ),
)
