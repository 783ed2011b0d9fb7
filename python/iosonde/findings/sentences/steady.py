"""Whether steady state was achieved, when, and what was left of the peak."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.convergence import Convergence, convergences
from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.metrics.steady_state import CLIFF, Criteria
from iosonde.metrics.sustained import Course
from iosonde.study.model import STAGE, Part
from iosonde.units import format_bytes, format_duration


def tell_rounds(part: Part, cases: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Finding]:
    """Say of every pass of a part with rounds whether it came to steady state."""
    for each in convergences(part, cases, runs):
        if each.sought:
            yield _of_pass(part, each)


def tell_courses(courses: Sequence[Course], cases: pl.DataFrame, parts: Sequence[Part]) -> Iterator[Finding]:
    """Say of every run that is judged by its own rounds when it was steady, and what was left of the peak."""
    names = {part.name: list(part.all_factors) for part in parts}
    first = {(course.part, course.repeat): course.case_id for course in reversed(courses)}
    for course in courses:
        row = cases.row(by_predicate=pl.col("case_id") == course.case_id, named=True)
        found = {name: row.get(name, row.get(f"{name}_level")) for name in names.get(course.part, [])}
        levels = {name: level for name, level in found.items() if level is not None}
        load = _load(levels) or f"part `{course.part}`"
        yield _of_run(course, load)
        yield from _leaving(course, load)
        # A drop within a later stage is what the stage before has left, and no write cliff.
        is_fresh = row.get(STAGE) is None or first[course.part, course.repeat] == course.case_id
        if is_fresh and course.cliff and course.cliff_s is not None and course.cliff_bytes is not None:
            yield Untyped(
                kind="steady",
                title=wording.sentence(
                    f"the write cliff of {load} comes after "
                    f"{format_duration(course.cliff_s * 1e9)} and {format_bytes(course.cliff_bytes)}{_ranges(course)}"
                ),
                note=f"bandwidth falls from {wording.value_text('bandwidth', course.cliff.before)} to "
                f"{wording.value_text('bandwidth', course.cliff.after)}, "
                f"{wording.percent_text(course.cliff.fraction)} of what it was (change point of the intervals)",
                strength="moderate",
                case_ids=(course.case_id,),
                part=course.part,
            )


def tell(question: Question) -> Iterator[Finding]:
    """Say over a factor what is left of the peak in steady state, from the least to the most."""
    over, metric = question.analysis.over, question.analysis.metric
    for key, group in question.over_numbers(question.cells()):
        levels = group.select(over, "values").rows()
        if len(levels) < 2:
            continue
        texts = [
            f"{wording.percent_text(float(pl.Series(values).median()))} at {wording.level_words(over, level)}"  # type: ignore[arg-type]
            for level, values in levels
        ]
        first, last = texts[0], texts[-1]
        load = _load({name: level for name, level in key.items() if name != over}) or "the load"
        what = "steady state" if metric == "steady_fraction" else "the level of the last rounds"
        yield Untyped(
            kind="steady",
            title=wording.sentence(f"{what} of {load} is at {first} and {last} of the peak"),
            note="; ".join(texts),
            strength="moderate" if min(len(values) for _, values in levels) >= MINIMUM_REPEATS else "weak",
            case_ids=tuple(group["case_id"].to_list()),
            part=question.part.name,
        )


def _of_run(course: Course, load: str) -> Finding:
    window, metric = course.steady.measured, course.tracking
    if window is None:
        latest = course.steady.latest
        length = format_duration(course.steady.rounds * course.round_s * 1e9)
        title = f"Steady state was not achieved by {load} within {length}"
        evidence = (
            f"in the last {len(latest.values)} rounds range {wording.percent_text(latest.range_share)} of the mean, "
            f"slope {wording.percent_text(latest.slope_share)}; {_allowed(latest.criteria)}"
            if latest
            else f"{wording.counted(course.steady.rounds, 'round')} are too few for a window of "
            f"{course.steady.criteria.window}"
        )
        return Untyped(
            kind="steady",
            title=wording.sentence(title),
            note=evidence,
            strength="strong",
            case_ids=(course.case_id,),
            part=course.part,
        )
    level = course.level
    interval = (
        f", 95 % interval {wording.value_text(metric, level.low)}..{wording.value_text(metric, level.high)}"
        if level and level.low is not None and level.high is not None
        else ""
    )
    end = format_duration(window.last * course.round_s * 1e9)
    fraction = wording.percent_text(course.fraction(window.mean))
    return Untyped(
        kind="steady",
        title=wording.sentence(
            f"{load} is steady after {end} at {wording.value_text(metric, window.mean)}, {fraction} of its best round"
        ),
        note=f"rounds {window.first} to {window.last} of {format_duration(course.round_s * 1e9)}: range "
        f"{wording.percent_text(window.range_share)}, slope {wording.percent_text(window.slope_share)} of the mean"
        f" ({_allowed(window.criteria)}){interval}",
        strength="moderate" if course.steady.left else "strong",
        case_ids=(course.case_id,),
        part=course.part,
    )


def _leaving(course: Course, load: str) -> Iterator[Finding]:
    """Say when a run that was steady was so no more, what it fell to or rose to, and whether it came to rest there."""
    steady, metric = course.steady, course.tracking
    if not (steady.left and steady.first and steady.latest):
        return
    before, again = steady.first.mean, steady.measured if steady.came_back else None
    after = again.mean if again else float(course.values[-1])
    rest = f"steady again since round {again.first}" if again else "not steady again until the end"
    yield Untyped(
        kind="steady",
        title=wording.sentence(
            f"{load} leaves steady state after {format_duration((steady.left - 1) * course.round_s * 1e9)}: from "
            f"{wording.value_text(metric, before)} to {wording.value_text(metric, after)}"
            + (", where it is steady again" if steady.came_back else "")
        ),
        note=f"rounds {steady.first.first} to {steady.first.last} were steady, and the window that ends with round "
        f"{steady.left} of {steady.rounds} is not; {rest}",
        strength="strong" if after / before < CLIFF or after / before > 1 / CLIFF else "moderate",
        case_ids=(course.case_id,),
        part=course.part,
    )


def _of_pass(part: Part, each: Convergence) -> Finding:
    load = _load(each.levels)
    of = f" of {load}" if load else f" of part `{part.name}`"
    windows = [tracked.window for tracked in each.tracked if tracked.window]
    worst_range = max((window.range_share for window in windows), default=0.0)
    worst_slope = max((window.slope_share for window in windows), default=0.0)
    measured = f"range {wording.percent_text(worst_range)}, slope {wording.percent_text(worst_slope)} of the mean"
    several = f", the worst of {len(windows)} tracking variables" if len(windows) > 1 else ""
    if each.achieved:
        title = f"steady state{of} was achieved in rounds {each.first} to {each.last}"
        evidence = f"{wording.metric_words(each.metric)}: {measured}{several}"
    elif windows:
        title = f"steady state{of} was not achieved within {wording.counted(each.rounds, 'round')}"
        evidence = f"{wording.metric_words(each.metric)} in the last window: {measured}{several}"
    else:
        title = f"steady state{of} was not achieved: {wording.counted(each.rounds, 'round')} are too few"
        evidence = f"a window has {part.rounds.window if part.rounds else 5} rounds"
    return Untyped(
        kind="steady",
        title=wording.sentence(title),
        note=evidence,
        strength="strong",
        case_ids=tuple(each.case_ids[:1]),
        part=part.name,
    )


def _ranges(course: Course) -> str:
    """What was moved until the cliff, in capacities: what SNIA's write saturation is drawn over."""
    if not course.range_bytes or course.cliff_bytes is None:
        return ""
    return f" ({course.cliff_bytes / course.range_bytes:.2g} times the active range)"


def _allowed(criteria: Criteria) -> str:
    return f"allowed {wording.percent_text(criteria.range)} and {wording.percent_text(criteria.slope)}"


def _load(levels: Mapping[str, Any]) -> str:
    return ", ".join(wording.level_words(name, level) for name, level in levels.items())
