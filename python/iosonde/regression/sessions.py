"""Result sets reduced to one value per cell and session.

A cell is one load (a case, or a stream of a case with several) and one metric: the rate (`ops_per_sec` or `iops`) and
percentiles of latency, which is the response latency where the loop is open. Values are natural logarithms, so that
differences are ratios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from iosonde.metrics.distributions import Prior, prior_of
from iosonde.metrics.metrics import repeat_correlations, run_metrics
from iosonde.metrics.registry import RATES, headline_rates
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import each_load, of_same_repeats
from iosonde.results import ResultSet

LATENCIES = ("response_latency_ns_", "completion_latency_ns_")
"""The first that a case has is compared: response latency exists only in open loop."""
TAIL = ("p99",)
COMPARABLE = (
    *("", "device-limited", "harness-limited", "network-limited", "server-limited"),
    *("server-CPU-limited", "lock-limited"),
)
"""Verdicts of runs whose rate belongs to the system; disturbed and cache-served runs decide nothing."""

Better = Literal["higher", "lower"]
CellKey = tuple[str, str]
"""Case, with its stream where it has several, and metric."""


class SessionValue(BaseModel):
    """Value of one session in a cell."""

    model_config = ConfigDict(frozen=True)
    mean_log: float
    """Mean of the natural logarithms over its runs."""
    runs: int
    run_variance: float
    """Variance of a single run's logarithm within the session, moderated over the cells of its metric; 0 with one run.
    """
    verdict: str
    """The most frequent verdict of its runs; empty where there is none (simulated devices)."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One result set."""

    name: str
    values: Mapping[CellKey, SessionValue]
    parameters: Mapping[str, Mapping[str, object]]
    """Of each case."""
    correlation: float = 0.0
    """Of consecutive repeats, pooled over the cases."""


def better(metric: str) -> Better:
    """Return `higher` or `lower`, whichever is better for a metric."""
    return "lower" if metric.startswith(LATENCIES) or metric_of(metric).better == "lower" else "higher"


def percentile_of(metric: str) -> str:
    """Return the percentile that a latency is, such as `p99`; empty of other metrics."""
    return metric.partition("_ns_")[2] if metric.startswith(LATENCIES) else ""


def session_of(result_set: ResultSet, name: str, *, percentiles: Sequence[str] = TAIL) -> Session:
    """Reduce a result set to its session values."""
    verdicts = {record.run_id: record.verdict.kind if record.verdict else "" for record in result_set.records()}
    runs = run_metrics(result_set)
    parameters = {case.case_id: case.parameters for case in result_set.known_cases() if not case.control}
    loads = named_loads(runs).filter(~pl.col("control")).select("case_id", "load").unique()
    return Session(
        name=name,
        values=session_values(runs, verdicts, percentiles=percentiles),
        parameters={**parameters, **{load: parameters[case_id] for case_id, load in loads.iter_rows()}},
        correlation=max(repeat_correlations(runs).values(), default=0.0),
    )


def named_loads(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of each load with its name, `load`: the case, and its stream where the case has several."""
    loads = each_load(runs)
    several = pl.col("stream").n_unique().over("case_id") > 1
    name = pl.when(several).then(pl.format("{} ({})", "case_id", "stream")).otherwise("case_id")
    return loads.with_columns(load=name)


def session_values(
    runs: pl.DataFrame, verdicts: Mapping[str, str], *, percentiles: Sequence[str] = TAIL
) -> dict[CellKey, SessionValue]:
    """Return the value of each cell from run metrics, control runs excluded.

    Cases of several result sets start with the name of theirs and a line break.
    """
    comparable = named_loads(of_same_repeats(runs.filter(~pl.col("control"))))
    chosen = comparable.filter(pl.col("value") > 0)
    named = [name for name in headline_rates(chosen["metric"]) if name not in RATES]
    of_commands = chosen.filter(pl.col("metric").is_in(named))
    latencies = [
        _first_of(chosen, [f"{latency}{each}" for latency in LATENCIES]) for each in dict.fromkeys(percentiles)
    ]
    compared = pl.concat([_first_of(chosen, RATES), *latencies, of_commands])
    grouped = compared.group_by("load", "metric", maintain_order=True).agg(
        pl.col("value").sort_by("order").log().alias("logs"), pl.col("run_id")
    )
    load = pl.col("load")
    of_set = pl.when(load.str.contains("\n")).then(load.str.split("\n").list.first()).otherwise(pl.lit(""))
    grouped = grouped.with_columns(result_set=of_set)
    priors = {
        key: prior_of([each.to_numpy() for each in group["logs"]])
        for key, group in grouped.group_by("result_set", "metric")
    }
    return {
        (row["load"], row["metric"]): _session_value(
            row["logs"], row["run_id"], verdicts, priors[row["result_set"], row["metric"]]
        )
        for row in grouped.iter_rows(named=True)
    }


def _first_of(runs: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Keep, of each case, the rows of the first of the metrics that it has."""
    rank = pl.col("metric").replace_strict({metric: place for place, metric in enumerate(metrics)}, default=None)
    return runs.filter(rank.is_not_null()).filter(rank == rank.min().over("load"))


def _session_value(
    logs: Sequence[float], run_ids: Iterable[str], verdicts: Mapping[str, str], prior: Prior | None
) -> SessionValue:
    sample = np.asarray(logs)
    counted = Counter(verdicts.get(run_id, "") for run_id in run_ids)
    variance = np.array([sample.var(ddof=1) if len(sample) > 1 else 0.0])
    if prior and len(sample) > 1:
        variance, _ = prior.moderated(variance, len(sample) - 1)
    return SessionValue(
        mean_log=float(sample.mean()),
        runs=len(sample),
        run_variance=float(variance[0]),
        verdict=counted.most_common(1)[0][0],
    )
