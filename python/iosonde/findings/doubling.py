"""Gain per doubling: what each step along a factor brings, and what that is for each doubling of the factor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import ratio


def gain_per_doubling(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return one row for each step from one level of the factor `over` to the next, for each combination of `by`.

    Columns: those of `by`; `from_level, to_level`; `ratio, low, high` of the metric over that step; `gain, gain_low,
    gain_high`: the same for one doubling, ratio ^ (1 / log2(to / from)); `before, after` (the repeats), `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        for i, (lower, upper) in enumerate(pairwise(levels)):
            step, doublings = ratio(values[i + 1], values[i]), math.log2(upper / lower)
            rows.append(
                {
                    **key,
                    "from_level": lower,
                    "to_level": upper,
                    "ratio": step.value,
                    "low": step.low,
                    "high": step.high,
                    "gain": step.value ** (1 / doublings),
                    "gain_low": None if step.low is None else step.low ** (1 / doublings),
                    "gain_high": None if step.high is None else step.high ** (1 / doublings),
                    "before": values[i].tolist(),
                    "after": values[i + 1].tolist(),
                    "case_ids": group["case_id"].to_list()[i : i + 2],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)
