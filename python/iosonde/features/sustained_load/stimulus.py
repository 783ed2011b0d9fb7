"""Changes of load: stages of different loads, one after the other, each judged by its own rounds.

SNIA's cross stimulus recovery. For each change of load: the first value, the settled one, and when it was first
within the range that steady state permits around it. A load that was measured before is compared with its earlier
level: it recovers, and after what time, or it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from iosonde.findings.finding import Finding
from iosonde.metrics import wording
from iosonde.metrics.statistics import Floats
from iosonde.metrics.steady_state import Criteria
from iosonde.metrics.sustained import LOWER_IS_BETTER, LongRun
from iosonde.study.model import STAGE, Level, Study
from iosonde.units import format_duration


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


def find(study: Study, long_runs: Sequence[LongRun], cases: pl.DataFrame) -> list[LoadChange]:
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
