"""Facts about each interval of a run that take the place of those of the run.

Statistics at the end of each interval (of a server, of the kernel, of a feature) become facts with the names of the
run's own, so that a metric needs one expression for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from iosonde.metrics.facts import Facts
from iosonde.metrics.registry import METRICS
from iosonde.metrics.scopes import ALL, RUN_KEYS

KEYS = (*RUN_KEYS, "phase", "interval")


@dataclass(frozen=True, kw_only=True)
class IntervalFacts:
    """Facts that a run and each of its intervals have."""

    names: Sequence[str]
    of_intervals: Callable[[Facts], pl.DataFrame]
    """Frame of `KEYS` and `names`, one row an interval."""

    def are_needed(self, metrics: Sequence[str]) -> bool:
        """Return True if the expression of one of these metrics reads one of the facts."""
        expressions = [METRICS[name].expression for name in metrics if name in METRICS]
        roots = {root for each in expressions if each is not None for root in each.meta.root_names()}
        return not roots.isdisjoint(self.names)

    def replaced(self, table: pl.DataFrame, facts: Facts) -> pl.DataFrame:
        """Replace the facts of a run by those of the interval, at operation `all`; null if unknown."""
        own = table.drop(name for name in self.names if name in table.columns)
        found = own.join(self.of_intervals(facts), on=KEYS, how="left", maintain_order="left")
        return found.with_columns(pl.when(pl.col("operation") == ALL).then(name).alias(name) for name in self.names)
