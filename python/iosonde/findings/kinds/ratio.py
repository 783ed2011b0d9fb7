"""Ratio of a metric at two levels of a factor, pooled over all cells that have both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question
from iosonde.findings.support import Support
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, pooled_ratio, ratio, verdict

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
    ratio: Estimate
    """Geometric mean over the cells."""
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
        return f"ratio {wording.ratio_estimate_text(self.ratio, unit='')}"

    @property
    def _times(self) -> str:
        return wording.ratio_estimate_text(self.ratio)

    @property
    def _spread(self) -> tuple[str, str]:
        """The cells with the smallest and the largest ratio: `0.80 with queue depth 1`."""
        low, high = (f"{wording.times_number(value)} with {words}" for words, value in (self.cells[0], self.cells[-1]))
        return low, high


Rows = Sequence[Mapping[str, Any]]
"""Rows of `asymmetry` that have both levels, with `pair` and `cases`: repeats and case of either level."""


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
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(answers):
        for pair, _ in groups(group, ["first", "second"]):
            yield key, pair["second"], pair["first"], between(group, pair["second"], pair["first"])


def between(group: pl.DataFrame, top: Any, bottom: Any) -> Rows:
    """Return the cells that have two levels, in whichever order `asymmetry` has them."""
    found = []
    for row in group.iter_rows(named=True):
        order = slice(None, None, 1 if row["first"] == top else -1)
        if {row["first"], row["second"]} == {top, bottom}:
            pair = (row["first_values"], row["second_values"])[order]
            found.append({**row, "pair": pair, "cases": tuple(row["case_ids"][order])})
    return found


def of_question(question: Question, rows: Rows, words: Sequence[str] = ()) -> dict[str, Any]:
    """Return `pooled` for the metric of a question; cells are named by their numbers, unless there are `words`."""
    words = words or [question.numbers(row) for row in rows]
    return {**pooled(question.analysis.metric, rows, words, question.support), "part": question.part.name}


def pooled(metric: str, rows: Rows, words: Sequence[str], support: Support) -> dict[str, Any]:
    """Return the fields of a `Ratio` that follow from its cells, which `words` name."""
    pairs = [row["pair"] for row in rows]
    case_ids = tuple(dict.fromkeys(case for row in rows for case in row["cases"]))
    found = pooled_ratio(pairs)
    ratios = [float(np.median(top) / np.median(bottom)) for top, bottom in pairs]
    return {
        "metric": metric,
        "ratio": found,
        "decision": decided(found),
        "cells": tuple(sorted(zip(words, ratios, strict=True), key=lambda cell: cell[1])),
        "repeats": min(len(values) for pair in pairs for values in pair),
        "opposed": opposed(words, pairs),
        "strength": support.strength(case_ids, found),
        "case_ids": case_ids,
    }


def decided(ratio: Estimate) -> Decision:
    """Return the direction that the interval of a ratio shows; `same` if all of it is within the margin."""
    return _DECISIONS[verdict(ratio, better="higher")]


def in_parentheses(key: Mapping[str, Any], *, without: Sequence[str] = ()) -> str:
    """Name levels of a load: ` (4 jobs, YCSB A)`; empty without any."""
    words = [wording.level_words(name, level) for name, level in key.items() if name not in without]
    return f" ({', '.join(words)})" if words else ""


def asymmetry(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the ratio of every two levels of the factor `over`, for each combination of `by`.

    Columns: those of `by`; `first, second` (levels, in the study's order); `ratio, low, high` (first / second);
    `first_values, second_values` (the repeats); `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        for a, b in combinations(range(len(levels)), 2):
            found = ratio(values[a], values[b])
            rows.append(
                {
                    **key,
                    **{"first": levels[a], "second": levels[b]},
                    **{"ratio": found.value, "low": found.low, "high": found.high},
                    **{"first_values": values[a].tolist(), "second_values": values[b].tolist()},
                    "case_ids": [group["case_id"][a], group["case_id"][b]],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)
