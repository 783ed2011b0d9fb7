"""How much a metric depends on a factor at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.flatness import flatness
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.statistics import MINIMUM_REPEATS, Estimate

FLAT = 1.10


def tell(question: Question) -> Iterator[Finding]:
    """Say whether the factor matters, for the cell along the axis where it matters most."""
    answers = flatness(question.cells(), over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(answers):
        yield _finding(question, key, group)


def _finding(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over, metric = question.analysis.over, question.analysis.metric
    row = group.sort("ratio").row(-1, named=True)
    estimate = Estimate(row["ratio"], row["low"], row["high"])
    load, factor = question.load(key, row["case_ids"][0]), wording.factor_words(over)
    where = f" (most with {question.numbers(row)})" if question.numeric and len(group) > 1 else ""
    best, worst = (
        f"{wording.value_text(metric, row[name])} at {wording.level_words(over, row[f'{name}_level'])}"
        for name in ("best", "worst")
    )
    if estimate.below(FLAT):
        title = f"{wording.metric_words(metric)} of {load} hardly depends on {factor}: within {100 * (FLAT - 1):.0f} %"
    elif estimate.above(1) or not estimate.certain:
        times = wording.times_text(row["ratio"])
        title = f"{wording.metric_words(metric)} of {load} depends on {factor}: {times} between best and worst{where}"
    else:
        title = f"Whether {wording.metric_words(metric)} of {load} depends on {factor} is unclear"
    unclear = title.startswith("Whether")
    return Untyped(
        kind="unclear" if unclear else "flatness",
        title=wording.sentence(title),
        note=f"{best}, {worst}; {wording.ratio_estimate_text(estimate)}" + ("; more repeats" if unclear else ""),
        strength="weak" if unclear or row["repeats"] < MINIMUM_REPEATS else "strong",
        case_ids=tuple(row["case_ids"]),
        part=question.part.name,
    )
