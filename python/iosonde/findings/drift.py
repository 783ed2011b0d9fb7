"""Drift of the machine: the control case, repeated through the study.

If the results of the same case change during the study, so may those of every other, and differences between cases
measured at different times are not all theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from iosonde.metrics.registry import named_among
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import Estimate, slope

MINIMUM_CONTROLS = 4
"""Fewer control runs show nothing."""
MINIMUM_FOR_TREND = 5
"""Of fewer the interval of the change misses 0 in more than 5 % of series without a trend, by simulation."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Change and spread of a metric of the control case during the study."""

    change: Estimate
    """Change from the first run of the study to the last, as a fraction (Theil-Sen slope of the logarithms x runs)."""
    spread: float
    """(largest - smallest) / median."""
    controls: int

    @property
    def has_trend(self) -> bool:
        """True if the interval of the change excludes 0."""
        return self.controls >= MINIMUM_FOR_TREND and (self.change.above(0) or self.change.below(0))


def load_drift(runs: pl.DataFrame, *, rates: Sequence[str] = ("iops",)) -> Drift | None:
    """Return the drift of the first of these metrics, or of those that a study names, that the control case has."""
    named = named_among(runs.filter(pl.col("control"))["metric"].unique())
    found = (drift(runs, metric=metric) for metric in (*rates, *named))
    return next((each for each in found if each is not None), None)


def drift(runs: pl.DataFrame, *, metric: str) -> Drift | None:
    """Return the drift of the control case; None where it was run too seldom."""
    control = overall(runs.filter(pl.col("control"), pl.col("metric") == metric)).sort("order")
    values = control["value"].to_numpy()
    if len(values) < MINIMUM_CONTROLS or (values <= 0).any():
        return None
    median = float(control["value"].median())  # type: ignore[arg-type]  # not empty, so a number
    order = control["order"].cast(pl.Float64).to_numpy()
    position = (order - order[0]) / (order[-1] - order[0])
    return Drift(
        change=_as_fraction(slope(position, np.log(values))),
        spread=float((values.max() - values.min()) / median),
        controls=len(values),
    )


def _as_fraction(logs: Estimate) -> Estimate:
    """A change of logarithms as a fraction, which is never below -1."""
    low, high = (None if end is None else math.expm1(end) for end in (logs.low, logs.high))
    return replace(logs, value=math.expm1(logs.value), low=low, high=high)
