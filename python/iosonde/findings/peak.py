"""The peak along a factor: which level gives most, how much, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import maximum_interval, median_interval, ratio


def peak(cells: pl.DataFrame, *, over: str, by: Sequence[str] = (), better: str = "higher") -> pl.DataFrame:
    """Return the best level of the factor `over` for each combination of `by`.

    Columns: those of `by`; `level`; `value, low, high` there; `second_level` and `lead, lead_low, lead_high` (ratio of
    the best to the next best level); `repeats`; `case_ids`. `better` says whether the largest or smallest is best.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        medians = np.array([np.median(repeats) for repeats in values])
        order = np.argsort(-medians if better == "higher" else medians, kind="stable")
        best, second = int(order[0]), int(order[min(1, len(order) - 1)])
        estimate = maximum_interval(values) if better == "higher" else median_interval(values[best])
        lead = ratio(values[best], values[second])
        rows.append(
            {
                **key,
                "level": levels[best],
                "value": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "second_level": levels[second],
                "lead": lead.value,
                "lead_low": lead.low,
                "lead_high": lead.high,
                "repeats": len(values[best]),
                "case_ids": [group["case_id"][best]],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)
