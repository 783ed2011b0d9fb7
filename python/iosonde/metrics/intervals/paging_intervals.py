"""Bytes read from and written to swap in each interval of a paging run, from the kernel's counters at its end."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from iosonde.metrics.applications.paging import LIST
from iosonde.metrics.facts import Facts
from iosonde.metrics.scopes import ALL, RUN_KEYS

COUNTERS = {"swap_in_bytes": "vmstat.pswpin", "swap_out_bytes": "vmstat.pswpout"}
"""Facts of a run and of each interval -> the kernel's counter of pages, as the engine names it."""


def are_needed(metrics: Sequence[str]) -> bool:
    """Whether some of these metrics follow from the kernel's counters of each interval."""
    return any(metric.name in metrics for metric in LIST if metric.per_interval)


def with_counters(table: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Replace swapped bytes of paging runs by those of the interval, at operation `all`; null if unknown."""
    own = table.drop(name for name in COUNTERS if name in table.columns)
    keys = [*RUN_KEYS, "phase", "interval"]
    found = own.join(_increases(facts.paging_statistics()), on=keys, how="left", maintain_order="left")
    return found.with_columns(pl.when(pl.col("operation") == ALL).then(name).alias(name) for name in COUNTERS)


def _increases(statistics: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes of each interval from the counters at the end of each; the first one has none."""
    keys = [*RUN_KEYS, "phase", "interval"]
    columns = [
        pl.col("value").filter(pl.col("statistic") == counter).first().alias(name) for name, counter in COUNTERS.items()
    ]
    polls = statistics.group_by(*keys, "end_ns", "page_bytes", maintain_order=True).agg(columns)
    grown = [(pl.col(name).diff().over(RUN_KEYS) * pl.col("page_bytes")).alias(name) for name in COUNTERS]
    return polls.sort(*RUN_KEYS, "end_ns").with_columns(grown).drop("end_ns", "page_bytes")
