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
from iosonde.metrics.change_points import Cliff
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.metrics.steady_state import DRIFT, SNIA, Criteria, Window
from iosonde.metrics.sustained import LongRun
from iosonde.plan import DeviceState
from iosonde.study.model import STAGE, Part
from iosonde.units import format_bytes, format_duration


class SteadyRun(Finding, kind="steady run", topic="state", place=1):
    """One run that is judged by its own rounds."""

    load: str
    metric: str
    run: LongRun
    state: DeviceState
    """State of the device; without steady state of the device, a stable rate is not called steady."""
    level: Estimate | None
    """Of a steady run the mean over the last quarter since the last step; of one that changed, the level before."""
    forecast: Estimate | None = None
    """Level that a trend approaches."""

    @property
    def facts(self) -> set[Fact]:
        level = {("level", self.metric, self.run.case_id)} if self.run.outcome == "steady" else set()
        return super().facts | level

    @property
    def _window(self) -> Window | None:
        """The measurement window; of a run that changed, the one at the level before."""
        steady = self.run.steady
        if self.run.outcome == "changed" and steady.earlier:
            return steady.earlier.window
        return steady.measured if self.run.outcome == "steady" else None

    def _sentence(self) -> str:
        return f"{self.load}: {self._result()}"

    def _result(self) -> str:
        outcome, steady = self.run.outcome, self.run.steady
        length, latest = format_duration(steady.rounds * self.run.round_s * 1e9), steady.latest
        if latest is None:
            return f"no steady state shown, {self._rounds} are fewer than the {steady.criteria.window} of a window"
        if outcome == "too short" and steady.hidden is not None:
            return f"no steady state shown within {length}, {_hidden_text(steady.hidden)}"
        if outcome == "too short":
            return f"no steady state shown, the run is too short for it ({length})"
        if outcome == "stalled":
            return f"no steady state shown, the engine did not run in some of the last rounds ({length})"
        at_end = wording.value_text(self.metric, latest.mean)
        if outcome in ("falling", "rising"):
            ends = wording.estimate_text(self.metric, self.forecast) if self.forecast else ""
            later = f"; if the change is one exponential, it ends at {ends}" if ends else ""
            return f"no steady state within {length}, still {outcome}: {at_end} at the end{later}"
        if self.level is None or self._window is None:
            return f"no steady state within {length}{self._criterion(latest)}"
        after = format_duration(self._window.last * self.run.round_s * 1e9)
        value = wording.estimate_text(self.metric, self.level)
        if outcome == "changed":
            lost = (
                "steady state lost" if _may_be_steady(self.state) else f"stable level lost (device state {self.state})"
            )
            return f"{lost}, {value} after {after}, {at_end} at the end ({length})"
        of_peak = f", {wording.percent_text(self.run.fraction(self.level.value))} of the best round"
        if self.state == "fresh":
            return f"{value}, stable after {after}{of_peak}; this describes a fresh drive"
        if not _may_be_steady(self.state):
            return f"{value}, stable after {after}{of_peak}; device state {self.state}"
        earlier = f"; the earlier plateau ended with round {steady.left}" if steady.left else ""
        drift = ""
        if steady.drift_below is not None:
            drift = f", drift below {max(1, math.ceil(100 * steady.drift_below))} % over the second half"
        return f"steady at {value} after {after} and until the end ({length}{drift}){of_peak}{earlier}"

    def _evidence(self) -> str:
        steady, criteria = self.run.steady, self.run.steady.criteria
        shown = self._window or steady.latest
        if shown is None or self.run.outcome == "stalled":
            return "the run is too short"
        first = steady.first
        met = f"; {criterion_name(criteria)} first met in rounds {first.first} to {first.last}" if first else ""
        which = f"rounds {shown.first} to {shown.last}" if self._window else "last window"
        allowed = f"allowed {wording.percent_text(criteria.range)} and {wording.percent_text(criteria.slope)}"
        return f"{self._rounds}; {which}: {_shares(shown.range_share, shown.slope_share)} ({allowed}){met}"

    @property
    def _rounds(self) -> str:
        return f"{wording.counted(self.run.steady.rounds, 'round')} of {format_duration(self.run.round_s * 1e9)}"

    def _criterion(self, latest: Window) -> str:
        """The criterion that the last window misses: the slope, else the range."""
        metric, criteria = wording.metric_words(self.metric), latest.criteria
        if latest.slope_share > criteria.slope:
            return f": {metric} still changing {wording.percent_text(latest.slope_share)} per window"
        if latest.range_share > criteria.range:
            return f": {metric} varying by {wording.percent_text(latest.range_share)} within a window"
        if self.run.steady.first:
            return f": {criterion_name(criteria)} is met, but the level does not last"
        return ""


def _shares(range_share: float, slope_share: float) -> str:
    return f"range {wording.percent_text(range_share)}, slope {wording.percent_text(slope_share)} of the mean"


def criterion_name(criteria: Criteria) -> str:
    """Return the name of a criterion: SNIA's, unless the study sets another."""
    same = (criteria.window, criteria.range, criteria.slope) == (SNIA.window, SNIA.range, SNIA.slope)
    return "SNIA's criterion" if same else "the criterion of the study"


class WriteCliff(Finding, kind="write cliff", topic="state"):
    """The largest lasting drop of the write rate of a run."""

    load: str
    cliff: Cliff
    """In bandwidth, bytes/s."""
    after_s: float
    after_bytes: int
    range_bytes: int | None

    def _sentence(self) -> str:
        times = f" ({self.after_bytes / self.range_bytes:.2g} times the active range)" if self.range_bytes else ""
        before, after = (wording.value_text("bandwidth", each) for each in (self.cliff.before, self.cliff.after))
        time, written = format_duration(self.after_s * 1e9), format_bytes(self.after_bytes)
        unsettled = "" if self.cliff.settled else ", and has not settled"
        return (
            f"{self.load}: write cliff after {time} and {written} written{times}, bandwidth falls from {before} to "
            f"{after}{unsettled}"
        )

    def _evidence(self) -> str:
        return f"change point of the intervals; {wording.percent_text(self.cliff.fraction)} of the rate before"


class SteadyRounds(Finding, kind="steady rounds", topic="state"):
    """One pass of a part with rounds: joint steady state of all tracking variables, and its stability."""

    load: str
    metric: str
    found: Convergence
    state: DeviceState

    @property
    def is_secondary(self) -> bool:
        """A criterion that a fresh drive meets is no steady state, which `FreshDevice` states."""
        return self.found.achieved and not _may_be_steady(self.state)

    @property
    def _windows(self) -> list[Window]:
        return [tracked.window for tracked in self.found.tracked if tracked.window]

    def _sentence(self) -> str:
        return f"{self.load}: {self._result()}"

    def _result(self) -> str:
        found, left = self.found, ""
        if found.withdrawn:
            left = f"; an earlier window, to round {found.withdrawn}, failed the closing check"
        if found.achieved:
            rounds = f"{criterion_name(self._windows[0].criteria)} met in rounds {found.first} to {found.last}{left}"
            if not found.lasts:
                what = wording.metric_words(self.metric)
                why = f"no steady state, {what} still {found.trend}" if found.trend else "no steady state, level lost"
                if found.hidden is not None and not found.trend:
                    why = f"no steady state shown, {_hidden_text(found.hidden)}"
                return f"{why}; {rounds}"
            if _may_be_steady(self.state):
                return f"steady state, {rounds}"
            return (
                f"stable on a fresh drive, {rounds}"
                if self.state == "fresh"
                else f"stable, {rounds}; device state {self.state}"
            )
        counted = wording.counted(found.rounds, "round")
        if not self._windows:
            return f"no steady state, {counted} are fewer than the {found.settings.window} of a window"
        return f"did not become steady in {counted}{left}"

    def _evidence(self) -> str:
        hold, windows = self.found.settings.hold, self._windows
        if not windows:
            return f"a window has {self.found.settings.window} rounds"
        shares = _shares(*(max(getattr(each, name) for each in windows) for name in ("range_share", "slope_share")))
        several = f", the largest of {len(windows)} tracking variables" if len(windows) > 1 else ""
        closing = f"; closing check over {wording.counted(hold, 'further round')}" if hold else ""
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
        state = states.state(each.case_ids[-1], each.repeat)
        if each.settings.sought:
            yield SteadyRounds(
                load=_load(each.levels) or f"part `{part.name}`",
                metric=each.settings.metric,
                found=each,
                state=state,
                strength="strong" if _may_be_steady(state) else "moderate",
                case_ids=tuple(each.case_ids[:1]),
                part=part.name,
            )


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
                cliff=long_run.cliff,
                after_s=long_run.cliff_s,
                after_bytes=long_run.cliff_bytes,
                range_bytes=long_run.range_bytes,
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
    outcome, steady = long_run.outcome, long_run.steady
    level = long_run.level if outcome == "steady" else None
    if outcome == "changed" and steady.earlier:
        level = Estimate(steady.earlier.mean)
    return SteadyRun(
        load=load,
        metric=long_run.tracking,
        run=long_run,
        state=state,
        level=level,
        forecast=steady.forecast if outcome in ("falling", "rising") else None,
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


def _load(levels: Mapping[str, Any]) -> str:
    return ", ".join(wording.level_words(name, level) for name, level in levels.items())


KINDS = (QuestionKind("steady_state", shares_of_peak),)
