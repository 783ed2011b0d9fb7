"""Findings about sustained load: changes of load, drops of throughput that last to the end, recovery in pauses.

Changes of load are SNIA's cross stimulus recovery: stages of different loads, one after the other, each judged by its
own rounds. For each change: the first value, the settled one, and when it was first within the range that steady state
permits around it. A load that was measured before is compared with its earlier level: it recovers, and after what time,
or it does not.

A full cache, exhausted spare blocks, thermal throttling: the average of a run with a lasting drop covers both speeds.
Short runs have too few intervals for the steady-state rule, so this looks for one change of level that lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from iosonde.features.sustained_load import idle_recovery
from iosonde.findings.cells import case_words
from iosonde.findings.finding import Finding
from iosonde.findings.question import Results
from iosonde.metrics import wording
from iosonde.metrics.change_points import CLIFF, change_points
from iosonde.metrics.facts import Facts
from iosonde.metrics.statistics import Floats
from iosonde.metrics.steady_state import Criteria
from iosonde.metrics.sustained import LOWER_IS_BETTER, STALLED_SHARE, LongRun
from iosonde.plan import PREPARATION
from iosonde.study.model import STAGE, Level, Study
from iosonde.study.workload import names_where
from iosonde.units import format_bytes, format_duration


class LoadChange(Finding, kind="load change", topic="state"):
    """From one stage to the next: the first value, the settled one, and the recovery of an earlier level."""

    before: str
    after: str
    """Labels of the stages."""
    long_run: LongRun
    """Of the stage after the change."""
    level: float
    """Level at which it settles: mean of its last quarter, or of its last window where it was not steady."""
    settled_s: float | None
    """Time at which it first came within the range that steady state allows around its level; 0: from the start."""
    earlier: str = ""
    """Label of an earlier stage of the same load; empty where there is none."""
    once: float | None = None
    """Level of the earlier stage."""
    recovered_s: float | None = None
    """Time at which it was back within that range around the earlier level, or better, and stayed; None without."""

    @property
    def first(self) -> float:
        """The first round."""
        return float(self.long_run.values[0])

    @property
    def lower_is_better(self) -> bool:
        """True if a latency is tracked."""
        return self.long_run.tracking in LOWER_IS_BETTER

    @property
    def within(self) -> float:
        """Relative deviation from a level that counts as being at it."""
        return near(self.long_run.steady.criteria)

    @property
    def settled_at_once(self) -> bool:
        """True if the first round is at the settled level."""
        return abs(self.first - self.level) <= self.within * self.level

    def _sentence(self) -> str:
        stage = f"`{self.after}` after `{self.before}`"
        first, level = self._value(self.first), self._value(self.level)
        if self.settled_at_once:
            return f"{stage}: {level} from the first round{self._recovery()}"
        improves = (self.level > self.first) != self.lower_is_better
        when = f"within {format_duration(self.settled_s * 1e9)}" if self.settled_s else "without settling"
        return f"{stage}: {'improves' if improves else 'degrades'} from {first} to {level} {when}{self._recovery()}"

    def _evidence(self) -> str:
        steady = self.long_run.steady.achieved
        settled = "while stable" if steady else "in the last rounds, which were not stable"
        before = "" if self.once is None else f"{self._value(self.once)} before; "
        first = f"{self._value(self.first)} in the first round of {format_duration(self.long_run.round_s * 1e9)}"
        return f"{before}{first}, {self._value(self.level)} {settled}"

    def _recovery(self) -> str:
        if self.once is None:
            return ""
        near = f"within {100 * self.within:.0f} % of `{self.earlier}`"
        better = "below" if self.lower_is_better else "above"
        if self.recovered_s == 0 and self._is_better(self.first) and self._is_better(self.level):
            return f"; {better} `{self.earlier}` from the first round"
        then = f", then {better} it" if self._is_better(self.level) else ""
        if self.recovered_s == 0:
            return f"; {near} from the first round{then}"
        if self.recovered_s is not None:
            return f"; recovers to {near} after {format_duration(self.recovered_s * 1e9)}{then}"
        best, level = self._share(self.long_run.peak), self._share(self.level)
        if best >= (1 / (1 + self.within) if self.lower_is_better else 1 - self.within):
            return f"; does not stay {near}, {wording.percent_text(level)} of it at the end"
        length = format_duration(len(self.long_run.values) * self.long_run.round_s * 1e9)
        return f"; does not recover within {length}, at best {wording.percent_text(best)} of `{self.earlier}`"

    def _share(self, value: float) -> float:
        """Return a value as a share of the earlier level, inverted for a latency."""
        once = self.once or value
        return once / value if self.lower_is_better else value / once

    def _is_better(self, value: float) -> bool:
        """Return True if a value is better than the range around the earlier level."""
        once = self.once or value
        return value < (1 - self.within) * once if self.lower_is_better else value > (1 + self.within) * once

    def _value(self, value: float) -> str:
        return wording.value_text(self.long_run.tracking, value)


def load_changes(study: Study, long_runs: Sequence[LongRun], cases: pl.DataFrame) -> list[LoadChange]:
    """Return every change from one stage to another in parts that are nothing but stages, repeat by repeat."""
    if STAGE not in cases.columns:
        return []
    labels = dict(cases.select("case_id", STAGE).rows())
    return [
        change
        for part in study.parts
        if part.rounds and not part.rounds.max_rounds and _differ(part.rounds.stages)
        for repeat in dict.fromkeys(each.repeat for each in long_runs if each.part == part.name)
        for change in _of_pass(
            [each for each in long_runs if (each.part, each.repeat) == (part.name, repeat) and each.final],
            labels,
            {level.label: level for level in part.rounds.stages},
        )
    ]


def _differ(stages: Sequence[Level]) -> bool:
    return len({str(_load(stage)) for stage in stages}) > 1


def _load(stage: Level) -> dict[str, Any]:
    """The parameters of a stage without its length."""
    return {name: value for name, value in sorted(stage.set.items()) if name not in ("duration", "round_length")}


def _of_pass(long_runs: Sequence[LongRun], labels: dict[str, str], stages: dict[str, Level]) -> list[LoadChange]:
    found: list[LoadChange] = []
    for place, long_run in enumerate(long_runs[1:], start=1):
        label, before = labels[long_run.case_id], long_runs[:place]
        alike = [
            each
            for each in before
            if label in stages
            and labels[each.case_id] in stages
            and _load(stages[labels[each.case_id]]) == _load(stages[label])
        ]
        level, same = _level(long_run), alike[-1] if alike else None
        once = _level(same) if same else None
        found.append(
            LoadChange(
                before=labels[before[-1].case_id],
                after=label,
                long_run=long_run,
                level=level,
                settled_s=_reached(long_run, level),
                earlier=labels[same.case_id] if same else "",
                once=once,
                recovered_s=None if once is None else _recovered(long_run, once),
                strength="strong" if long_run.steady.achieved else "weak",
                case_ids=(long_run.case_id,),
                part=long_run.part,
            )
        )
    return found


def _level(long_run: LongRun) -> float:
    level = long_run.steady.level or long_run.final
    assert level, "only runs with a window are compared"
    return level


def near(criteria: Criteria) -> float:
    """Relative deviation that counts as being at a level: half of the range that steady state allows around it."""
    return criteria.range / 2


def _reached(long_run: LongRun, level: float) -> float | None:
    share = near(long_run.steady.criteria)
    return _first_s(long_run, np.flatnonzero(np.abs(long_run.values - level) <= share * level))


def _recovered(long_run: LongRun, once: float) -> float | None:
    """Start of the first round that is around an earlier level, or better, as the mean of every later window is."""
    windows = sliding_window_view(long_run.values, min(long_run.steady.criteria.window, len(long_run.values)))
    means = np.ma.masked_invalid(windows).mean(axis=1).filled(np.nan)
    stays = np.logical_and.accumulate(_is_back(long_run, means, once)[::-1])[::-1]
    following = np.minimum(np.arange(len(long_run.values)), len(stays) - 1)
    return _first_s(long_run, np.flatnonzero(_is_back(long_run, long_run.values, once) & stays[following]))


def _is_back(long_run: LongRun, values: Floats, once: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    share = near(long_run.steady.criteria)
    lower = long_run.tracking in LOWER_IS_BETTER
    return values <= (1 + share) * once if lower else values >= (1 - share) * once


def _first_s(long_run: LongRun, rounds: np.ndarray[Any, np.dtype[np.int64]]) -> float | None:
    """Start of the first of these rounds."""
    return float(rounds[0]) * long_run.round_s if len(rounds) else None


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


def lasting(drops: Sequence[LastingDrop], *, measured: int, words: Mapping[str, str]) -> Iterator[Finding]:
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
        .join(facts.cases_with("active"), on=["result_set", "case_id"], how="anti")
        .join(facts.cases_with(STAGE), on=["result_set", "case_id"], how="anti")
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


def _load_changes(results: Results) -> Iterable[Finding]:
    return load_changes(results.study, results.long_runs, results.result_set.cases)


def _recoveries(results: Results) -> Iterable[Finding]:
    return idle_recovery.find(idle_recovery.idle_recoveries(results.study, results.result_set), results.states)


def _drops(results: Results) -> Iterable[Finding]:
    measured = results.metrics.filter(pl.col("part") != PREPARATION)["run_id"].n_unique()
    words = case_words(results.study, results.result_set.cases)
    return lasting(lasting_drops(results.facts), measured=measured, words=words)


OF_RESULTS = (_load_changes, _recoveries, _drops)
