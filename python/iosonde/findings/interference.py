"""Interference: how one stream slows others, and how soon they recover; streams with a limited time (`active`).

A measurement then has three parts: before, during and after. Intervals across a border belong to none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding
from iosonde.metrics import wording
from iosonde.metrics.metrics import interval_metrics
from iosonde.metrics.scopes import ALL, percentiles
from iosonde.metrics.statistics import MINIMUM_REPEATS, Estimate, ratio
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.workload import streams_of
from iosonde.units import format_duration, parse_duration

RECOVERED = 1.5
"""A stream has recovered when its mean latency is at most this many times what it was before,"""
STAYS = 3
"""and stays there for this many intervals."""
PERCENTILE = {"p99": 990_000}


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One run."""

    before_ns: float | None
    """p99 latency; None with too few samples."""
    during_ns: float | None
    recovered_after_ns: float | None
    """Time from the end of the disturbance to the first recovered interval; None without recovery."""
    judged: bool = True
    """True if that could be measured: the latency before is known, and enough intervals follow the disturbance."""


class Interference(Finding, kind="interference", topic="interference"):
    """p99 latency of a stream before and while others load the target for a limited time, and its recovery."""

    levels: Mapping[str, Any]
    disturbing: Sequence[str]
    disturbed: str
    latency: str
    """`response_latency`, or `completion_latency` in a closed loop."""
    interval_ns: int
    rest_ns: int
    """Time between the ends of disturbance and measurement."""
    runs: Sequence[Recovery]

    @property
    def before_ns(self) -> float | None:
        return self._median([run.before_ns for run in self.runs])

    @property
    def during_ns(self) -> float | None:
        return self._median([run.during_ns for run in self.runs])

    @staticmethod
    def _median(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return median(known) if known else None

    @property
    def change(self) -> Estimate | None:
        """p99 latency during over before, of the runs that have both; None if there is none."""
        both = [(run.during_ns, run.before_ns) for run in self.runs if run.during_ns and run.before_ns]
        return ratio(*zip(*both, strict=True), paired=True) if both else None

    @property
    def recovered_after_ns(self) -> float | None:
        """The middle of all runs that were judged; None if half of them or more did not recover."""
        after = sorted(run.recovered_after_ns for run in self._judged if run.recovered_after_ns is not None)
        return after[len(self._judged) // 2] if 2 * len(after) > len(self._judged) else None

    def _sentence(self) -> str:
        metric = f"{self.latency}_ns_p99"
        levels = [wording.level_words(name, level) for name, level in self.levels.items()]
        load = f" ({', '.join(levels)})" if levels else ""
        what = f"{wording.metric_words(metric)} of `{self.disturbed}`"
        by = f"under load from {wording.listing([f'`{name}`' for name in self.disturbing])}{load}"
        if self.during_ns is None:
            return f"{what} {by}: too few samples"
        during = wording.value_text(metric, self.during_ns)
        if self.before_ns is None:
            return f"{what} {by}: {during}; {self._recovery()}"
        before, times = wording.value_text(metric, self.before_ns), wording.times_text(self.during_ns / self.before_ns)
        if self.change and self.change.is_noise:
            return f"no statistically clear change in {what} {by}: {before} before, {during} during; {self._recovery()}"
        verb = "rises" if self.during_ns >= self.before_ns else "falls"
        return f"{what} {verb} from {before} to {during} ({times}) {by}; {self._recovery()}"

    def _evidence(self) -> str:
        change = self.change
        unclear = f"; during over before {wording.ratio_estimate_text(change)}" if change and change.is_noise else ""
        return (
            f"case `{self.case_ids[0]}`, {wording.counted(len(self.runs), 'run')}{unclear}; recovered: mean latency at "
            f"most {RECOVERED:g} times the value before, for {STAYS} intervals of {format_duration(self.interval_ns)}"
        )

    @property
    def _judged(self) -> list[Recovery]:
        return [run for run in self.runs if run.judged]

    def _recovery(self) -> str:
        if not self._judged:
            return "recovery not measured"
        after = self.recovered_after_ns
        if after is None:
            return f"no recovery within {format_duration(self.rest_ns)} afterwards"
        if after < self.interval_ns:
            return f"recovered within {format_duration(self.interval_ns)} afterwards"
        return f"recovered {format_duration(after)} afterwards"


def disturbances(results: ResultSet) -> list[Interference]:
    """Return every case with a stream that is disturbed by others, with all of its complete runs."""
    records = [record for record in results.records() if record.outcome == "complete" and _windows(record)]
    cases = dict.fromkeys(record.case_id for record in records)
    return [
        disturbance
        for case_id in cases
        for disturbance in _of_case(results, [record for record in records if record.case_id == case_id])
    ]


def _of_case(results: ResultSet, records: Sequence[Record]) -> Iterator[Interference]:
    first = records[0]
    windows = _windows(first)
    streams = [stream for stream in streams_of(first.spec["workload"]) if stream["name"] not in windows]
    run_ids = [record.run_id for record in records]
    for stream in streams:
        latency = "completion_latency" if stream["arrival"]["kind"] == "closed" else "response_latency"
        timed = _timed(results, run_ids, stream["name"], latency, first)
        yield Interference(
            levels=first.levels,
            disturbing=list(windows),
            disturbed=stream["name"],
            latency=latency,
            interval_ns=first.spec["workload"]["interval_ns"],
            rest_ns=timed["rest_ns"].max() or 0,  # type: ignore[arg-type]
            runs=list(_recoveries(results, run_ids, stream["name"], latency, timed)),
            strength="strong" if len(records) >= MINIMUM_REPEATS else "weak",
            case_ids=(first.case_id,),
            part=first.part,
        )


def _windows(record: Record) -> Mapping[str, tuple[int, int]]:
    """Begin and end of each stream's time, in nanoseconds of the measurement; of those that come to an end once."""
    parameters: Mapping[str, Any] = record.parameters
    names = [stream["name"] for stream in streams_of(record.spec["workload"])]
    texts = {name: parameters.get(f"{name}.active", parameters.get("active")) for name in names}
    windows = {name: text.split("-") for name, text in texts.items() if text and " every " not in text}
    return {name: (parse_duration(begin), parse_duration(end)) for name, (begin, end) in windows.items() if end}


def _timed(results: ResultSet, run_ids: Sequence[str], stream: str, latency: str, record: Record) -> pl.DataFrame:
    """The intervals of a stream in order: mean latency, place, and start after the end."""
    windows = _windows(record).values()
    begin, end = min(begin for begin, _ in windows), max(end for _, end in windows)
    table = interval_metrics(results, run_ids=run_ids, metrics=(f"{latency}_ns_mean", "operations"))
    begins = {run["run_id"]: run["measure_start_ns"] for run in results.runs.to_dicts()}
    return (
        table.filter(pl.col("phase") == "measure", pl.col("stream") == stream, pl.col("operation") == ALL)
        .pivot(on="metric", index=["run_id", "interval", "begin_ns", "end_ns"], values="value")
        .with_columns(zero=pl.col("run_id").replace_strict(begins, return_dtype=pl.Int64))
        .with_columns(since_end=pl.col("begin_ns") - pl.col("zero") - end)
        .with_columns(
            moment=pl.when(pl.col("end_ns") - pl.col("zero") <= begin)
            .then(pl.lit("before"))
            .when((pl.col("begin_ns") - pl.col("zero") >= begin) & (pl.col("end_ns") - pl.col("zero") <= end))
            .then(pl.lit("during"))
            .when(pl.col("since_end") >= 0)
            .then(pl.lit("after")),
            rest_ns=(pl.col("end_ns") - pl.col("zero") - end).clip(lower_bound=0),
        )
        .sort("run_id", "interval")
    )


def _recoveries(
    results: ResultSet, run_ids: Sequence[str], stream: str, latency: str, timed: pl.DataFrame
) -> Iterator[Recovery]:
    tails = _tails(results, run_ids, stream, latency, timed)
    mean = f"{latency}_ns_mean"
    for run_id in run_ids:
        own = timed.filter(pl.col("run_id") == run_id)
        before = own.filter(pl.col("moment") == "before")[mean].drop_nulls()
        after = own.filter(pl.col("moment") == "after").select("since_end", mean).rows()
        usual = median(before) if len(before) else None
        yield Recovery(
            before_ns=tails.get((run_id, "before")),
            during_ns=tails.get((run_id, "during")),
            recovered_after_ns=None if usual is None else recovered_after(after, usual),
            judged=is_measured(after, usual),
        )


def is_measured(after: Sequence[tuple[int, float | None]], usual_ns: float | None) -> bool:
    """Return True if a recovery can be judged: the mean before is known, and enough intervals follow."""
    return usual_ns is not None and len(after) >= STAYS


def recovered_after(after: Sequence[tuple[int, float | None]], usual_ns: float) -> float | None:
    """Return the time at which latency is back permanently.

    `after` has the start and the mean of each interval; the mean is None where nothing completed.
    """
    is_back = [mean is not None and mean <= RECOVERED * usual_ns for _, mean in after]
    for index, (since_end, _) in enumerate(after):
        held = is_back[index : index + STAYS]
        if len(held) == STAYS and all(held):
            return float(since_end)
    return None


def _tails(
    results: ResultSet, run_ids: Sequence[str], stream: str, latency: str, timed: pl.DataFrame
) -> dict[tuple[str, str], float]:
    """p99 latency of each run before and during, out of the merged histograms of the intervals."""
    buckets = results.only(run_ids).histograms.filter(
        pl.col("phase") == "measure",
        pl.col("stream") == stream,
        pl.col("latency") == latency.removesuffix("_latency"),
        pl.col("operation") != "flush",
    )
    moments = timed.select("run_id", pl.col("interval").cast(pl.UInt32), "moment").drop_nulls("moment")
    merged = (
        buckets.join(moments, on=["run_id", "interval"])
        .group_by("run_id", "moment", "bucket")
        .agg(pl.col("count").sum())
    )
    found = percentiles(merged, by=["run_id", "moment"], parts=PERCENTILE).drop_nulls("p99")
    return {(row["run_id"], row["moment"]): float(row["p99"]) for row in found.to_dicts()}
