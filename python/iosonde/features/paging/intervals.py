"""Bytes read from and written to swap in each interval of a paging run, from the kernel's counters at its end."""

from __future__ import annotations

import polars as pl

from iosonde.metrics.facts import Facts
from iosonde.metrics.intervals.interval_facts import IntervalFacts
from iosonde.metrics.scopes import RUN_KEYS

COUNTERS = {"swap_in_bytes": "pswpin", "swap_out_bytes": "pswpout"}
"""Facts of a run and of each interval -> the kernel's counter of pages, as `/proc/vmstat` names it."""


def _increases(facts: Facts) -> pl.DataFrame:
    """Return the bytes of each interval from the counters at the end of each; the first one has none."""
    runs = facts.runs().filter(pl.col("page_bytes").is_not_null()).select(*RUN_KEYS, "page_bytes")
    statistics = facts.statistics("vmstat.").join(runs, on=RUN_KEYS)
    keys = [*RUN_KEYS, "phase", "interval"]
    columns = [
        pl.col("value").filter(pl.col("statistic") == counter).first().alias(name) for name, counter in COUNTERS.items()
    ]
    polls = statistics.group_by(*keys, "end_ns", "page_bytes", maintain_order=True).agg(columns)
    grown = [(pl.col(name).diff().over(RUN_KEYS) * pl.col("page_bytes")).alias(name) for name in COUNTERS]
    return polls.sort(*RUN_KEYS, "end_ns").with_columns(grown).drop("end_ns", "page_bytes")


FACTS = (IntervalFacts(names=tuple(COUNTERS), of_intervals=_increases),)
