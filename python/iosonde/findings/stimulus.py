"""Changes of load: stages of different loads, one after the other, each judged by its own rounds.

SNIA's cross stimulus recovery. For each change of load: the first value, the settled one, and when it was first
within the range that steady state permits around it. A load that was measured before is compared with its earlier
level: it recovers, and after what time, or it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.findings.finding import Finding, Topic
from iosonde.metrics import wording
from iosonde.metrics.steady_state import Criteria
from iosonde.metrics.sustained import LOWER_IS_BETTER, Course
from iosonde.study.model import STAGE, Level, Study
from iosonde.units import format_duration


@dataclass(frozen=True, kw_only=True)
class Change:
    """From one stage to the next."""

    before: str
    after: str
    """Labels of the stages."""
    course: Course
    """Of the stage after the change."""
    level: float
    """Where it settles: mean of its measurement window, or of its last window where it never was steady."""
    settled_s: float | None
    """When it first came within the range that steady state allows around its level; 0: from the first round."""
    earlier: str = ""
    """Label of an earlier stage of the same load; empty where there is none."""
    once: float | None = None
    """Level of that one."""
    recovered_s: float | None = None
    """When it was first back within that range around the earlier level; None if it never was."""

    @property
    def first(self) -> float:
        """The first round."""
        return float(self.course.values[0])

    @property
    def lower_is_better(self) -> bool:
        """Whether what is tracked is a latency."""
        return self.course.tracking in LOWER_IS_BETTER


@dataclass(frozen=True, kw_only=True)
class LoadChange(Finding):
    """From one stage to the next: the first value, the settled one, and the recovery of an earlier level."""

    kind: ClassVar[str] = "load change"
    topic: ClassVar[Topic] = "state"
    change: Change
    within: float
    """Relative deviation from a level that counts as being at it."""

    @property
    def settled_at_once(self) -> bool:
        """Whether the first round is at the settled level."""
        return abs(self.change.first - self.change.level) <= self.within * self.change.level

    def _sentence(self) -> str:
        change = self.change
        stage = f"`{change.after}` after `{change.before}`"
        first, level = (self._value(each) for each in (change.first, change.level))
        if self.settled_at_once:
            text = f"{stage}: {level} from the first round"
        else:
            improves = (change.level > change.first) != change.lower_is_better
            when = f"within {format_duration(change.settled_s * 1e9)}" if change.settled_s else "in the first round"
            text = f"{stage}: {'improves' if improves else 'degrades'} from {first} to {level} {when}"
        return f"{text}{self._recovery()}"

    def _evidence(self) -> str:
        steady = self.change.course.steady.achieved
        settled = "while stable" if steady else "in the last rounds, which were not stable"
        before = "" if self.change.once is None else f"{self._value(self.change.once)} before; "
        length = format_duration(self.change.course.round_s * 1e9)
        return (
            f"{before}{self._value(self.change.first)} in the first round of {length}, "
            f"{self._value(self.change.level)} {settled}"
        )

    def _recovery(self) -> str:
        change = self.change
        if change.once is None:
            return ""
        near = f"within {100 * self.within:.0f} % of `{change.earlier}`"
        if change.recovered_s == 0:
            return f"; {near} from the first round"
        if change.recovered_s is not None:
            return f"; recovers to {near} after {format_duration(change.recovered_s * 1e9)}"
        best = change.course.peak
        share = change.once / best if change.lower_is_better else best / change.once
        length = format_duration(len(change.course.values) * change.course.round_s * 1e9)
        return f"; does not recover within {length}, at best {wording.percent_text(share)} of `{change.earlier}`"

    def _value(self, value: float) -> str:
        return wording.value_text(self.change.course.tracking, value)


def find(changes: Sequence[Change]) -> Iterator[Finding]:
    """Return one finding for each change of load."""
    for change in changes:
        yield LoadChange(
            change=change,
            within=near(change.course.steady.criteria),
            strength="strong" if change.course.steady.achieved else "weak",
            case_ids=(change.course.case_id,),
            part=change.course.part,
        )


def changes(study: Study, courses: Sequence[Course], cases: pl.DataFrame) -> list[Change]:
    """Every change from one stage to another in parts that are nothing but stages, repeat by repeat."""
    if STAGE not in cases.columns:
        return []
    labels = dict(cases.select("case_id", STAGE).rows())
    return [
        change
        for part in study.parts
        if part.rounds and not part.rounds.max_rounds and _differ(part.rounds.stages)
        for repeat in dict.fromkeys(each.repeat for each in courses if each.part == part.name)
        for change in _of_pass(
            [each for each in courses if (each.part, each.repeat) == (part.name, repeat) and each.final],
            labels,
            {level.label: level for level in part.rounds.stages},
        )
    ]


def _differ(stages: Sequence[Level]) -> bool:
    return len({str(_load(stage)) for stage in stages}) > 1


def _load(stage: Level) -> dict[str, Any]:
    """What a stage sets but for how long it lasts."""
    return {name: value for name, value in sorted(stage.set.items()) if name not in ("duration", "round_length")}


def _of_pass(courses: Sequence[Course], labels: dict[str, str], stages: dict[str, Level]) -> list[Change]:
    found: list[Change] = []
    for place, course in enumerate(courses[1:], start=1):
        label, before = labels[course.case_id], courses[:place]
        alike = [
            each
            for each in before
            if label in stages
            and labels[each.case_id] in stages
            and _load(stages[labels[each.case_id]]) == _load(stages[label])
        ]
        level, same = _level(course), alike[-1] if alike else None
        once = _level(same) if same else None
        found.append(
            Change(
                before=labels[before[-1].case_id],
                after=label,
                course=course,
                level=level,
                settled_s=_reached(course, level),
                earlier=labels[same.case_id] if same else "",
                once=once,
                recovered_s=None if once is None else _recovered(course, once),
            )
        )
    return found


def _level(course: Course) -> float:
    window = course.steady.measured or course.steady.latest
    assert window, "only courses with a window are compared"
    return window.mean


def near(criteria: Criteria) -> float:
    """How far from a level counts as there: half of the range that steady state allows around it."""
    return criteria.range / 2


def _reached(course: Course, level: float) -> float | None:
    share = near(course.steady.criteria)
    return _begin(course, np.flatnonzero(np.abs(course.values - level) <= share * level))


def _recovered(course: Course, once: float) -> float | None:
    share = near(course.steady.criteria)
    lower = course.tracking in LOWER_IS_BETTER
    good = course.values <= (1 + share) * once if lower else course.values >= (1 - share) * once
    return _begin(course, np.flatnonzero(good))


def _begin(course: Course, rounds: np.ndarray[Any, np.dtype[np.int64]]) -> float | None:
    return float(rounds[0]) * course.round_s if len(rounds) else None
