"""Findings about sustained load: changes of load, drops of throughput that last to the end, recovery in pauses.

Changes of load are SNIA's cross stimulus recovery: stages of different loads, one after the other, each judged by its
own rounds. For each change: the first value, the settled one, and when it was first within the range that steady state
permits around it. A load that was measured before is compared with its earlier level: it recovers, and after what time,
or it does not.

A full cache, exhausted spare blocks, thermal throttling: the average of a run with a lasting drop covers both speeds.
Short runs have too few intervals for the steady-state rule, so this looks for one change of level that lasts.

Idle recovery is SNIA's host idle recovery: stages of alternating load and pause, and the continuous load that follows
each. The baseline is the rate of the rounds before, if possible in steady state; the gain of a pause length is the rate
in the bursts over that baseline; the continuous load afterwards shows how long the gain lasts. A drive that collects
garbage while idle has a gain, and loses it as it uses up the blocks that it freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from iosonde.findings.cells import case_words
from iosonde.findings.device_state import Convergence, DeviceStates, convergences
from iosonde.findings.finding import Finding
from iosonde.findings.question import Results
from iosonde.metrics import wording
from iosonde.metrics.change_points import CLIFF, change_points
from iosonde.metrics.facts import Facts
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.statistics import Floats
from iosonde.metrics.sustained import LOWER_IS_BETTER, STALLED_SHARE, LongRun
from iosonde.plan import PREPARATION
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import STAGE, Level, Study
from iosonde.study.workload import names_where
from iosonde.study.workload.block.notation import active_window
from iosonde.units import format_bytes, format_duration

Flags = np.ndarray[Any, np.dtype[np.bool_]]


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
        return near(self.long_run)

    def _sentence(self) -> str:
        stage = f"`{self.after}` after `{self.before}`"
        first, level = self._value(self.first), self._value(self.level)
        if abs(self.first - self.level) <= self.within * self.level:
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
        if part.rounds and not part.rounds.max_rounds and len({str(_load(stage)) for stage in part.rounds.stages}) > 1
        for repeat in dict.fromkeys(each.repeat for each in long_runs if each.part == part.name)
        for change in _of_pass(
            [each for each in long_runs if (each.part, each.repeat) == (part.name, repeat) and each.final],
            labels,
            {level.label: level for level in part.rounds.stages},
        )
    ]


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
                settled_s=_first_s(long_run, np.abs(long_run.values - level) <= near(long_run) * level),
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


def near(long_run: LongRun) -> float:
    """Relative deviation that counts as being at a level: half of the range that steady state allows around it."""
    return long_run.steady.criteria.range / 2


def _recovered(long_run: LongRun, once: float) -> float | None:
    """Start of the first round that is around an earlier level, or better, as the mean of every later window is."""
    windows = sliding_window_view(long_run.values, min(long_run.steady.criteria.window, len(long_run.values)))
    means = np.ma.masked_invalid(windows).mean(axis=1).filled(np.nan)
    stays = np.logical_and.accumulate(_is_back(long_run, means, once)[::-1])[::-1]
    following = np.minimum(np.arange(len(long_run.values)), len(stays) - 1)
    return _first_s(long_run, _is_back(long_run, long_run.values, once) & stays[following])


def _is_back(long_run: LongRun, values: Floats, once: float) -> Flags:
    share = near(long_run)
    lower = long_run.tracking in LOWER_IS_BETTER
    return values <= (1 + share) * once if lower else values >= (1 - share) * once


def _first_s(long_run: LongRun, is_reached: Flags) -> float | None:
    """Start of the first round that is so."""
    rounds = np.flatnonzero(is_reached)
    return float(rounds[0]) * long_run.round_s if len(rounds) else None


FEWEST = 8
"""Intervals that a run must have."""
LASTING = 3
"""Intervals that must be before the drop, and after it."""


@dataclass(frozen=True, kw_only=True)
class LastingDrop:
    """One run."""

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


def of_drops(drops: Sequence[LastingDrop], *, measured: int, words: Mapping[str, str]) -> LastingDrops:
    """Return one finding for all runs; `words` are those of the cases."""
    deepest = tuple(sorted(drops, key=lambda each: each.fraction))
    return LastingDrops(
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


NEAR = 0.10
"""A rate is back at the base line when it is at most so much above it, and has gained when it is more. A mean that is
more than that below it is reported as such."""
SMOOTHED = 3
"""Intervals whose mean rate is taken for the rate at the first of them: single ones jump as collection does."""


@dataclass(frozen=True, kw_only=True)
class Decay:
    """The load without pauses that follows: how a gain is lost."""

    case_id: str
    first: float
    """IOPS when it starts."""
    last: float
    """IOPS when it stops."""
    back_s: float | None
    """Time at which it was first at most `NEAR` above the base line; None if it never was."""
    back_bytes: int | None
    """Moved until then."""
    rest: float | None
    """Mean IOPS from then on."""
    length_s: float


@dataclass(frozen=True, kw_only=True)
class IdleRecovery:
    """One length of pause."""

    case_id: str
    part: str
    pause_s: float
    base: float
    """IOPS of the rounds' measurement window."""
    base_is_steady: bool
    base_run: tuple[str, int]
    """Case and repeat of the last round."""
    bursts: Floats
    """IOPS of every burst, pauses left out."""
    decay: Decay | None
    """None where no load without pauses follows."""

    @property
    def gain(self) -> float:
        """Median of the bursts over the base line."""
        return float(np.median(self.bursts)) / self.base


class IdleGain(Finding, kind="idle gain", topic="state"):
    """Rate of bursts between pauses over the rate before them, for every pause length of a part."""

    gains: tuple[tuple[float, float], ...]
    """Pause in seconds, and the gain after it; the shortest pause first."""
    base: float
    """IOPS of the rounds before the pauses."""
    base_is_steady: bool
    """True if that is steady state."""

    def _sentence(self) -> str:
        (shortest, low), (longest, high) = self.gains[0], self.gains[-1]
        values = [gain for _, gain in self.gains]
        pauses = wording.range_text(_seconds(shortest), _seconds(longest))
        if max(abs(gain - 1) for gain in values) <= NEAR:
            base = "steady state" if self.base_is_steady else "the rate before them"
            return f"Idle pauses of {pauses}: rate within {100 * NEAR:.0f} % of {base}, no recovery"
        base = _base_words(self.base_is_steady)
        if len(self.gains) == 1:
            return f"Idle pauses of {pauses}: bursts reach {wording.times_text(low)} {base}"
        return (
            f"Bursts reach {wording.times_text(low)} {base} after pauses of {_seconds(shortest)}, "
            f"{wording.times_text(high)} after {_seconds(longest)}"
        )

    def _evidence(self) -> str:
        listed = "; ".join(f"{wording.times_text(gain)} after {_seconds(pause)}" for pause, gain in self.gains)
        return f"{listed}; {_base(self.base, self.base_is_steady)}"


class IdleDecay(Finding, kind="idle decay", topic="state"):
    """Loss of a gain of pauses under continuous load."""

    pause_s: float
    base: float
    base_is_steady: bool
    decay: Decay

    def _sentence(self) -> str:
        decay = self.decay
        after = f"Continuous load after pauses of {_seconds(self.pause_s)}"
        base = _base_words(self.base_is_steady)
        first, last = (wording.times_text(rate / self.base) for rate in (decay.first, decay.last))
        if decay.back_s is not None and decay.rest is not None and decay.rest < (1 - NEAR) * self.base:
            rest = wording.times_text(decay.rest / self.base)
            if decay.back_s == 0:
                return f"{after}: {rest} {base} on average"
            return f"{after}: starts at {first} {base} and falls to {rest} on average after {_seconds(decay.back_s)}"
        if decay.back_s == 0:
            return f"{after}: at {base} from the start"
        if decay.back_s is not None and decay.back_bytes is not None:
            return (
                f"{after}: starts at {first} {base} and returns to within {100 * NEAR:.0f} % of it after "
                f"{_seconds(decay.back_s)} and {format_bytes(decay.back_bytes)}"
            )
        return f"{after}: still {last} {base} after {_seconds(decay.length_s)}"

    def _evidence(self) -> str:
        first, last = (wording.value_text("iops", rate) for rate in (self.decay.first, self.decay.last))
        length = _seconds(self.decay.length_s)
        return f"{first} at the start, {last} after {length}; {_base(self.base, self.base_is_steady)}"


def idle_findings(recoveries: Sequence[IdleRecovery], states: DeviceStates) -> Iterator[Finding]:
    recoveries = [
        replace(each, base_is_steady=each.base_is_steady and states.state(*each.base_run) == "steady")
        for each in recoveries
    ]
    for part in dict.fromkeys(each.part for each in recoveries):
        ordered = sorted((each for each in recoveries if each.part == part), key=lambda each: each.pause_s)
        steady = all(each.base_is_steady for each in ordered)
        yield IdleGain(
            gains=tuple((each.pause_s, each.gain) for each in ordered),
            base=ordered[0].base,
            base_is_steady=steady,
            strength="moderate" if steady else "weak",
            case_ids=tuple(each.case_id for each in ordered),
            part=part,
        )
        for each in ordered:
            if each.decay:
                yield IdleDecay(
                    pause_s=each.pause_s,
                    base=each.base,
                    base_is_steady=each.base_is_steady,
                    decay=each.decay,
                    strength="moderate" if each.base_is_steady else "weak",
                    case_ids=(each.decay.case_id,),
                    part=part,
                )


def _seconds(seconds: float) -> str:
    return format_duration(seconds * 1e9)


def _base_words(steady: bool) -> str:
    return "the steady-state rate" if steady else "the rate before the pauses"


def _base(rate: float, steady: bool) -> str:
    state = "in steady state" if steady else "in the last rounds before, without steady state"
    return f"{wording.value_text('iops', rate)} {state}"


def idle_recoveries(study: Study, results: ResultSet) -> list[IdleRecovery]:
    """Every stage with pauses that follows rounds which were judged, in the order in which they were carried out."""
    parts = {part.name: part for part in study.parts if part.rounds and part.rounds.sought}
    records = [each for each in results.records() if each.outcome == "complete" and STAGE in each.levels]
    pausing = [each for each in records if each.part in parts and _cycle(each)]
    if not pausing:
        return []
    metrics = run_metrics(results)
    bases = {name: convergences(part, results.cases, metrics) for name, part in parts.items()}
    intervals = _intervals(results, [each.run_id for each in records])
    found = (_of_stage(each, _follower(each, records), bases[each.part], intervals) for each in pausing)
    return [each for each in found if each is not None]


def _cycle(record: Record) -> tuple[int, int] | None:
    """Length of the load and of a whole cycle, in ns; None where load and pause do not alternate."""
    active = record.parameters.get("active")
    window = active_window(active) if isinstance(active, str) else None
    every_ns = window.get("every_ns") if window else None
    if window is None or every_ns is None:
        return None
    end_ns = window.get("end_ns")
    assert end_ns is not None, "a repeated window has an end"
    return end_ns - window["begin_ns"], every_ns


def _follower(record: Record, records: Sequence[Record]) -> Record | None:
    """The stage after it, if that has no pauses."""
    later = (each for each in records if each.order > record.order and each.repeat == record.repeat)
    after = min(later, key=lambda each: each.order, default=None)
    return after if after and after.part == record.part and not after.parameters.get("active") else None


def _intervals(results: ResultSet, run_ids: Sequence[str]) -> dict[str, pl.DataFrame]:
    """Of each run `begin_ns, end_ns` since its measurement began, `count, bytes`."""
    frame = (
        Facts(results, run_ids=run_ids)
        .counts(per="interval")
        .filter(pl.col("phase") == "measure", pl.col("operation").is_in(["read", "write", "trim"]))
        .group_by("run_id", "begin_ns", "end_ns")
        .agg(pl.col("count", "bytes").sum())
        .sort("run_id", "begin_ns")
        .with_columns(pl.col("begin_ns", "end_ns") - pl.col("begin_ns").min().over("run_id"))
    )
    return {str(key[0]): group for key, group in frame.group_by("run_id", maintain_order=True)}


def _of_stage(
    record: Record, follower: Record | None, bases: Sequence[Convergence], intervals: Mapping[str, pl.DataFrame]
) -> IdleRecovery | None:
    cycle = _cycle(record)
    base = next((each for each in bases if each.repeat == record.repeat), None)
    window = next((each.window for each in base.tracked if each.window), None) if base else None
    if not (cycle and base and window and window.mean > 0 and record.run_id in intervals):
        return None
    bursts = np.fromiter(_bursts(intervals[record.run_id], *cycle), dtype=np.float64)
    if not len(bursts):
        return None
    after = intervals.get(follower.run_id) if follower else None
    return IdleRecovery(
        case_id=record.case_id,
        part=record.part,
        pause_s=(cycle[1] - cycle[0]) / 1e9,
        base=window.mean,
        base_is_steady=base.achieved,
        base_run=(base.case_ids[-1], base.repeat),
        bursts=bursts,
        decay=decay_of(follower.case_id, after, window.mean) if follower and after is not None else None,
    )


def _bursts(intervals: pl.DataFrame, burst_ns: int, every_ns: int) -> Iterator[float]:
    """I/Os per second of each burst that was measured whole; what ends after it counts with it."""
    cycles = intervals.group_by(pl.col("begin_ns") // every_ns, maintain_order=True).agg(
        pl.col("end_ns").max().alias("end_ns"), pl.col("count").sum().alias("count")
    )
    for cycle, end_ns, count in cycles.iter_rows():
        if end_ns >= cycle * every_ns + burst_ns:
            yield count / burst_ns * 1e9


def decay_of(case_id: str, intervals: pl.DataFrame, base: float) -> Decay:
    """Return how the rate of a load without pauses returns to `base`, in I/Os per second."""
    lengths = (intervals["end_ns"] - intervals["begin_ns"]).to_numpy() / 1e9
    counts = intervals["count"].to_numpy()
    width = min(SMOOTHED, len(counts))
    window = np.ones(width)
    rates = np.convolve(counts, window, "valid") / np.convolve(lengths, window, "valid")
    near = np.flatnonzero(rates <= (1 + NEAR) * base)
    at = int(near[0]) if len(near) else None
    return Decay(
        case_id=case_id,
        first=float(rates[0]),
        last=float(rates[-1]),
        back_s=None if at is None else float(intervals["begin_ns"][at]) / 1e9,
        back_bytes=None if at is None else int(intervals["bytes"][:at].sum()),
        rest=None if at is None else float(counts[at:].sum() / lengths[at:].sum()),
        length_s=float(lengths.sum()),
    )


def _load_changes(results: Results) -> Iterable[Finding]:
    return load_changes(results.study, results.long_runs, results.result_set.cases)


def _recoveries(results: Results) -> Iterable[Finding]:
    return idle_findings(idle_recoveries(results.study, results.result_set), results.states)


def _drops(results: Results) -> Iterator[Finding]:
    measured = results.metrics.filter(pl.col("part") != PREPARATION)["run_id"].n_unique()
    if drops := lasting_drops(results.facts):
        yield of_drops(drops, measured=measured, words=case_words(results.study, results.result_set.cases))


OF_RESULTS = (_load_changes, _recoveries, _drops)
