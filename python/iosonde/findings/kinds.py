"""General kinds of findings: a ratio of two levels, a curve or range over a factor, a value of a load."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Bounds, Fact, Finding, Strength, Support, bounds_of
from iosonde.findings.question import Question
from iosonde.metrics import statistics, wording


@dataclass(frozen=True, kw_only=True)
class Opposed:
    """A ratio that is above 1 in some cells and below 1 in others."""

    smallest: tuple[str, float]
    largest: tuple[str, float]
    """Words for the cells with the smallest and the largest ratio, and these ratios."""
    above: int
    below: int
    """Cells on either side, by more than the margin, whose intervals do not contain 1."""
    cells: int

    @property
    def text(self) -> str:
        """`is higher in 3 and lower in 2 of 8 cells, from 0.50 times with 4 KiB blocks to 2.0 times with ...`."""
        low, high = (f"{wording.times_text(value)} with {words}" for words, value in (self.smallest, self.largest))
        return f"is higher in {self.above} and lower in {self.below} of {self.cells} cells, from {low} to {high}"


def opposed(words: Sequence[str], pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Opposed | None:
    """Return the extreme cells if the ratio is below 1 in one and above 1 in another, both by more than the margin.

    `words` name each cell, and `pairs` are the repeats of both of its sides. A cell whose interval contains 1 does not
    count.
    """
    estimates = [(name, statistics.ratio(top, bottom)) for name, (top, bottom) in zip(words, pairs, strict=True)]
    clear = sorted(((name, each.value) for name, each in estimates if not each.is_noise), key=lambda cell: cell[1])
    above = [cell for cell in clear if cell[1] > 1 + statistics.MARGIN]
    below = [cell for cell in clear if cell[1] < 1 / (1 + statistics.MARGIN)]
    if not above or not below:
        return None
    return Opposed(smallest=below[0], largest=above[-1], above=len(above), below=len(below), cells=len(estimates))


Decision = Literal["higher", "lower", "same", "unclear"]
_DECISIONS: Mapping[str, Decision] = {"better": "higher", "worse": "lower", "same": "same", "unclear": "unclear"}


class Ratio(Finding):
    """A metric at one level of a factor over the same metric at another."""

    metric: str
    top: str
    bottom: str
    """Words for the levels: the ratio is that of the first over the second."""
    about: str = ""
    """The load that both share, with a separator before it."""
    ratio: statistics.Estimate
    """Geometric mean over the cells."""
    bounds: Bounds = ()
    """What it is if the device may be better on one side of some cells."""
    decision: Decision
    cells: tuple[tuple[str, float], ...]
    """Words for each cell, and its ratio; the smallest ratio first."""
    repeats: int
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""
    published: float | None = None
    """Published ratio of the same comparison."""
    source: str = ""

    def _sentence(self) -> str:
        effect = f"{self._metric} {self.opposed.text if self.opposed else self._times}"
        if self.ratio.is_wide:
            return f"{self.top} against {self.bottom}{self.about}: {self._metric} too variable to compare"
        if self.decision == "unclear" and not self.opposed:
            effect = f"{self._undecided} in {self._metric}, {self._ratio_text}"
        return f"{self.top} against {self.bottom}{self.about}: {effect}{self._details()}"

    def _details(self) -> str:
        """Further values, with a separator before them."""
        return ""

    def _evidence(self) -> str:
        compared = f"{self._metric} of {self.top} over {self.bottom}: {self._times}"
        if len(self.cells) > 1:
            low, high = (wording.ratio_text(self.cells[end][1]) for end in (0, -1))
            compared += f", {wording.range_text(low, high)} in {len(self.cells)} cells"
        published = [f"published: {self.published:g} times ({self.source})"] if self.published else []
        return "; ".join([compared, f"{wording.counted(self.repeats, 'run')} each", *published])

    @property
    def _metric(self) -> str:
        return wording.metric_words(self.metric)

    @property
    def _undecided(self) -> str:
        """An interval that contains 1, or none: too few runs show neither a difference nor that there is none."""
        return "no clear difference" if self.ratio.certain else "too few runs to compare"

    @property
    def _ratio_text(self) -> str:
        return f"ratio {self._bound}{wording.ratio_estimate_text(self.ratio, unit='')}"

    @property
    def _times(self) -> str:
        return f"{self._bound}{wording.ratio_estimate_text(self.ratio)}"

    @property
    def _bound(self) -> str:
        """`at most `; empty if it is none or not even that."""
        return f"{self.bounds[0]} " if len(self.bounds) == 1 else ""

    @property
    def _spread(self) -> tuple[str, str]:
        """The cells with the smallest and the largest ratio: `0.80 with queue depth 1`."""
        low, high = (f"{wording.times_number(value)} with {words}" for words, value in (self.cells[0], self.cells[-1]))
        return low, high


Rows = Sequence[Mapping[str, Any]]
"""Cells that have two levels: levels of other factors, `levels`, and `pair` and `cases`: repeats and case of each."""


TOP, BOTTOM = 0, 1
"""Sides of `cases`."""


def compared(question: Question, kind: type[Ratio], **means: tuple[str, int]) -> Iterator[Finding]:
    """Yield the ratio of every two levels; `means` are further fields, by metric and side."""
    for key, top, bottom, rows in every_two(question):
        fields: dict[str, Any] = {
            name: question.mean(metric, [row["cases"][side] for row in rows]) for name, (metric, side) in means.items()
        }
        yield kind(
            **of_question(question, rows),
            **fields,
            top=top,
            bottom=bottom,
            about=in_parentheses(key),
            published=question.analysis.published,
            source=question.study.source,
        )


def every_two(question: Question) -> Iterator[tuple[dict[str, Any], str, str, Rows]]:
    """Yield every two levels, the later one in the study first, apart for other factors unless they are numbers."""
    for key, group in over_numbers(question):
        for first, second in pairs_of(group):
            yield key, second, first, between(group, second, first)


def pairs_of(group: Sequence[Curve]) -> list[tuple[Any, Any]]:
    """Return every two levels that a curve has, in the study's order."""
    return list(dict.fromkeys(pair for curve in group for pair in combinations(curve.levels, 2)))


def between(group: Sequence[Curve], top: Any, bottom: Any) -> Rows:
    """Return the cells that have two levels."""
    found = []
    for curve in group:
        if top in curve.levels and bottom in curve.levels:
            places = [curve.levels.index(level) for level in (top, bottom)]
            pair, cases = (tuple(of[place] for place in places) for of in (curve.values, curve.case_ids))
            found.append({**curve.key, "levels": (top, bottom), "pair": pair, "cases": cases})
    return found


def of_question(question: Question, rows: Rows, words: Sequence[str] = ()) -> dict[str, Any]:
    """Return `pooled` for the metric of a question; cells are named by their numbers, unless there are `words`."""
    words = words or [question.numbers(row) for row in rows]
    return pooled(question.analysis.metric, rows, words, question.support, question.part.name)


def pooled(metric: str, rows: Rows, words: Sequence[str], support: Support, part: str) -> dict[str, Any]:
    """Return the fields of a `Ratio` that follow from its cells, which `words` name."""
    pairs = [row["pair"] for row in rows]
    found = statistics.pooled_ratio(pairs)
    top, bottom = (any(support.is_lower_bound(row["cases"][side]) for row in rows) for side in (TOP, BOTTOM))
    ratios = [float(np.median(values) / np.median(others)) for values, others in pairs]
    return {
        "metric": metric,
        "ratio": found,
        "bounds": bounds_of(metric, top=top, bottom=bottom),
        "decision": decided(found),
        "cells": tuple(sorted(zip(words, ratios, strict=True), key=lambda cell: cell[1])),
        "repeats": min(len(values) for pair in pairs for values in pair),
        "opposed": opposed(words, pairs),
        **support.claim((case for row in rows for case in row["cases"]), found, part=part),
    }


def decided(ratio: statistics.Estimate) -> Decision:
    """Return the direction that the interval of a ratio shows; `same` if all of it is within the margin."""
    return _DECISIONS[statistics.verdict(ratio, better="higher")]


def in_parentheses(key: Mapping[str, Any], *, without: Sequence[str] = ()) -> str:
    """Name levels of a load: ` (4 jobs, YCSB A)`; empty without any."""
    words = [wording.level_words(name, level) for name, level in key.items() if name not in without]
    return f" ({', '.join(words)})" if words else ""


@dataclass(frozen=True)
class Curve:
    """The repeats of a metric at each level of a factor, in one cell of the other factors."""

    key: Mapping[str, Any]
    """Levels of the other factors."""
    levels: Sequence[Any]
    values: Sequence[statistics.Floats]
    case_ids: Sequence[str]

    @cached_property
    def medians(self) -> statistics.Floats:
        """One for each level."""
        return np.array([np.median(repeats) for repeats in self.values])

    @property
    def repeats(self) -> int:
        """Fewest of any level."""
        return min(map(len, self.values))


def curves(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> list[Curve]:
    """Return the curve along the factor `over` of each combination of `by` that has several levels of it."""
    several = [(key, group) for key, group in groups(cells, by) if group[over].n_unique() > 1]
    return [Curve(key, *along(group, over), group["case_id"].to_list()) for key, group in several]


def over_numbers(
    question: Question, numbers: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, Any], list[Curve]]]:
    """Yield the curves that differ only in levels that are numbers, or in those of some of these factors, in order."""
    factors = question.numeric if numbers is None else numbers

    def place(curve: Curve) -> list[float]:
        return [-math.inf if curve.key[name] is None else float(curve.key[name]) for name in factors]

    found: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves(question.cells(), over=question.analysis.over, by=question.by):
        rest = tuple((name, level) for name, level in curve.key.items() if name not in factors)
        found.setdefault(rest, []).append(curve)
    for rest, group in found.items():
        yield dict(rest), sorted(group, key=place)


class OverFactor(Finding):
    """A metric of one load along a factor."""

    load: str
    over: str
    metric: str
    repeats: int
    """Fewest of any level."""

    def _level(self, level: Any) -> str:
        """`queue depth 16`."""
        return wording.level_words(self.over, level)

    def _level_value(self, level: Any) -> str:
        """`16`."""
        return wording.level_value(self.over, level)

    def _value(self, value: float) -> str:
        return wording.value_text(self.metric, value)

    @property
    def _factor(self) -> str:
        return wording.factor_words(self.over)

    @property
    def _metric(self) -> str:
        return wording.metric_words(self.metric)

    @property
    def _runs(self) -> str:
        return f"{wording.counted(self.repeats, 'run')} each"


class Range(OverFactor):
    """A metric at two levels of a factor, in the cell in which they differ most."""

    first_level: Any
    first: float
    last_level: Any
    last: float
    ratio: statistics.Estimate
    """Last over first."""
    where: str
    """The cell, where there are several."""
    cells: int
    _ratio_of = "ratio"

    def _evidence(self) -> str:
        most = f", the largest of {self.cells} cells" if self.cells > 1 else ""
        return f"{self._ratio_of} {wording.ratio_estimate_text(self.ratio)}{most}; {self._runs}"


Ends = Callable[[Curve], tuple[int, int]]
"""Positions of the two levels of a curve that are compared."""


def ranges(question: Question, ends: Ends) -> Iterator[tuple[list[statistics.Estimate], Curve, dict[str, Any]]]:
    """Yield the ratios of cells that differ only in numbers; of the largest the curve, and the fields of a `Range`."""
    for key, group in over_numbers(question):
        places = [ends(curve) for curve in group]
        ratios = [
            statistics.ratio(curve.values[last], curve.values[first])
            for curve, (first, last) in zip(group, places, strict=True)
        ]
        widest = max(range(len(group)), key=lambda place: ratios[place].value)
        curve, (first, last) = group[widest], places[widest]
        case_ids = [curve.case_ids[place] for place in (first, last)]
        yield (
            ratios,
            curve,
            {
                **{"first_level": curve.levels[first], "first": float(curve.medians[first])},
                **{"last_level": curve.levels[last], "last": float(curve.medians[last])},
                "ratio": ratios[widest],
                "where": question.numbers(curve.key) if len(group) > 1 else "",
                "cells": len(group),
                "repeats": min(len(curve.values[place]) for place in (first, last)),
                **of_load(question, key, case_ids, ratios[widest]),
            },
        )


def of_load(
    question: Question,
    key: Mapping[str, Any],
    case_ids: Sequence[str],
    *estimates: statistics.Estimate | None,
    at_most: Strength = "strong",
) -> dict[str, Any]:
    """Return the fields of every finding over a factor, except `repeats`."""
    return {
        "load": question.load(key, case_ids[0]),
        "over": question.analysis.over,
        "metric": question.analysis.metric,
        **question.claim(case_ids, *estimates, at_most=at_most),
    }


class Value(Finding):
    """A value of one load."""

    load: str
    metric: str
    value: statistics.Estimate
    setting: str
    """The levels that have this value, with a preposition; empty without any."""
    repeats: int

    def _stated(self, before: str = "") -> str:
        """`4 KiB reads: at least 85.3 k IOPS at queue depth 64 (95 % CI 83.5–93.7 k IOPS)`."""
        value = wording.value_text(self.metric, self.value.value)
        interval = wording.estimate_text(self.metric, self.value).removeprefix(value)
        setting = f" {self.setting}" if self.setting else ""
        return f"{self.load}: {before}{value}{setting}{interval}"

    @property
    def _runs(self) -> str:
        return wording.counted(self.repeats, "run")


class Highest(Value):
    """The highest value of several cases, and the limits of what it shows."""

    states_verdicts = True
    maximum: statistics.Estimate
    """The same with an interval that accounts for the selection of the case among all candidates."""
    candidates: int
    lower_bound: bool
    """True if the device may be faster, by the verdicts of these runs."""
    verdicts: str
    """Verdicts of these runs other than device-limited."""
    cache_served: bool = False
    unsaturated: bool = False
    """True if the value still rose by more than 5 % at the largest level measured."""
    is_mean_of_change: bool = False
    """True if it is the mean of a run whose level did not last."""

    @property
    def highest_fact(self) -> Fact:
        """Another case may have a value that reads the same."""
        return "highest", self.part, self.metric, wording.value_text(self.metric, self.value.value)

    @property
    def _limits(self) -> list[str]:
        limits = {
            "maximum not shown": self.unsaturated,
            "cache-served": self.cache_served,
            "mean of a whole run, not shown to be steady": self.is_mean_of_change,
        }
        return [words for words, applies in limits.items() if applies]

    @property
    def _selection(self) -> str:
        return f"{wording.selection_text(self.value, self.maximum, self.candidates)}; {self._runs}"

    @property
    def _other_verdicts(self) -> str:
        return f"; {self.verdicts}" if self.verdicts else ""


def highest(
    best: Mapping[str, Any], candidates: pl.DataFrame, support: Support, *, case_ids: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of a `Highest` that follow from the best cell and all `candidates`."""
    value, maximum = (
        statistics.repeats_interval(best["values"]),
        statistics.maximum_interval(candidates["values"].to_list()),
    )
    case_ids = tuple(dict.fromkeys([best["case_id"], *case_ids]))
    return {
        "value": value,
        "maximum": maximum,
        "candidates": len(candidates),
        "repeats": len(best["values"]),
        "lower_bound": support.is_lower_bound(best["case_id"]),
        "cache_served": support.is_cache_served(best["case_id"]),
        "is_mean_of_change": best["case_id"] in support.unsteady,
        "verdicts": support.note(case_ids),
        "strength": support.strength(case_ids, value, maximum),
        "case_ids": case_ids,
    }


def best_of(cells: pl.DataFrame, *, lowest: bool = False) -> dict[str, Any]:
    """Return the cell with the largest median, or with the smallest."""
    medians = cells["values"].list.median()
    return cells.row(int((medians.arg_min() if lowest else medians.arg_max()) or 0), named=True)


def selected(best: Mapping[str, Any], candidates: pl.DataFrame) -> statistics.Estimate:
    """Return the value of the best cell, with an interval that accounts for its selection, if there are others."""
    values = candidates["values"].to_list()
    return statistics.maximum_interval(values) if len(values) > 1 else statistics.repeats_interval(best["values"])


SHARE_OF_PEAK = 0.95
"""Smallest share of a peak that counts as having reached it."""


def still_rises(best: Mapping[str, Any], lower: pl.DataFrame) -> bool:
    """Return True if a cell exceeds all cells of lower levels: by more than 5 %, and more than its repeats scatter.

    Cells have `median` and `values`. Without repeats that is not known.
    """
    if lower.is_empty():
        return False
    second = lower.sort("median", maintain_order=True).row(-1, named=True)
    rise = statistics.ratio(best["values"], second["values"])
    return bool(second["median"] < SHARE_OF_PEAK * best["median"]) and rise.above(1)
