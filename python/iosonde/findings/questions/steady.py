"""Steady state: time and level at which it was reached, and its stability to the end of the run.

SNIA's criterion is reported as such. "Steady" requires in addition that the level lasts (`metrics.settling`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.device_state import Convergence, DeviceStates, convergences
from iosonde.findings.finding import Fact, Finding
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.settling import Trend
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.metrics.steady_state import DRIFT, SNIA, Criteria
from iosonde.metrics.sustained import LongRun, Outcome
from iosonde.plan import DeviceState
from iosonde.study.model import STAGE, Part
from iosonde.units import format_bytes, format_duration


class SteadyRun(Finding, kind="steady run", topic="state", place=1):
    """One run that is judged by its own rounds."""

    load: str
    metric: str
    outcome: Outcome
    state: DeviceState
    """State of the device; without steady state of the device, a stable rate is not called steady."""
    rounds: int
    round_s: float
    window: tuple[int, int] | None
    """First and last round of the measurement window."""
    level: Estimate | None
    """Mean over the last quarter since the last step."""
    share_of_peak: float | None
    """Level as a share of the best round."""
    changed_to: float | None
    """Mean of the last window, where the level did not last or still changes."""
    left_before: int | None
    """Last round of an earlier level, which a step ended; None if there was none."""
    range_share: float | None
    slope_share: float | None
    """Of the measurement window, or of the last one."""
    criteria: Criteria
    met: tuple[int, int] | None = None
    """First window that meets the criterion of steady state, which a level that does not last meets too."""
    forecast: Estimate | None = None
    """Level that a trend approaches."""
    drift_below: float | None = None
    """Change across the second half that is excluded, as a share of the level."""
    hidden: float | None = None
    """Drift per round that noise may hide, as a share, if that alone keeps the run from being steady."""

    @property
    def facts(self) -> set[Fact]:
        is_level = self.level is not None and self.changed_to is None
        level = {("level", self.metric, case_id) for case_id in self.case_ids} if is_level else set()
        return super().facts | level

    def _sentence(self) -> str:
        length = format_duration(self.rounds * self.round_s * 1e9)
        if self.outcome == "too short" and self.range_share is None:
            rounds = f"{wording.counted(self.rounds, 'round')} of {format_duration(self.round_s * 1e9)}"
            return f"{self.load}: no steady state shown, {rounds} are fewer than the {self.criteria.window} of a window"
        if self.outcome == "too short" and self.hidden is not None:
            return f"{self.load}: no steady state shown within {length}, {_hidden_text(self.hidden)}"
        if self.outcome == "too short":
            return f"{self.load}: no steady state shown, the run is too short for it ({length})"
        if self.outcome == "stalled":
            return f"{self.load}: no steady state shown, the engine did not run in some of the last rounds ({length})"
        if self.outcome in ("falling", "rising") and self.changed_to is not None:
            at_end = wording.value_text(self.metric, self.changed_to)
            ends = wording.estimate_text(self.metric, self.forecast) if self.forecast else ""
            later = f"; if the change is one exponential, it ends at {ends}" if ends else ""
            return f"{self.load}: no steady state within {length}, still {self.outcome}: {at_end} at the end{later}"
        if self.outcome == "not steady" or self.level is None or self.window is None:
            return f"{self.load}: no steady state within {length}{self._criterion}"
        after = format_duration(self.window[1] * self.round_s * 1e9)
        value = wording.estimate_text(self.metric, self.level)
        if self.outcome == "changed" and self.changed_to is not None:
            later = wording.value_text(self.metric, self.changed_to)
            what = (
                "steady state lost" if _may_be_steady(self.state) else f"stable level lost (device state {self.state})"
            )
            return f"{self.load}: {what}, {value} after {after}, {later} at the end ({length})"
        of_peak = f", {wording.percent_text(self.share_of_peak)} of the best round" if self.share_of_peak else ""
        if self.state == "fresh":
            return f"{self.load}: {value}, stable after {after}{of_peak}; this describes a fresh drive"
        if not _may_be_steady(self.state):
            return f"{self.load}: {value}, stable after {after}{of_peak}; device state {self.state}"
        earlier = f"; the earlier plateau ended with round {self.left_before}" if self.left_before else ""
        drift = ""
        if self.drift_below is not None:
            drift = f", drift below {max(1, math.ceil(100 * self.drift_below))} % over the second half"
        return f"{self.load}: steady at {value} after {after} and until the end ({length}{drift}){of_peak}{earlier}"

    def _evidence(self) -> str:
        allowed = f"allowed {wording.percent_text(self.criteria.range)} and {wording.percent_text(self.criteria.slope)}"
        rounds = f"{wording.counted(self.rounds, 'round')} of {format_duration(self.round_s * 1e9)}"
        met = (
            f"; {criterion_name(self.criteria)} first met in rounds {self.met[0]} to {self.met[1]}" if self.met else ""
        )
        if self.range_share is None or self.slope_share is None:
            return "the run is too short"
        which = f"rounds {self.window[0]} to {self.window[1]}" if self.window else "last window"
        shares = (
            f"range {wording.percent_text(self.range_share)}, slope "
            f"{wording.percent_text(self.slope_share)} of the mean"
        )
        return f"{rounds}; {which}: {shares} ({allowed}){met}"

    @property
    def _criterion(self) -> str:
        """The criterion that the last window misses: the slope, else the range."""
        metric, slope, span = wording.metric_words(self.metric), self.slope_share or 0.0, self.range_share or 0.0
        if slope > self.criteria.slope:
            return f": {metric} still changing {wording.percent_text(slope)} per window"
        if span > self.criteria.range:
            return f": {metric} varying by {wording.percent_text(span)} within a window"
        if self.met:
            return f": {criterion_name(self.criteria)} is met, but the level does not last"
        return ""


def criterion_name(criteria: Criteria) -> str:
    """Return the name of a criterion: SNIA's, unless the study sets another."""
    same = (criteria.window, criteria.range, criteria.slope) == (SNIA.window, SNIA.range, SNIA.slope)
    return "SNIA's criterion" if same else "the criterion of the study"


class WriteCliff(Finding, kind="write cliff", topic="state"):
    """The largest lasting drop of the write rate of a run."""

    load: str
    after_s: float
    after_bytes: int
    range_bytes: int | None
    before: float
    after: float
    """Bandwidth before and after, bytes/s."""
    settled: bool
    """True if the bandwidth after has settled."""

    def _sentence(self) -> str:
        times = f" ({self.after_bytes / self.range_bytes:.2g} times the active range)" if self.range_bytes else ""
        before, after = (wording.value_text("bandwidth", each) for each in (self.before, self.after))
        time, written = format_duration(self.after_s * 1e9), format_bytes(self.after_bytes)
        unsettled = "" if self.settled else ", and has not settled"
        return (
            f"{self.load}: write cliff after {time} and {written} written{times}, bandwidth falls from {before} to "
            f"{after}{unsettled}"
        )

    def _evidence(self) -> str:
        return f"change point of the intervals; {wording.percent_text(self.after / self.before)} of the rate before"


class SteadyRounds(Finding, kind="steady rounds", topic="state"):
    """One pass of a part with rounds: joint steady state of all tracking variables, and its stability."""

    load: str
    metric: str
    achieved: bool
    lasts: bool
    """True if the level lasts, beyond the criterion."""
    trend: Trend
    hidden: float | None = None
    """Largest drift per round that noise may hide, as a share, where that keeps a variable from being steady."""
    criterion: str
    state: DeviceState
    rounds: int
    first: int | None
    last: int | None
    range_share: float | None
    slope_share: float | None
    """The largest of all tracking variables; None with too few rounds for a window."""
    variables: int
    window: int
    hold: int
    """Rounds of the closing check."""
    withdrawn: int | None
    """Last round of an earlier steady window that failed the closing check."""

    @property
    def is_secondary(self) -> bool:
        """A criterion that a fresh drive meets is no steady state, which `FreshDevice` states."""
        return self.achieved and not _may_be_steady(self.state)

    def _sentence(self) -> str:
        left = f"; an earlier window, to round {self.withdrawn}, failed the closing check" if self.withdrawn else ""
        if self.achieved:
            rounds = f"{self.criterion} met in rounds {self.first} to {self.last}{left}"
            if not self.lasts:
                what = wording.metric_words(self.metric)
                why = f"no steady state, {what} still {self.trend}" if self.trend else "no steady state, level lost"
                if self.hidden is not None and not self.trend:
                    why = f"no steady state shown, {_hidden_text(self.hidden)}"
                return f"{self.load}: {why}; {rounds}"
            if _may_be_steady(self.state):
                return f"{self.load}: steady state, {rounds}"
            if self.state == "fresh":
                return f"{self.load}: stable on a fresh drive, {rounds}"
            return f"{self.load}: stable, {rounds}; device state {self.state}"
        if self.range_share is None:
            return (
                f"{self.load}: no steady state, {wording.counted(self.rounds, 'round')} are fewer than the "
                f"{self.window} of a window"
            )
        return f"{self.load}: did not become steady in {wording.counted(self.rounds, 'round')}{left}"

    def _evidence(self) -> str:
        if self.range_share is None or self.slope_share is None:
            return f"a window has {self.window} rounds"
        slope = wording.percent_text(self.slope_share)
        shares = f"range {wording.percent_text(self.range_share)}, slope {slope} of the mean"
        several = f", the largest of {self.variables} tracking variables" if self.variables > 1 else ""
        closing = f"; closing check over {wording.counted(self.hold, 'further round')}" if self.hold else ""
        return f"{wording.metric_words(self.metric)}: {shares}{several}{closing}"


class ShareOfPeak(Finding, kind="share of peak", topic="state"):
    """The sustained level as a share of the best round, over a factor."""

    load: str
    over: str
    metric: str
    levels: tuple[tuple[Any, float], ...]
    """Level of the factor, and the median share."""
    is_steady: bool
    """True if the device was in steady state in all cases."""
    repeats: int

    def _sentence(self) -> str:
        level = "steady state" if self.is_steady else "stable level"
        what = level if self.metric == "steady_fraction" else "last rounds"
        low, high = (min(self.levels, key=lambda each: each[1]), max(self.levels, key=lambda each: each[1]))
        first, last = (wording.percent_text(share) for _, share in (low, high))
        if first == last:
            return f"{self.load}: {what} at {first} of the best round at every {wording.factor_words(self.over)}"
        at_first, at_last = (wording.level_words(self.over, level) for level, _ in (low, high))
        return f"{self.load}: {what} between {first} of the best round at {at_first} and {last} at {at_last}"

    def _evidence(self) -> str:
        listed = "; ".join(
            f"{wording.percent_text(share)} at {wording.level_words(self.over, level)}" for level, share in self.levels
        )
        return f"{listed}; {wording.counted(self.repeats, 'run')} each"


def find_rounds(part: Part, cases: pl.DataFrame, runs: pl.DataFrame, states: DeviceStates) -> Iterator[Finding]:
    """Return whether each pass of a part with rounds reached steady state."""
    for each in convergences(part, cases, runs):
        if each.sought:
            yield _of_pass(part, each, states.state(each.case_ids[-1], each.repeat))


def find_long_runs(
    long_runs: Sequence[LongRun], cases: pl.DataFrame, parts: Sequence[Part], states: DeviceStates
) -> Iterator[Finding]:
    """Return of every run that is judged by its own rounds whether it was steady, and its write cliff."""
    names = {part.name: list(part.all_factors) for part in parts}
    first = {(long_run.part, long_run.repeat): long_run.case_id for long_run in reversed(long_runs)}
    several = {long_run.case_id for long_run in long_runs if long_run.repeat > 1}
    for long_run in long_runs:
        row = cases.row(by_predicate=pl.col("case_id") == long_run.case_id, named=True)
        found = {name: row.get(name, row.get(f"{name}_level")) for name in names.get(long_run.part, [])}
        levels = {name: level for name, level in found.items() if level is not None}
        load = _load(levels) or f"part `{long_run.part}`"
        load += f", repeat {long_run.repeat}" if long_run.case_id in several else ""
        yield of_run(long_run, load, states.state(long_run.case_id, long_run.repeat))
        # A drop within a later stage follows from the stage before, and is no write cliff.
        is_first = row.get(STAGE) is None or first[long_run.part, long_run.repeat] == long_run.case_id
        if is_first and long_run.cliff and long_run.cliff_s is not None and long_run.cliff_bytes is not None:
            yield WriteCliff(
                load=load,
                after_s=long_run.cliff_s,
                after_bytes=long_run.cliff_bytes,
                range_bytes=long_run.range_bytes,
                before=long_run.cliff.before,
                after=long_run.cliff.after,
                settled=long_run.cliff.settled,
                strength="moderate",
                case_ids=(long_run.case_id,),
                part=long_run.part,
            )


def shares_of_peak(question: Question) -> Iterator[Finding]:
    """Return over a factor which share of the best round was sustained, from the least to the most."""
    over, metric = question.analysis.over, question.analysis.metric
    numeric = question.numeric
    for key, cells in groups(question.cells(), [name for name in question.by if name not in numeric]):
        group = cells.sort(numeric, maintain_order=True) if numeric else cells
        levels = group.select(over, "values").rows()
        if len(levels) < 2:
            continue
        estimates = [repeats_interval(values) for _, values in levels]
        case_ids = tuple(group["case_id"].to_list())
        yield ShareOfPeak(
            load=_load({name: level for name, level in key.items() if name != over}) or f"part `{question.part.name}`",
            over=over,
            metric=metric,
            levels=tuple((level, each.value) for (level, _), each in zip(levels, estimates, strict=True)),
            is_steady=all(_may_be_steady(state) for each in case_ids for state in question.states.of_case(each)),
            repeats=min(len(values) for _, values in levels),
            **question.claim(case_ids, *estimates),
        )


def of_run(long_run: LongRun, load: str, state: DeviceState) -> SteadyRun:
    """Return whether one run reached steady state, and at which level."""
    steady, outcome, earlier = long_run.steady, long_run.outcome, long_run.steady.earlier
    changing = outcome in ("falling", "rising")
    window, level = None, None
    if outcome == "steady" and steady.measured and steady.level is not None:
        window, level = steady.measured, long_run.level or Estimate(steady.level)
    elif outcome == "changed" and earlier:
        window, level = earlier.window, Estimate(earlier.mean)
    shown = None if outcome == "stalled" else window or steady.latest
    return SteadyRun(
        load=load,
        metric=long_run.tracking,
        outcome=outcome,
        state=state,
        rounds=long_run.steady.rounds,
        round_s=long_run.round_s,
        window=(window.first, window.last) if window else None,
        level=level,
        share_of_peak=long_run.fraction(level.value) if level else None,
        changed_to=steady.latest.mean if (changing or outcome == "changed") and steady.latest else None,
        left_before=steady.left if outcome == "steady" else None,
        range_share=shown.range_share if shown else None,
        slope_share=shown.slope_share if shown else None,
        criteria=long_run.steady.criteria,
        met=(steady.first.first, steady.first.last) if steady.first and outcome != "stalled" else None,
        forecast=steady.forecast if changing else None,
        drift_below=steady.drift_below if outcome == "steady" else None,
        hidden=steady.hidden if outcome == "too short" else None,
        strength="moderate" if outcome == "changed" or not _may_be_steady(state) else "strong",
        case_ids=(long_run.case_id,),
        part=long_run.part,
    )


def _hidden_text(hidden: float) -> str:
    bound = f" (bound {wording.percent_text(hidden)})" if math.isfinite(hidden) else ""
    return f"too few rounds to rule out a drift of {wording.percent_text(DRIFT)} per round{bound}"


def _may_be_steady(state: DeviceState) -> bool:
    """Return whether a stable rate is steady state: of loads that write nothing, it is whatever the device's state."""
    return state in ("steady", "not_applicable")


def _of_pass(part: Part, each: Convergence, state: DeviceState) -> SteadyRounds:
    windows = [tracked.window for tracked in each.tracked if tracked.window]
    return SteadyRounds(
        load=_load(each.levels) or f"part `{part.name}`",
        metric=each.metric,
        achieved=each.achieved,
        lasts=each.lasts,
        trend=each.trend,
        hidden=each.hidden,
        criterion=criterion_name(windows[0].criteria) if windows else "",
        state=state,
        rounds=each.rounds,
        first=each.first,
        last=each.last,
        range_share=max((window.range_share for window in windows), default=None),
        slope_share=max((window.slope_share for window in windows), default=None),
        variables=len(windows),
        window=part.rounds.window if part.rounds else 5,
        hold=part.rounds.hold if part.rounds else 0,
        withdrawn=each.withdrawn,
        strength="strong" if _may_be_steady(state) else "moderate",
        case_ids=tuple(each.case_ids[:1]),
        part=part.name,
    )


def _load(levels: Mapping[str, Any]) -> str:
    return ", ".join(wording.level_words(name, level) for name, level in levels.items())


KINDS = (QuestionKind("steady_state", shares_of_peak),)
