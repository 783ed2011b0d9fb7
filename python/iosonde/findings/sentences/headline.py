"""What the target delivers: the best bandwidth, the most I/Os per second, the shortest latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding, Untyped
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import MINIMUM_REPEATS, maximum_interval, median_interval


def tell(cases: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Finding]:
    """Name the best case of each operation, over all parts of the study."""
    if "store" in cases.columns:
        return  # Of stores there is more to say (`store.py`).
    measured = _with_medians(cases, runs)
    for _, group in measured.group_by("read_fraction", maintain_order=True):
        fastest, busiest = (_largest(group.filter(pl.col("metric") == metric)) for metric in ("bandwidth", "iops"))
        # The same load twice would be the same finding twice: operations of one size have one ratio of both.
        alike = fastest and busiest and fastest["block_size"] == busiest["block_size"]
        if fastest and not alike:
            yield _best("bandwidth", fastest, _values(group, "bandwidth"))
        if busiest:
            yield _best("iops", busiest, _values(group, "iops"))
        alone = group.filter(pl.col("metric") == "completion_latency_ns_p50", pl.col("concurrency") == 1)
        if len(alone):
            shortest = alone.sort("block_size", "median", maintain_order=True).row(0, named=True)
            yield _latency(shortest, _p99(group, shortest["case_id"]))


def _largest(group: pl.DataFrame) -> dict[str, Any] | None:
    """Return the case with the largest median; of those equal to three digits the one that asks least."""
    if group.is_empty():
        return None
    rounded = pl.col("median").round_sig_figs(3)
    effort = ("block_size", "concurrency")
    return group.sort(rounded, *effort, descending=[True, False, False], maintain_order=True).row(0, named=True)


def _p99(group: pl.DataFrame, case_id: str) -> float | None:
    tail = group.filter(pl.col("case_id") == case_id, pl.col("metric") == "completion_latency_ns_p99")
    return tail["median"].item() if len(tail) else None


def _with_medians(cases: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Return one row a case and metric: its load, concurrency, and the repeats of the whole load."""
    load = ("block_size", "access", "io_mode", "read_fraction", "trim_fraction", "jobs", "queue_depth", "arrival")
    known = [name for name in load if name in cases.columns]
    missing = [pl.lit(None).alias(name) for name in load if name not in cases.columns]
    concurrency = overall(runs).filter(pl.col("metric") == "concurrency").group_by("case_id").agg(concurrency="value")
    return (
        overall(runs)
        .filter(~pl.col("control"), pl.col("value") > 0)
        .group_by("case_id", "part", "metric", maintain_order=True)
        .agg(values="value", median=pl.col("value").median())
        .join(cases.select("case_id", *known, *missing), on="case_id", maintain_order="left")
        .join(concurrency.with_columns(pl.col("concurrency").list.first()), on="case_id", how="left")
    )


def _values(group: pl.DataFrame, metric: str) -> list[Any]:
    """Return the repeats of every case that could be the best one."""
    return group.filter(pl.col("metric") == metric)["values"].to_list()


def _best(metric: str, row: Mapping[str, Any], candidates: Sequence[Any]) -> Finding:
    operation = _operation(row)
    estimate = maximum_interval(candidates)
    rate = "I/Os per second" if metric == "iops" else "bandwidth"
    return _finding(
        row,
        title=f"{operation} reach {wording.value_text(metric, row['median'])}: {_setting(row)}",
        evidence=f"the most {rate} of any case: {wording.estimate_text(metric, estimate)}",
    )


def _latency(row: Mapping[str, Any], p99: float | None) -> Finding:
    metric = "completion_latency_ns_p50"
    words = wording.load_words(row, without=["read_fraction"])
    pure = row["read_fraction"] in (0, 1)
    noun = _operation(row).removesuffix("s") if pure else "I/O"
    mix = "" if pure else f" among {_operation(row)}"
    tail = "" if p99 is None else f", p99 {wording.value_text(metric, p99)}"
    estimate = median_interval(row["values"])
    return _finding(
        row,
        title=f"A single {wording.phrase(words, with_noun=noun)}{mix} takes"
        f" {wording.value_text(metric, row['median'])} (median{tail})",
        evidence=f"one I/O in flight: {wording.estimate_text(metric, estimate)}",
    )


def _finding(row: Mapping[str, Any], *, title: str, evidence: str) -> Finding:
    repeats = len(row["values"])
    return Untyped(
        kind="headline",
        title=wording.sentence(title),
        note=f"{evidence}; {wording.counted(repeats, 'run')}",
        strength="strong" if repeats >= MINIMUM_REPEATS else "weak",
        case_ids=(row["case_id"],),
        part=row["part"],
    )


def _operation(row: Mapping[str, Any]) -> str:
    if row["read_fraction"] is None:
        return "all streams together"
    return wording.operation_words(row["read_fraction"], row["trim_fraction"] or 0.0)


def _setting(row: Mapping[str, Any]) -> str:
    """Say how: `1 MiB sequential, queue depth 16, 1 job`."""
    words = list(wording.load_words(row, without=["read_fraction"]).values())
    levels = [wording.level_words(name, row[name]) for name in ("queue_depth", "jobs") if (row[name] or 0) > 1]
    rate = [] if row["arrival"] in (None, "closed") else [f"{row['arrival']} arrivals"]
    return ", ".join([*([" ".join(words)] if words else []), *levels, *rate]) or str(row["case_id"])
