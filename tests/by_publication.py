"""Published figures in the shape of a user's own results: one run for each case."""

from __future__ import annotations

import polars as pl

from iosonde.findings.published import published
from iosonde.planning import load
from iosonde.study.model import Level, Study


def as_results(study_name: str, reference_name: str) -> tuple[Study, pl.DataFrame, pl.DataFrame]:
    """Return the study, and `cases` and run metrics as if the study had measured the published values."""
    study = load(study_name)
    reference = next(reference for reference in study.references if reference.name == reference_name)
    table = published(reference)
    part = study.parts[0]
    case_id = pl.concat_str([pl.concat_str(pl.lit(f"{name}="), pl.col(name)) for name in part.factors], separator="/")
    table = table.with_columns(case_id=case_id, part=pl.lit(part.name), control=pl.lit(False))
    cases = table.select("case_id", "part", "control", *part.factors, *_parameters(study, table))
    constant = {"result_set": "", "repeat": 1, "stream": "main", "operation": "all"}
    of_run = {"run_id": pl.col("case_id"), "order": pl.int_range(pl.len())}
    runs = table.select("case_id", "part", "control", "metric", "value").with_columns(
        **of_run, **{name: pl.lit(value) for name, value in constant.items()}
    )
    return study, cases, runs


def _parameters(study: Study, table: pl.DataFrame) -> list[pl.Expr]:
    """Return what the measurement sets for all cases, and what each compound level sets."""
    fixed = [pl.lit(value).alias(name) for name, value in study.measurement.items() if name not in table.columns]
    compound = [
        pl.col(factor).replace_strict({level.label: level.set[name] for level in levels}).alias(name)
        for factor, levels in study.parts[0].factors.items()
        if isinstance(levels[0], Level)
        for name in levels[0].set
        for levels in [[level for level in levels if isinstance(level, Level)]]
    ]
    return [*fixed, *compound]
