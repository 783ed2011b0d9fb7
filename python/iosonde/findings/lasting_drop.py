"""Runs that nobody asked to be judged for steady state, and that fall to another level all the same.

A cache that is full, spare blocks that are used up, a device that throttles itself when it is hot: the mean of such a
run is that of two states, and neither of them. Short runs have too few intervals for the rule of steady state, so this
looks for one change of level that lasts to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from iosonde.metrics.facts import Facts
from iosonde.metrics.statistics import Floats
from iosonde.metrics.steady_state import CLIFF, change_points

FEWEST = 8
"""Intervals that a run must have."""
LASTING = 3
"""Intervals that must lie before the drop, and after it."""


@dataclass(frozen=True, kw_only=True)
class LastingDrop:
    """One run."""

    result_set: str
    run_id: str
    case_id: str
    part: str
    at_s: float
    """Since the begin of the measurement."""
    moved_bytes: int
    """Until then."""
    before: float
    """Bytes per second, mean of the intervals before."""
    after: float

    @property
    def fraction(self) -> float:
        """What is left."""
        return self.after / self.before


def lasting_drops(facts: Facts) -> list[LastingDrop]:
    """Every closed-loop run that falls below `CLIFF` of what it was and stays there, in the order of execution.

    Left out are runs that are judged by rounds of their own, controls, stages (their pass is told of as one), and loads
    that change by themselves (`active`).
    """
    judged = facts.rounds().select("result_set", "case_id").unique()
    runs = (
        facts.runs()
        .filter(pl.col("workload") == "block", pl.col("loop") == "closed", ~pl.col("control"))
        .join(judged, on=["result_set", "case_id"], how="anti")
        .join(facts.alternating(), on=["result_set", "case_id"], how="anti")
        .join(facts.staged(), on=["result_set", "case_id"], how="anti")
    )
    keys = ["result_set", "run_id"]
    intervals = (
        facts.counts(per="interval")
        .filter(pl.col("phase") == "measure", pl.col("operation").is_in(["read", "write", "trim"]))
        .join(runs.select(keys), on=keys, how="semi")
        .group_by(*keys, "begin_ns", "end_ns")
        .agg(pl.col("bytes").sum())
        .sort(*keys, "begin_ns")
    )
    by_run = {key: group for key, group in intervals.group_by(keys, maintain_order=True)}
    return [
        drop
        for run in runs.sort("order").to_dicts()
        if (run["result_set"], run["run_id"]) in by_run
        for drop in _of_run(run, by_run[run["result_set"], run["run_id"]])
    ]


def _of_run(run: dict[str, object], intervals: pl.DataFrame) -> Iterator[LastingDrop]:
    lengths = ((intervals["end_ns"] - intervals["begin_ns"]) / 1e9).to_numpy()
    usual = lengths > 0.5 * np.median(lengths)  # What is left at the end may be short, and says nothing.
    moved = intervals["bytes"].to_numpy()
    at = drop_of(moved[usual] / lengths[usual])
    if at is None:
        return
    yield LastingDrop(
        result_set=str(run["result_set"]),
        run_id=str(run["run_id"]),
        case_id=str(run["case_id"]),
        part=str(run["part"]),
        at_s=float(lengths[:at].sum()),
        moved_bytes=int(moved[:at].sum()),
        before=float(moved[:at].sum() / lengths[:at].sum()),
        after=float(moved[at:].sum() / lengths[at:].sum()),
    )


def drop_of(rates: Floats) -> int | None:
    """Return the first interval after a drop that lasts to the end; None where there is none.

    Every stretch before it is above every stretch after it, and what follows has at most `CLIFF` of what was before.
    """
    if len(rates) < FEWEST:
        return None
    points = [at for at in change_points(rates) if LASTING <= at <= len(rates) - LASTING]
    found = [(float(rates[at:].mean() / rates[:at].mean()), at) for at in points if rates[:at].mean() > 0]
    fraction, at = min(found, default=(1.0, 0))
    if fraction >= CLIFF:
        return None
    before, after = np.median(rates[:at]), np.median(rates[at:])
    return at if np.quantile(rates[:at], 0.25) > after and np.quantile(rates[at:], 0.75) < before else None
