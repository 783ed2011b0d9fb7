"""Flatness: how much a metric depends on a factor at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import ratio


def flatness(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the ratio of the best to the worst level of the factor `over`, for each combination of `by`.

    Columns: those of `by`; `best_level, best, worst_level, worst`; `ratio, low, high` (best / worst); `repeats`;
    `case_ids` of both.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        medians = np.array([np.median(repeats) for repeats in values])
        best, worst = int(medians.argmax()), int(medians.argmin())
        estimate = ratio(values[best], values[worst])
        rows.append(
            {
                **key,
                "best_level": levels[best],
                "best": float(medians[best]),
                "worst_level": levels[worst],
                "worst": float(medians[worst]),
                "ratio": estimate.value,
                "low": estimate.low,
                "high": estimate.high,
                "repeats": min(len(values[best]), len(values[worst])),
                "case_ids": [group["case_id"][best], group["case_id"][worst]],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)
