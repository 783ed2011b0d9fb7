"""Drops of throughput that last to the end of a run, in runs that are not judged for steady state.

A full cache, exhausted spare blocks, thermal throttling: the average of such a run covers both speeds. Short runs have
too few intervals for the steady-state rule, so this looks for one change of level that lasts to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from iosonde.findings.finding import Finding
from iosonde.metrics import wording
from iosonde.metrics.change_points import CLIFF, change_points
from iosonde.metrics.facts import Facts
from iosonde.metrics.statistics import Floats
from iosonde.metrics.sustained import STALLED_SHARE
from iosonde.units import format_bytes, format_duration
from iosonde.workload import names_where

FEWEST = 8
"""Intervals that a run must have."""
LASTING = 3
"""Intervals that must be before the drop, and after it."""


@dataclass(frozen=True, kw_only=True)
class LastingDrop:
    """One run."""

    result_set: str
    run_id: str
    case_id: str
    part: str
    at_s: float
    """Since measurement start."""
    moved_bytes: int
    """Until then."""
    before: float
    """Bytes per second, mean of the intervals before."""
    after: float

    @property
    def fraction(self) -> float:
        return self.after / self.before


NAMED = 3


class LastingDrops(Finding, kind="lasting drops", topic="quality"):
    """Runs whose throughput fell while they were measured, and stayed low to their end."""

    drops: tuple[LastingDrop, ...]
    """The deepest first."""
    measured: int
    """Runs in all."""
    words: str
    """Of the case with the deepest drop."""

    def _sentence(self) -> str:
        deepest, count = self.drops[0], len(self.drops)
        its = "its average covers" if count == 1 else "their averages cover"
        slowed = "slowed, one" if count > 1 else "slowed"
        to = f"to {wording.percent_text(deepest.fraction)} after {_when(deepest)} ({self.words})"
        return f"{wording.some(count, self.measured, 'run')} {slowed} {to}; {its} both speeds"

    def _evidence(self) -> str:
        rate = partial(wording.value_text, "bandwidth")
        listed = [
            f"`{each.run_id}` from {rate(each.before)} to {rate(each.after)} after {_when(each)}"
            for each in self.drops[:NAMED]
        ]
        more = [f"and {len(self.drops) - NAMED} more"] if len(self.drops) > NAMED else []
        return "; ".join([*listed, *more, "measure longer, with `round_length`, for the level at the end"])


def find(drops: Sequence[LastingDrop], *, measured: int, words: Mapping[str, str]) -> Iterator[Finding]:
    """Return one finding for all runs; `words` are those of the cases."""
    if drops:
        deepest = tuple(sorted(drops, key=lambda each: each.fraction))
        yield LastingDrops(
            drops=deepest,
            measured=measured,
            words=words.get(deepest[0].case_id, f"`{deepest[0].case_id}`"),
            strength="moderate",
            case_ids=tuple(dict.fromkeys(each.case_id for each in deepest)),
            part=deepest[0].part,
        )


def _when(drop: LastingDrop) -> str:
    return f"{format_duration(drop.at_s * 1e9)} and {format_bytes(drop.moved_bytes)}"


def lasting_drops(facts: Facts) -> list[LastingDrop]:
    """Every closed-loop run that falls below `CLIFF` of what it was and stays there, in the order of execution.

    Left out are runs that are judged by rounds of their own, controls, stages (their pass is reported as one), loads
    that change by themselves (`active`), and intervals in which the engine was stalled.
    """
    judged = facts.rounds().select("result_set", "case_id").unique()
    runs = (
        facts.runs()
        .filter(
            pl.col("workload").is_in(names_where(lambda each: each.io == "blocks")),
            pl.col("loop") == "closed",
            ~pl.col("control"),
        )
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
        .agg(pl.col("bytes").sum(), pl.col("interval_stalled_ns").max().fill_null(0))
        .with_columns(
            is_stalled=pl.col("interval_stalled_ns") >= STALLED_SHARE * (pl.col("end_ns") - pl.col("begin_ns"))
        )
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
    moved = intervals["bytes"].to_numpy()
    # The last interval may be short. What is not judged has moved bytes all the same.
    judged = np.flatnonzero((lengths > 0.5 * np.median(lengths)) & ~intervals["is_stalled"].to_numpy())
    first = drop_of(moved[judged] / lengths[judged])
    if first is None:
        return
    at = judged[first]
    above, below = judged[:first], judged[first:]
    yield LastingDrop(
        result_set=str(run["result_set"]),
        run_id=str(run["run_id"]),
        case_id=str(run["case_id"]),
        part=str(run["part"]),
        at_s=float(lengths[:at].sum()),
        moved_bytes=int(moved[:at].sum()),
        before=float(moved[above].sum() / lengths[above].sum()),
        after=float(moved[below].sum() / lengths[below].sum()),
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
