"""Saturation: the smallest level of a factor that reaches 95 % of the peak along it.

The peak is the best median along the factor, wherever it lies. Uncertainty comes from the repeats: medians of resampled
runs decide anew, thousands of times, which level it is; the interval holds 95 % of these answers. Without repeats
(published figures) there is an answer and no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.findings.cells import along, groups
from iosonde.metrics.statistics import MINIMUM_REPEATS, SEED, Floats, resampled_medians

SHARE_OF_PEAK = 0.95


def saturation(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return where each combination of `by` saturates along the factor `over`.

    Columns: those of `by`; `level` and its interval `low, high`; `share` (of the resampled answers that agree with
    `level`); `value` there; `peak` and `peak_level`; `last_level` and `last_value`; `saturates` (whether it is reached
    before the last level); `levels` (as text) and `shares_of_peak`, one for each level; `repeats` (fewest of any
    level); `case_ids` of level and peak.
    """
    rows = [{**key, **_saturation(group, over)} for key, group in groups(cells, by)]
    return pl.DataFrame(rows, infer_schema_length=None)


def _saturation(group: pl.DataFrame, over: str) -> dict[str, Any]:
    levels, values = along(group, over)
    medians = np.array([np.median(repeats) for repeats in values])
    at, peak = int(_first_saturated(medians[np.newaxis, :])[0]), int(medians.argmax())
    repeats = min(len(each) for each in values)
    low, high, share = _uncertainty(values, at) if repeats >= MINIMUM_REPEATS else (None, None, None)
    case_ids = group["case_id"].to_list()
    return {
        "level": levels[at],
        "low": None if low is None else levels[low],
        "high": None if high is None else levels[high],
        "share": share,
        "value": float(medians[at]),
        "peak": float(medians[peak]),
        "peak_level": levels[peak],
        "last_level": levels[-1],
        "last_value": float(medians[-1]),
        "saturates": at < len(levels) - 1,
        "levels": [str(level) for level in levels],
        "shares_of_peak": (medians / medians.max()).tolist(),
        "repeats": repeats,
        "case_ids": [case_ids[at], case_ids[peak]],
    }


def _first_saturated(medians: Floats) -> NDArray[np.intp]:
    """Return the position of the first level that reaches the share of the peak, for each row."""
    reached = medians >= SHARE_OF_PEAK * medians.max(axis=1, keepdims=True)
    first: NDArray[np.intp] = np.argmax(reached, axis=1)
    return first


def _uncertainty(values: Sequence[Floats], at: int) -> tuple[int, int, float]:
    resampled = np.stack([resampled_medians(each, seed=SEED + i) for i, each in enumerate(values)], axis=1)
    positions = np.sort(_first_saturated(resampled))
    low, high = (int(positions[int(q * (len(positions) - 1))]) for q in (0.025, 0.975))
    return low, high, float((positions == at).mean())
