"""A metric along a factor: its curve in each cell, and the range that it covers between two levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Strength
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, Floats, ratio


@dataclass(frozen=True)
class Curve:
    """The repeats of a metric at each level of a factor, in one cell of the other factors."""

    key: Mapping[str, Any]
    """Levels of the other factors."""
    levels: Sequence[Any]
    values: Sequence[Floats]
    case_ids: Sequence[str]

    @cached_property
    def medians(self) -> Floats:
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


def over_numbers(question: Question) -> Iterator[tuple[dict[str, Any], list[Curve]]]:
    """Yield the curves that differ only in levels that are numbers, in their order."""
    return _together(question, question.numeric)


def along_axis(question: Question) -> Iterator[tuple[dict[str, Any], list[Curve]]]:
    """Yield the curves that differ only along the axis of a question, in its order."""
    return _together(question, [question.axis] if question.axis else [])


def _together(question: Question, factors: Sequence[str]) -> Iterator[tuple[dict[str, Any], list[Curve]]]:
    found: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves(question.cells(), over=question.analysis.over, by=question.by):
        rest = tuple((name, level) for name, level in curve.key.items() if name not in factors)
        found.setdefault(rest, []).append(curve)
    for rest, group in found.items():
        yield dict(rest), sorted(group, key=lambda curve: [_place(curve.key[name]) for name in factors])


def _place(level: Any) -> float:
    return -math.inf if level is None else float(level)


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
    ratio: Estimate
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


def ranges(question: Question, ends: Ends) -> Iterator[tuple[list[Estimate], dict[str, Any]]]:
    """Yield the ratios of all cells that differ only in numbers, and the fields of a `Range` for the largest."""
    for key, group in over_numbers(question):
        places = [ends(curve) for curve in group]
        ratios = [
            ratio(curve.values[last], curve.values[first]) for curve, (first, last) in zip(group, places, strict=True)
        ]
        widest = max(range(len(group)), key=lambda place: ratios[place].value)
        curve, (first, last) = group[widest], places[widest]
        case_ids = [curve.case_ids[place] for place in (first, last)]
        yield (
            ratios,
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
    *estimates: Estimate | None,
    at_most: Strength = "strong",
) -> dict[str, Any]:
    """Return the fields of every finding over a factor, except `repeats`."""
    return {
        "load": question.load(key, case_ids[0]),
        "over": question.analysis.over,
        "metric": question.analysis.metric,
        **question.claim(case_ids, *estimates, at_most=at_most),
    }
