"""Bytes read from and written to swap in each interval of a paging run, from the kernel's counters at its end."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.intervals.interval_facts import IntervalFacts
from iosonde.metrics.scopes import RUN_KEYS

COUNTERS = {"swap_in_bytes": "vmstat.pswpin", "swap_out_bytes": "vmstat.pswpout"}
"""Facts of a run and of each interval -> the kernel's counter of pages, as the engine names it."""


def _increases(statistics: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes of each interval from the counters at the end of each; the first one has none."""
    keys = [*RUN_KEYS, "phase", "interval"]
    columns = [
        pl.col("value").filter(pl.col("statistic") == counter).first().alias(name) for name, counter in COUNTERS.items()
    ]
    polls = statistics.group_by(*keys, "end_ns", "page_bytes", maintain_order=True).agg(columns)
    grown = [(pl.col(name).diff().over(RUN_KEYS) * pl.col("page_bytes")).alias(name) for name in COUNTERS]
    return polls.sort(*RUN_KEYS, "end_ns").with_columns(grown).drop("end_ns", "page_bytes")


FACTS = IntervalFacts(names=tuple(COUNTERS), of_intervals=lambda facts: _increases(facts.paging_statistics()))
