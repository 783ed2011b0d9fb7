"""Tails: how a latency percentile grows along a factor, usually queue depth.

In a closed loop latency must grow once a target is saturated (Little's law: in flight = rate x latency), so growth in
step with the factor, an exponent of 1, is no fault of the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import median_interval, ratio


def tail_growth(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return how a latency percentile grows from the first to the last level of the factor `over`.

    Columns: those of `by`; `first_level, last_level` (with values); `first, last` and `first_low, first_high, last_low,
    last_high`; `growth, low, high` (last / first); `exponent` (log growth / log of the factor's growth: 1 is in step
    with the factor; null where levels are not numbers); `first_values, last_values` (the repeats); `repeats`;
    `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        if len(levels) < 2:
            continue
        first, last, growth = median_interval(values[0]), median_interval(values[-1]), ratio(values[-1], values[0])
        rows.append(
            {
                **key,
                "first_level": levels[0],
                "last_level": levels[-1],
                "first": first.value,
                "first_low": first.low,
                "first_high": first.high,
                "last": last.value,
                "last_low": last.low,
                "last_high": last.high,
                "growth": growth.value,
                "low": growth.low,
                "high": growth.high,
                "exponent": _exponent(levels[0], levels[-1], growth.value),
                "first_values": values[0].tolist(),
                "last_values": values[-1].tolist(),
                "repeats": min(len(values[0]), len(values[-1])),
                "case_ids": [group["case_id"][0], group["case_id"][-1]],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _exponent(first: object, last: object, growth: float) -> float | None:
    numbers = [level for level in (first, last) if isinstance(level, (int, float)) and level > 0]
    return math.log(growth) / math.log(numbers[1] / numbers[0]) if len(numbers) == 2 else None
