"""The mark as a column of `runs`, and a metric of it."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.metric import Metric
from iosonde.results.column import U64, facts
from toy.record import ToyReading

COLUMNS = facts(
    lambda record: record.of(ToyReading),
    ("toy_mark_found", U64, "Mark that was found during the run", "mark"),
)

METRICS = (
    Metric("toy_mark_squared", "Square of the mark", "", "higher", "count",
        "mark x mark", pl.col("toy_mark_found") * pl.col("toy_mark_found")),
)  # fmt: skip
