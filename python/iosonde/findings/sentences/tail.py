"""How a latency percentile grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding, Strength, Untyped
from iosonde.findings.question import Question
from iosonde.findings.tails import tail_growth
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, pooled_ratio


def tell(question: Question) -> Iterator[Finding]:
    """Say from where to where a percentile grows along the factor, and whether more than the factor itself."""
    cells = question.cells()
    answers = tail_growth(cells, over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(answers):
        yield _finding(question, key, group)


def _finding(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over, metric = question.analysis.over, question.analysis.metric
    rows = group.to_dicts()
    row = max(rows, key=lambda each: each["growth"])
    growth = pooled_ratio([(each["last_values"], each["first_values"]) for each in rows])
    load = question.load(key, row["case_ids"][0])
    if len(rows) > 1:
        load = f"{load} with {question.numbers(row)}"
    first, last = (wording.value_text(metric, row[name]) for name in ("first", "last"))
    at_first, at_last = (wording.level_value(over, row[name]) for name in ("first_level", "last_level"))
    verb = "grows" if row["growth"] >= 1 else "falls"
    return Untyped(
        kind="tail",
        title=wording.sentence(
            f"{wording.metric_words(metric)} of {load} {verb} from {first} at {wording.factor_words(over)} {at_first}"
            f" to {last} at {at_last}: {wording.times_text(row['growth'])}{_in_step(over, row)}"
        ),
        note=_evidence(row, growth, rows),
        strength=_strength(row),
        case_ids=tuple(dict.fromkeys(case for each in rows for case in each["case_ids"])),
        part=question.part.name,
    )


_LOADS = {"rate": "the offered load", "load": "the offered load"}


def _in_step(over: str, row: Mapping[str, Any]) -> str:
    """Compare with the factor: in a closed loop latency beyond saturation grows in step with what is in flight."""
    if row["exponent"] is None:
        return ""
    load = _LOADS.get(over.rpartition(".")[2], "the load in flight")
    return f" for {wording.times_text(row['last_level'] / row['first_level'])} {load}"


def _strength(row: Mapping[str, Any]) -> Strength:
    if row["low"] is None:
        return "weak"
    return "strong" if row["high"] < 2 * row["low"] else "moderate"


def _evidence(row: Mapping[str, Any], growth: Estimate, rows: list[dict[str, Any]]) -> str:
    own = Estimate(row["growth"], row["low"], row["high"])
    text = f"growth {wording.ratio_estimate_text(own).removeprefix('ratio ')}"
    if len(rows) > 1:
        text += f"; over all {len(rows)} cells {wording.ratio_text(growth.value)} on average"
    return f"{text}; from {wording.counted(row['repeats'], 'run')} each"
