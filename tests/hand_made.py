"""Frames by hand: cells, and cases with run metrics, as the analyses take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.study.model import Study

Values = Mapping[tuple[Any, ...], Sequence[float]]


def cells(factors: Sequence[str], values: Values) -> pl.DataFrame:
    rows = [
        {**dict(zip(factors, levels, strict=True)), "case_id": _case_id(factors, levels), "values": list(repeats)}
        for levels, repeats in values.items()
    ]
    return pl.DataFrame(rows, schema_overrides={"values": pl.List(pl.Float64)})


def results(
    factors: Sequence[str], metrics: Mapping[str, Values], *, part: str = "main", **parameters: Any
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `cases` and run metrics: each metric's repeats by the levels of the factors."""
    every = dict.fromkeys(levels for values in metrics.values() for levels in values)
    of_case = {"part": part, "control": False, **parameters}
    cases = [
        {"case_id": _case_id(factors, levels), **of_case, **dict(zip(factors, levels, strict=True))} for levels in every
    ]
    runs = [
        _run(_case_id(factors, levels), metric, repeat, value, part=part)
        for metric, values in metrics.items()
        for levels, repeats in values.items()
        for repeat, value in enumerate(repeats, start=1)
    ]
    return pl.DataFrame(cases), pl.DataFrame(runs)


def controls(metric: str, values: Sequence[float]) -> pl.DataFrame:
    """Return the control case's runs, evenly spread over a study."""
    rows = [_run("control", metric, repeat, value) for repeat, value in enumerate(values, start=1)]
    return pl.DataFrame(rows).with_columns(control=pl.lit(True), order=pl.int_range(pl.len()) * 10)


def study(factors: Mapping[str, Sequence[Any]], analysis: Sequence[Mapping[str, Any]], **facts: Any) -> Study:
    part = {"name": "main", "factors": {name: list(levels) for name, levels in factors.items()}}
    known = {"name": "by-hand", "title": "By hand", "question": "?", "profiles": {"quick": {}}}
    return Study.model_validate({**known, "parts": [part], "analysis": list(analysis), **facts})


def _run(case_id: str, metric: str, repeat: int, value: float, *, part: str = "main") -> dict[str, Any]:
    place = {"result_set": "", "run_id": f"{case_id}-r{repeat}", "case_id": case_id, "part": part, "control": False}
    value_of_run = {"repeat": repeat, "order": repeat, "metric": metric, "value": float(value)}
    return {**place, **value_of_run, "stream": "main", "operation": "all"}


def _case_id(factors: Sequence[str], levels: Sequence[Any]) -> str:
    return "/".join(["main", *(f"{name}={level}" for name, level in zip(factors, levels, strict=True))])
