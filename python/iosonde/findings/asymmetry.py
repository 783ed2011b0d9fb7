"""Asymmetry: how two levels of a factor compare, such as read and write, sequential and random, buffered and direct."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import ratio


def asymmetry(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the ratio of every two levels of the factor `over`, for each combination of `by`.

    Columns: those of `by`; `first, second` (levels, in the study's order); `ratio, low, high` (first / second);
    `first_values, second_values` (the repeats); `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        case_ids = group["case_id"].to_list()
        for a, b in combinations(range(len(levels)), 2):
            estimate = ratio(values[a], values[b])
            rows.append(
                {
                    **key,
                    "first": levels[a],
                    "second": levels[b],
                    "ratio": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "first_values": values[a].tolist(),
                    "second_values": values[b].tolist(),
                    "case_ids": [case_ids[a], case_ids[b]],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)
