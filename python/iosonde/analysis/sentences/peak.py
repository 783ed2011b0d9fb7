"""Where the peak lies: the best a load reaches along a factor, whatever the others are set to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.analysis import wording
from iosonde.analysis.catalogue import METRICS
from iosonde.analysis.cells import groups
from iosonde.analysis.finding import Finding
from iosonde.analysis.question import Question
from iosonde.analysis.saturation import SHARE_OF_PEAK
from iosonde.analysis.statistics import MINIMUM_REPEATS, median_interval


def tell(question: Question) -> Iterator[Finding]:
    """Say how high the peak is, and from which level on it is reached.

    Unlike other questions this one maximises over factors that the study does not name in `by`.
    """
    cells = question.cells().with_columns(median=pl.col("values").list.median())
    by = [name for name in question.analysis.by if name != question.analysis.over]
    if METRICS[question.analysis.metric].better != "higher" or cells.is_empty():
        return
    for key, group in groups(cells, by):
        yield _finding(question, key, group)


def _finding(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over, metric = question.analysis.over, question.analysis.metric
    rest = [name for name in question.by if name not in key]
    best = group.sort("median", maintain_order=True).row(-1, named=True)
    near = group.filter(pl.col("median") >= SHARE_OF_PEAK * best["median"])
    # Levels come in the order of the factor, so the first that is near the peak is where it is reached.
    reached = near.row(0, named=True)
    estimate = median_interval(best["values"])
    load = wording.phrase(question.words(best["case_id"], without=[over, *rest]))
    others = [wording.level_words(name, key[name]) for name in key if not question.is_worded(name)]
    load += f" ({', '.join(others)})" if others else ""
    return Finding(
        kind="peak",
        title=wording.sentence(
            f"{load} peak at {wording.value_text(metric, best['median'])},"
            f" and reach 95 % of it with {_setting(over, rest, reached)}"
        ),
        evidence=f"largest at {_setting(over, rest, best)}: {wording.estimate_text(metric, estimate)}"
        f" ({wording.counted(len(best['values']), 'run')});"
        f" {wording.value_text(metric, reached['median'])} at {_setting(over, rest, reached)}",
        strength="strong" if len(best["values"]) >= MINIMUM_REPEATS else "weak",
        case_ids=tuple(dict.fromkeys((best["case_id"], reached["case_id"]))),
        part=question.part.name,
    )


def _setting(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    main = wording.level_words(over, row[over])
    others = [wording.level_words(name, row[name]) for name in rest]
    return f"{main} at {wording.listing(others)}" if others else main
