"""Several sessions of one system pooled: every case with an interval that includes what varies between sessions.

Repeats within a session share the state of the machine and the device at that time, so their interval shows nothing
about another session. The variance of session means, moderated over the cases of a metric (`variance.py`), does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from iosonde.comparison.cases import KEYS, sessions_by_cell
from iosonde.comparison.ratio import Sessions, Spread, run_degrees, run_weight
from iosonde.comparison.variance import SessionVariance, run_correlation, session_effects
from iosonde.errors import ResultsError
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import each_load
from iosonde.results import ResultSet

SCHEMA = pl.Schema(
    {
        **dict.fromkeys(KEYS, pl.String()),
        **dict.fromkeys(("value", "low", "high", "session_deviation"), pl.Float64()),
        **dict.fromkeys(("sessions", "repeats"), pl.Int64()),
    }
)
"""Columns of the result."""


def pool(result_sets: Sequence[ResultSet]) -> pl.DataFrame:
    """Pool result sets of one study and target, each of which is a session.

    Columns: `case_id, part, stream, operation, metric, value` (geometric mean over sessions), `low, high` (its 95 %
    interval over sessions), `session_deviation` (relative standard deviation between sessions), `sessions, repeats`.
    """
    same = {(each.plan.study_name, each.plan.profile, each.plan.target) for each in result_sets}
    if len(same) > 1:
        raise ResultsError(
            "cannot pool sessions of different studies, profiles or targets",
            where="; ".join(sorted(f"`{name}` ({profile}) on `{target}`" for name, profile, target in same)),
            hint="compare different targets with `iosonde compare`",
        )
    if len({each.simulated for each in result_sets}) > 1:
        raise ResultsError("cannot pool simulated and measured result sets")
    frames = [
        each_load(run_metrics(each)).with_columns(result_set=pl.lit(str(place), dtype=pl.String))
        for place, each in enumerate(result_sets)
    ]
    return pooled(pl.concat(frames, how="diagonal_relaxed"))


def pooled(runs: pl.DataFrame) -> pl.DataFrame:
    """Pool run metrics; each `result_set` is a session of one system."""
    count = runs["result_set"].n_unique()
    metrics = [name for name in runs["metric"].unique(maintain_order=True) if metric_of(name).better != "neither"]
    cells = {keys: each for keys, each in sessions_by_cell(runs, metrics).items() if len(each) == count > 1}
    rows = []
    correlation = run_correlation(cells.items())
    for metric in dict.fromkeys(keys[-1] for keys in cells):
        of_metric = [keys for keys in cells if keys[-1] == metric]
        effects = session_effects([[cells[keys]] for keys in of_metric], correlation=correlation)
        for keys, effect in zip(of_metric, effects, strict=True):
            rows.append({**dict(zip(KEYS, keys, strict=True)), **_row(cells[keys], effect, correlation)})
    return pl.DataFrame(rows, schema=SCHEMA)


def _row(sessions: Sessions, effect: SessionVariance, correlation: float) -> dict[str, float | int | None]:
    count = len(sessions)
    freedom = sum(len(each) - 1 for each in sessions)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in sessions) / freedom if freedom else 0.0
    spread = Spread(
        runs=within * sum(run_weight(len(each), correlation) for each in sessions) / count**2,
        run_degrees=sum(run_degrees(len(each), correlation) for each in sessions),
        sessions=effect.variance / count,
        session_degrees=effect.degrees,
    )
    estimate = spread.ratio(float(np.mean([each.mean() for each in sessions])))
    low, high = estimate.interval
    return {
        "value": estimate.value,
        "low": low,
        "high": high,
        "session_deviation": math.sqrt(effect.variance),
        "sessions": count,
        "repeats": sum(map(len, sessions)),
    }
