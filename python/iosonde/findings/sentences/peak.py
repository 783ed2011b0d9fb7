"""Where the peak lies: the best a load reaches along a factor, whatever the others are set to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding, Untyped
from iosonde.findings.question import Question
from iosonde.findings.saturation import SHARE_OF_PEAK
from iosonde.metrics import wording
from iosonde.metrics.catalogue import METRICS
from iosonde.metrics.statistics import MINIMUM_REPEATS, maximum_interval, median_interval, ratio


def tell(question: Question) -> Iterator[Finding]:
    """Say how high the peak is, and from which level on it is reached; of levels that are names, which is fastest.

    Unlike other questions this one maximises over factors that the study does not name in `by`.
    """
    cells = question.cells().with_columns(median=pl.col("values").list.median())
    by = [name for name in question.analysis.by if name != question.analysis.over]
    if METRICS[question.analysis.metric].better != "higher" or cells.is_empty():
        return
    tell_of = _finding if cells.schema[question.analysis.over].is_numeric() else _fastest
    for key, group in groups(cells, by):
        yield tell_of(question, key, group)


def _finding(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over, metric = question.analysis.over, question.analysis.metric
    rest = [name for name in question.by if name not in key]
    best = group.sort("median", maintain_order=True).row(-1, named=True)
    near = group.filter(pl.col("median") >= SHARE_OF_PEAK * best["median"])
    # Levels come in the order of the factor, so the first that is near the peak is where it is reached.
    reached = near.row(0, named=True)
    estimate = maximum_interval(group["values"].to_list())
    load = wording.phrase(question.words(best["case_id"], without=[over, *rest]))
    others = [wording.level_words(name, key[name]) for name in key if not question.is_worded(name)]
    load += f" ({', '.join(others)})" if others else ""
    return Untyped(
        kind="peak",
        title=wording.sentence(
            f"{load} peak at {wording.value_text(metric, best['median'])},"
            f" and reach 95 % of it with {_setting(over, rest, reached)}"
        ),
        note=f"largest at {_setting(over, rest, best)}: {wording.estimate_text(metric, estimate)}"
        f" ({wording.counted(len(best['values']), 'run')});"
        f" {wording.value_text(metric, reached['median'])} at {_setting(over, rest, reached)}",
        strength="strong" if len(best["values"]) >= MINIMUM_REPEATS else "weak",
        case_ids=tuple(dict.fromkeys((best["case_id"], reached["case_id"]))),
        part=question.part.name,
    )


def _fastest(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    """Name the level that gives most, and how far the next is behind: between names there is no way up to a peak."""
    over, metric = question.analysis.over, question.analysis.metric
    rows = group.sort("median", descending=True, maintain_order=True).to_dicts()
    best, names = rows[0], [wording.level_words(over, row[over]) for row in rows]
    lead = ratio(best["values"], rows[1]["values"]) if len(rows) > 1 else None
    load = question.load(key, best["case_id"])
    first = wording.value_text(metric, best["median"])
    if lead is None:
        ahead = f"with {names[0]}: {first}"
    elif lead.certain and not lead.above(1):
        ahead = f"with {names[0]} or {names[1]}: {first}"
    else:
        ahead = f"with {names[0]}: {first}, {wording.times_text(lead.value)} that with {names[1]}"
    estimates = (wording.estimate_text(metric, median_interval(row["values"])) for row in rows)
    sure = lead is not None and lead.certain
    return Untyped(
        kind="peak",
        title=wording.sentence(f"{load} are fastest {ahead}"),
        note="; ".join(f"{name} {estimate}" for name, estimate in zip(names, estimates, strict=True)),
        strength="strong" if sure else "weak",
        case_ids=tuple(row["case_id"] for row in rows),
        part=question.part.name,
    )


def _setting(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    main = wording.level_words(over, row[over])
    others = [wording.level_words(name, row[name]) for name in rest]
    return f"{main} at {wording.listing(others)}" if others else main
