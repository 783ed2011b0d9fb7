"""Two result sets, case by case."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from iosonde.metrics.catalogue import METRICS
from iosonde.metrics.statistics import MARGIN, ratio, verdict

COMPARED = (
    "bandwidth",
    "iops",
    "ops_per_sec",
    *(f"completion_latency_ns_{percentile}" for percentile in ("p50", "p99", "p99_9")),
    # The chain of amplification, from the application to the media.
    *("store_write_amplification", "file_system_write_amplification", "media_write_amplification"),
)
"""What cases are compared by: rates, latencies, and how often each byte is written."""
_NOT_PARAMETERS = ("result_set", "case_id", "part", "control", "cost_s", "cost_write_bytes")


def compare(
    baseline: pl.DataFrame,
    contender: pl.DataFrame,
    *,
    baseline_cases: pl.DataFrame,
    contender_cases: pl.DataFrame,
    metrics: tuple[str, ...] = COMPARED,
    margin: float = MARGIN,
) -> pl.DataFrame:
    """Compare run metrics of two result sets, cases matched by `case_id`, which names their part and levels.

    Columns: `case_id, part, stream, operation, metric, baseline, contender` (medians), `ratio` (contender / baseline),
    `low, high` (its 95 % interval), `repeats_baseline, repeats_contender, verdict` (`better`, `worse`, `same`,
    `unclear`), `differs`: JSON of the parameters that differ although the case has the same name, as
    `{parameter: [baseline, contender]}`.
    """
    keys = ["case_id", "part", "stream", "operation", "metric"]
    ours, theirs = (_repeats(runs, keys, metrics) for runs in (baseline, contender))
    both = ours.join(theirs, on=keys, suffix="_contender", maintain_order="left")
    differences = _differences(baseline_cases, contender_cases)
    rows = [_compared(row, keys, differences, margin) for row in both.iter_rows(named=True)]
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("case_id", "part", "stream", "operation", "metric"), pl.String()),
        **dict.fromkeys(("baseline", "contender", "ratio", "low", "high"), pl.Float64()),
        **dict.fromkeys(("repeats_baseline", "repeats_contender"), pl.Int64()),
        **dict.fromkeys(("verdict", "differs"), pl.String()),
    }
)


def _compared(row: dict[str, Any], keys: list[str], differences: dict[str, str], margin: float) -> dict[str, Any]:
    before, after = row["value"], row["value_contender"]
    estimate = ratio(after, before)
    better = METRICS[row["metric"]].better
    assert better != "neither", f"`{row['metric']}` has no better and worse"
    return {
        **{key: row[key] for key in keys},
        "baseline": row["median"],
        "contender": row["median_contender"],
        "ratio": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "repeats_baseline": len(before),
        "repeats_contender": len(after),
        "verdict": verdict(estimate, better=better, margin=margin),
        "differs": differences.get(row["case_id"], "{}"),
    }


def _repeats(runs: pl.DataFrame, keys: list[str], metrics: tuple[str, ...]) -> pl.DataFrame:
    """Return the repeats of each metric that can be compared: rates and latencies of zero have no ratio."""
    chosen = runs.filter(~pl.col("control"), pl.col("metric").is_in(metrics), pl.col("value") > 0)
    return chosen.group_by(keys, maintain_order=True).agg("value", median=pl.col("value").median())


def _differences(baseline: pl.DataFrame, contender: pl.DataFrame) -> dict[str, str]:
    """Return what differs in cases of the same name, by case."""
    other = {row["case_id"]: row for row in contender.iter_rows(named=True)}
    found = {}
    for row in baseline.iter_rows(named=True):
        if (counterpart := other.get(row["case_id"])) is not None:
            names = [name for name in {**row, **counterpart} if name not in _NOT_PARAMETERS]
            pairs = {name: [row.get(name), counterpart.get(name)] for name in names}
            found[row["case_id"]] = json.dumps({name: pair for name, pair in pairs.items() if pair[0] != pair[1]})
    return found
