"""Published figures, brought onto a study's factors so that a user's own can lie beside them."""

from __future__ import annotations

from typing import Any

import polars as pl

from iosonde.data import reference_file
from iosonde.findings.cells import in_scope, separated_by_results, under_own_names
from iosonde.study.model import Reference

_NOT_FACTORS = ("reference", "label", "source", "metric", "value")


def published(reference: Reference) -> pl.DataFrame:
    """Return the published values of a reference.

    Columns: `reference, label, source, metric, value` (in the metric's unit), and one column for each
    factor it maps to.
    """
    table = pl.read_csv(reference_file(reference.csv))
    chosen = table.filter(*(pl.col(column) == value for column, value in reference.where.items()))
    factors = {factor: _levels(_column(chosen, column), reference) for column, factor in reference.columns.items()}
    label = pl.col(reference.label).cast(pl.String) if reference.label in table.columns else pl.lit(reference.label)
    values = [
        chosen.select(
            reference=pl.lit(reference.name),
            label=label,
            source=pl.lit(reference.source),
            metric=pl.lit(metric),
            value=pl.col(column).cast(pl.Float64, strict=False) * reference.scales.get(column, reference.scale),
            **factors,
            **{factor: pl.lit(level) for factor, level in reference.fixed.items()},
        )
        for column, metric in reference.held.items()
    ]
    return pl.concat(values).drop_nulls(list(factors)).drop_nulls("value")


def _column(table: pl.DataFrame, name: str) -> pl.Series:
    """Return a column of a CSV, or several joined by `+`."""
    if name in table.columns:
        return table[name]
    parts = [pl.col(part).cast(pl.String).fill_null("") for part in name.split("+")]
    return table.select(pl.concat_str(parts, separator="+").alias(name))[name]


def _levels(column: pl.Series, reference: Reference) -> pl.Series:
    """Return what the study calls the values of a column; null, and so left out, where it has no name for one."""
    names = reference.values.get(column.name)
    if names is None:
        return column
    known: dict[str, Any] = {str(key): level for key, level in names.items()}
    return pl.Series(column.name, [known.get(str(value)) for value in column])


def cells(published: pl.DataFrame) -> pl.DataFrame:
    """Return published values as cells with one value each, so that every analysis can be made of them too."""
    factors = [name for name in published.columns if name not in _NOT_FACTORS]
    numbers = [name for name in factors if published.schema[name].is_numeric()]
    case_id = pl.concat_str([pl.concat_str(pl.lit(f"{name}="), pl.col(name)) for name in factors], separator="/")
    with_values = published.select(*factors, "label", case_id=case_id, values=pl.concat_list("value"))
    return with_values.sort(numbers, maintain_order=True)


def of_part(cases: pl.DataFrame, reference: Reference) -> pl.DataFrame:
    """Return the cases that a reference can lie beside."""
    return cases.filter(pl.col("part") == reference.part) if reference.part else cases


def beside(published: pl.DataFrame, cases: pl.DataFrame, summary: pl.DataFrame) -> pl.DataFrame:
    """Join published values with a user's `case_metrics` of one result set on the factors they share.

    Adds to `published`: `case_id, median, low, high, ratio` (own / published); null where there is no such case.
    """
    named = [name for name in published.columns if name not in _NOT_FACTORS]
    measured = under_own_names(cases.filter(~pl.col("control")))
    apart = separated_by_results(measured, named)
    factors = [name for name in named if name in measured.columns or name in apart]
    own = in_scope(summary, apart).select("case_id", "metric", "median", "low", "high", *apart)
    matched = measured.select("case_id", *(name for name in factors if name not in apart)).join(own, on="case_id")
    return published.join(matched, on=[*factors, "metric"], how="left", maintain_order="left").with_columns(
        ratio=pl.col("median") / pl.col("value")
    )
