"""Cells: one combination of levels with its repeats; all questions are answered from cells. Words for levels of cases.

A frame of cells has a column for each factor, `case_id`, and `values`: the metric in every repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.errors import StudyError
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL, of_same_repeats, together
from iosonde.metrics.statistics import Floats
from iosonde.study.model import ROUND, STAGE, Level, Part, Study

OF_RESULTS = ("operation", "stream")
"""Separators of results besides the study's factors."""


def cells(
    runs: pl.DataFrame,
    cases: pl.DataFrame,
    *,
    part: str,
    metric: str,
    factors: Sequence[str],
    where: Mapping[str, Any] | None = None,
    positive: bool = True,
) -> pl.DataFrame:
    """Return the cells of one metric in one part of a study.

    `runs` are run metrics and `cases` the view of that name, of one result set. The whole load is taken (all streams,
    operation `all`) unless the factors name `operation` or `stream` and the study has no factor of that name. A value
    of zero (nothing completed) is left out if `positive`: it has no ratio to anything, and counts as a failure.
    """
    wanted = dict(where or {})
    names = list(dict.fromkeys([*factors, *wanted]))
    of_part = under_own_names(cases.filter(pl.col("part") == part))
    apart = separated_by_results(of_part, names)
    levels = of_part.select("case_id", *(name for name in names if name not in apart))
    measured = of_same_repeats(
        runs.filter(
            pl.col("part") == part,
            ~pl.col("control"),
            pl.col("metric").str.contains("_latency_ns_") | (pl.col("metric") == metric),
        )
    ).filter(pl.col("metric") == metric, (pl.col("value") > 0) | (not positive))
    chosen = in_scope(measured, apart).select("case_id", "repeat", "value", *apart)
    joined = levels.join(chosen, on="case_id", maintain_order="left_right")
    matching = [pl.col(name) == _level(name, level, joined.schema[name]) for name, level in wanted.items()]
    # Rounds and the stages after them are cases of one part, and what is asked of the ones is not asked of the others.
    matching += [pl.col(name).is_not_null() for name in names if name in (ROUND, STAGE)]
    return with_repeats(joined.filter(*matching), factors)


def with_repeats(rows: pl.DataFrame, factors: Sequence[str]) -> pl.DataFrame:
    """Return the cells of rows that have a `value` for each `repeat`."""
    return (
        rows.group_by([*factors, "case_id"], maintain_order=True)
        .agg(values=pl.col("value").sort_by("repeat"))
        .sort([name for name in factors if rows.schema[name].is_numeric()], maintain_order=True)
    )


def separated_by_results(cases: pl.DataFrame, factors: Sequence[str]) -> list[str]:
    """Return the factors among these that separate results without being factors of the study."""
    named = under_own_names(cases)
    return [name for name in OF_RESULTS if name in factors and (name not in named or named[name].is_null().all())]


def under_own_names(cases: pl.DataFrame) -> pl.DataFrame:
    """Return the view with factors under the names that the study gives them.

    The view calls a factor `NAME_level` where some table has a column of that name, `operation` most of all.
    """
    renamed = {name: name.removesuffix("_level") for name in cases.columns if name.endswith("_level")}
    return cases.rename({level: name for level, name in renamed.items() if name not in cases.columns})


def groups(frame: pl.DataFrame, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    if not by:
        yield {}, frame
        return
    for key, group in frame.group_by(by, maintain_order=True):
        yield dict(zip(by, key, strict=True)), group


def along(group: pl.DataFrame, factor: str) -> tuple[list[Any], list[Floats]]:
    """Return the levels of a factor with the repeats at each. The caller has separated cells that differ otherwise."""
    levels = group[factor].to_list()
    assert len(set(levels)) == len(levels), f"several cells at one level of `{factor}`: name all factors in `by`"
    return levels, [values.to_numpy() for values in group["values"]]


def in_scope(metrics: pl.DataFrame, apart: Sequence[str]) -> pl.DataFrame:
    """Keep the rows for the whole load, or for each operation or stream if these are separated."""
    if "stream" in apart:
        metrics = metrics.filter(pl.col("stream") != ALL)
    return together(metrics).filter((pl.col("operation") == ALL) != ("operation" in apart))


def _level(factor: str, level: Any, dtype: pl.DataType) -> Any:
    """Return a level as the results have it: a study file may have `4KiB` for 4096."""
    from iosonde.study.load import read_parameter
    from iosonde.study.workload import named

    if not isinstance(level, str) or not dtype.is_numeric():
        return level
    try:
        return read_parameter(named("block"), factor.rpartition(".")[2], level)
    except StudyError:
        return None


def unstated_levels(part: Part, case: Mapping[str, Any], *, stated: Container[str] = ()) -> list[str]:
    """Return words for the level of each factor with several levels, unless `stated` has all that the factor sets."""
    return [
        wording.level_words(factor, case[factor])
        for factor, levels in part.all_factors.items()
        if len(levels) > 1
        and case.get(factor) is not None
        and not all(
            name in stated for level in levels for name in (level.set if isinstance(level, Level) else [factor])
        )
    ]


def case_words(study: Study, cases: pl.DataFrame) -> dict[str, str]:
    """Return words for each case: its levels; the title of its part where it has none or another case has the same."""
    parts = {part.name: part for part in study.parts}
    rows = under_own_names(cases).to_dicts()
    levels = {
        row["case_id"]: ", ".join(unstated_levels(parts[row["part"]], row) if row["part"] in parts else [])
        for row in rows
    }
    counts = Counter(levels.values())
    titles = {row["case_id"]: _title(parts.get(row["part"]), row["case_id"]) for row in rows}
    return {
        case_id: words if words and counts[words] == 1 else ", ".join(filter(None, (titles[case_id], words)))
        for case_id, words in levels.items()
    }


def _title(part: Part | None, case_id: str) -> str:
    return part.title if part and part.title else f"`{case_id}`"
