"""What a doubling brings: steps that bring nothing, and how far doubling pays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.doubling import gain_per_doubling
from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import MARGIN, MINIMUM_REPEATS, Estimate, pooled_ratio

NEARLY_DOUBLE = 1.8
PAYS = 1.1
"""A step that gains a tenth is worth naming one before it that gains nothing."""


@dataclass(frozen=True)
class _Step:
    lower: Any
    upper: Any
    pooled: Estimate
    rows: pl.DataFrame


def tell(question: Question) -> Iterator[Finding]:
    """Say which steps gain nothing although later ones do, and up to where doubling nearly doubles."""
    over = question.analysis.over
    cells = question.cells()
    if not cells.schema[over].is_numeric() or cells[over].n_unique() < 2:
        return
    for key, group in question.along_axis(gain_per_doubling(cells, over=over, by=question.by)):
        steps = [_step(rows) for _, rows in groups(group, ["from_level", "to_level"])]
        load = question.load(key, group["case_ids"][0][0])
        yield from _without_gain(question, load, steps)
        yield from _scaling(question, load, steps)


def _step(rows: pl.DataFrame) -> _Step:
    pooled = pooled_ratio([(row["after"], row["before"]) for row in rows.iter_rows(named=True)])
    return _Step(rows["from_level"][0], rows["to_level"][0], pooled, rows)


def _without_gain(question: Question, load: str, steps: Sequence[_Step]) -> Iterator[Finding]:
    """Steps that bring nothing before one that does; those after the last gain are saturation's to tell."""
    for i, step in enumerate(steps):
        pays_later = any(later.pooled.above(PAYS) for later in steps[i + 1 :])
        if pays_later and (found := _stretch_without_gain(question, step)) is not None:
            yield _no_faster(question, load, step, found)


def _stretch_without_gain(question: Question, step: _Step) -> tuple[pl.DataFrame, Estimate] | None:
    """Return the cells that together gain nothing: all of the axis, else as much of either end as holds."""
    size = len(step.rows)
    smallest = 1 if size == 1 else max(3, size // 3)
    stretches = [step.rows]
    for length in range(size - 1, smallest - 1, -1):
        stretches += [step.rows.head(length), step.rows.tail(length)]
    for rows in stretches:
        pooled = pooled_ratio([(row["after"], row["before"]) for row in rows.iter_rows(named=True)])
        if pooled.below(1 + MARGIN) and float(rows["ratio"].max()) <= 1 + 2 * MARGIN:  # type: ignore[arg-type]  # numbers
            return rows, pooled
    return None


def _no_faster(question: Question, load: str, step: _Step, found: tuple[pl.DataFrame, Estimate]) -> Finding:
    rows, pooled = found
    over, axis = question.analysis.over, question.axis
    upper, lower = wording.level_words(over, step.upper), wording.level_value(over, step.lower)
    where = "" if axis is None else wording.range_words(axis, step.rows[axis].to_list(), rows[axis].to_list())
    slower = "slower than" if pooled.below(1 / (1 + MARGIN)) else "no faster than"
    return Untyped(
        kind="doubling",
        title=wording.sentence(f"{upper} is {slower} {lower} for {load}{where}: {wording.ratio_estimate_text(pooled)}"),
        note=_evidence(question, rows),
        strength="strong" if _repeats(rows) >= MINIMUM_REPEATS else "moderate",
        case_ids=_case_ids(rows),
        part=question.part.name,
    )


def _scaling(question: Question, load: str, steps: Sequence[_Step]) -> Iterator[Finding]:
    """Say how far doubling the factor nearly doubles the metric: the longest run of such steps."""
    good = [_gain(step).above(NEARLY_DOUBLE) for step in steps]
    begin, end = _longest(good)
    if end == begin:
        yield from _modest(question, load, steps)
        return
    run = steps[begin:end]
    over = question.analysis.over
    value, low, high = (_mean_gain(run, name) for name in ("value", "low", "high"))
    gain = Estimate(value, low, high)
    first, last = (wording.level_value(over, level) for level in (run[0].lower, run[-1].upper))
    after = f", then gain {_gain(steps[end]).value:.2f} times" if end < len(steps) else ""
    words = wording.metric_words(question.analysis.metric)
    yield Untyped(
        kind="doubling",
        title=wording.sentence(
            f"{load} nearly double in {words} with each doubling of {wording.factor_words(over)}"
            f" from {first} to {last} ({gain.value:.2f} times){after}"
        ),
        note=f"gain per doubling {wording.ratio_estimate_text(gain).removeprefix('ratio ')}",
        strength="strong" if min(_repeats(step.rows) for step in run) >= MINIMUM_REPEATS else "moderate",
        case_ids=_case_ids(pl.concat([step.rows for step in run])),
        part=question.part.name,
    )


def _modest(question: Question, load: str, steps: Sequence[_Step]) -> Iterator[Finding]:
    """Say what doubling brings where it never nearly doubles: in the step that brings most."""
    best = max(steps, key=lambda step: _gain(step).value)
    gain = _gain(best)
    if not gain.above(1 + MARGIN):
        return
    over, words = question.analysis.over, wording.metric_words(question.analysis.metric)
    lower, upper = (wording.level_value(over, level) for level in (best.lower, best.upper))
    yield Untyped(
        kind="doubling",
        title=wording.sentence(
            f"a doubling of {wording.factor_words(over)} brings {load} at most {gain.value:.2f} times the {words}"
            f" (from {lower} to {upper})"
        ),
        note=f"gain per doubling {wording.ratio_estimate_text(gain).removeprefix('ratio ')}; "
        + ", ".join(f"{wording.level_value(over, step.upper)}: {_gain(step).value:.2f}" for step in steps),
        strength="strong" if _repeats(best.rows) >= MINIMUM_REPEATS else "moderate",
        case_ids=_case_ids(best.rows),
        part=question.part.name,
    )


def _gain(step: _Step) -> Estimate:
    """Return a step's pooled ratio for one doubling; levels need not double."""
    power = 1 / _doublings(step)
    low, high = (None if end is None else end**power for end in (step.pooled.low, step.pooled.high))
    return Estimate(step.pooled.value**power, low, high)


def _mean_gain(run: Sequence[_Step], name: str) -> float:
    """Return the gain per doubling over several steps; its interval is at most as wide as that of their ends."""
    product, doublings = 1.0, 0.0
    for step in run:
        product *= getattr(step.pooled, name)
        doublings += _doublings(step)
    return float(product ** (1 / doublings))


def _doublings(step: _Step) -> float:
    return math.log2(step.upper / step.lower)


def _longest(flags: Sequence[bool]) -> tuple[int, int]:
    best, begin = (0, 0), 0
    for i, flag in enumerate([*flags, False]):
        if not flag:
            best = max(best, (begin, i), key=lambda span: span[1] - span[0])
            begin = i + 1
    return best


def _evidence(question: Question, rows: pl.DataFrame) -> str:
    repeats = _repeats(rows)
    if len(rows) == 1:
        return f"from {wording.counted(repeats, 'run')} each"
    low, high = (wording.ratio_text(float(end)) for end in (rows["ratio"].min(), rows["ratio"].max()))  # type: ignore[arg-type]
    kind = f"{repeats} runs each" if repeats >= MINIMUM_REPEATS else "interval over these, for want of repeats"
    return f"{low}..{high} in {len(rows)} cells ({kind})"


def _repeats(rows: pl.DataFrame) -> int:
    return min(len(values) for column in ("before", "after") for values in rows[column])


def _case_ids(rows: pl.DataFrame) -> tuple[str, ...]:
    return tuple(dict.fromkeys(case for cases in rows["case_ids"] for case in cases))
