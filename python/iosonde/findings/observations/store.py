"""Key-value stores: load rates and their cost, write stalls, checked values, and the memory they ran in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from iosonde.findings.finding import Finding, Topic, cases_of
from iosonde.findings.support import Support
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.units import format_bytes
from iosonde.workload import terms

ONE_CPU = 100
"""CPU percent of a single thread that never waits."""

MARGIN = 1.1
STALLED = 0.01
"""Share of a run with stalled writes that is worth a finding."""
RECEIVED = 0.9
"""Share of written bytes below which it needs an explanation that the device received so few."""
CANCELLED = 0.05
"""Share of deleted bytes that is worth a finding."""
UNEXPLAINED = 0.1
CACHED = 0.5
"""Share of reads from memory, and of a database in memory, from which on reads measure memory more than the device."""

_OWN_READ_BYTES = pl.col("run_device_read_bytes") * (1 - pl.col("foreign_read_share").fill_null(0.0))
"""Bytes that the device read in a run without those of other processes, as far as they are known."""

_COSTS = (
    ("wall_seconds", "wall time"),
    ("cpu_percent", "CPU %"),
    ("store_write_amplification", "application to store"),
    ("file_system_write_amplification", "store to device"),
    ("space_amplification", "space amplification"),
)


@dataclass(frozen=True, kw_only=True)
class StoreLoad(Finding):
    """The fastest load of a store that starts with an empty database."""

    kind: ClassVar[str] = "store load"
    topic: ClassVar[Topic] = "stores"
    store: str
    rate: Estimate
    amplification: float | None
    """Device bytes written for each byte of the application."""
    levels: tuple[str, ...]
    costs: tuple[tuple[str, float], ...]
    """Metric and median."""
    repeats: int
    verdicts: str

    def _sentence(self) -> str:
        rate = wording.estimate_text("ops_per_sec", self.rate).replace("operations/s", "records/s")
        written = f", device write amplification {wording.ratio_text(self.amplification)}" if self.amplification else ""
        where = f" ({', '.join(self.levels)})" if self.levels else ""
        return f"{terms.store_name(self.store)} loads {rate}{written}{where}"

    def _evidence(self) -> str:
        words = dict(_COSTS)
        costs = ", ".join(f"{words[metric]} {wording.value_text(metric, value)}" for metric, value in self.costs)
        verdicts = f"; {self.verdicts}" if self.verdicts else ""
        return f"{wording.counted(self.repeats, 'run')}; {costs}{verdicts}"


@dataclass(frozen=True, kw_only=True)
class BackgroundWork(Finding):
    """A store that uses more CPU than its loading threads can."""

    kind: ClassVar[str] = "background work"
    topic: ClassVar[Topic] = "stores"
    store: str
    cpu_percent: tuple[float, float]
    most: tuple[str, ...]
    """Levels of the load with the most."""
    cases: int
    loads: int
    """Loads of the store in all."""

    def _sentence(self) -> str:
        some = f" in {self.cases} of {self.loads} loads" if self.cases < self.loads else ""
        where = f" ({', '.join(self.most)})" if self.most else ""
        most = f"up to {self.cpu_percent[1]:.0f} % of a CPU{where}"
        return f"{terms.store_name(self.store)} uses background threads{some}: {most}"

    def _evidence(self) -> str:
        low, high = self.cpu_percent
        return (
            f"{wording.range_text(f'{low:.0f}', f'{high:.0f}')} % in {wording.counted(self.cases, 'case')}; "
            f"one thread uses at most {ONE_CPU} %"
        )


@dataclass(frozen=True, kw_only=True)
class CancelledWrites(Finding):
    """A load of which the device received fewer bytes than the store wrote to its files."""

    kind: ClassVar[str] = "cancelled writes"
    topic: ClassVar[Topic] = "stores"
    store: str
    share: float
    """Of the bytes written to files those that were deleted before writeback."""
    received: float
    """Bytes that the device wrote over bytes written to files."""
    case_id: str
    repeats: int

    def _sentence(self) -> str:
        return (
            f"{terms.store_name(self.store)} deleted {wording.percent_text(self.share)} of the bytes written to "
            f"files before they were written back, {'and' if 1 - self.share - self.received > UNEXPLAINED else 'so'} "
            f"the device received {wording.percent_text(self.received)} of them"
        )

    def _evidence(self) -> str:
        rest = 1 - self.share - self.received
        unexplained = f"; {wording.percent_text(rest)} unexplained" if rest > UNEXPLAINED else ""
        return (
            f"`{self.case_id}`, {wording.counted(self.repeats, 'run')}: `cancelled_write_bytes` of the kernel, such as "
            f"logs that a flush made obsolete; no saving of the file system{unexplained}"
        )


@dataclass(frozen=True, kw_only=True)
class WriteStalls(Finding):
    """Runs in which a store stalled writers."""

    kind: ClassVar[str] = "write stalls"
    topic: ClassVar[Topic] = "stores"
    runs: int
    writing: int
    """Runs with writers."""
    worst_share: float
    worst_case: str

    def _sentence(self) -> str:
        runs = f"{self.runs} of {wording.counted(self.writing, 'run')}"
        return (
            f"Write stalls in {runs}, up to {wording.percent_text(self.worst_share)} of the time (`{self.worst_case}`)"
        )

    def _evidence(self) -> str:
        return "share of all writers' time, as the store reports it: flushes and compactions did not keep up"


@dataclass(frozen=True, kw_only=True)
class CheckedValues(Finding):
    """How many of the values read were correct."""

    kind: ClassVar[str] = "checked values"
    topic: ClassVar[Topic] = "quality"
    checked: int
    corrupted: int
    runs: int

    def _sentence(self) -> str:
        if self.corrupted:
            return f"{self.corrupted:,} of {self.checked:,} values read are corrupt"
        return f"All {self.checked:,} values read are correct"

    def _evidence(self) -> str:
        cause = ": store or device returned other data than was written" if self.corrupted else ""
        return f"compared byte by byte, in {wording.counted(self.runs, 'run')}{cause}"


@dataclass(frozen=True, kw_only=True)
class MemoryPressure(Finding):
    """Size of the databases over the memory limit."""

    kind: ClassVar[str] = "memory pressure"
    topic: ClassVar[Topic] = "quality"
    ratio: float
    cached_share: float | None
    """Largest share of a database in memory at the measurement start."""
    limits: tuple[int, ...]
    device_read_bytes: int
    values: int

    def _sentence(self) -> str:
        share = ""
        if self.cached_share is not None:
            share = f", at most {wording.percent_text(self.cached_share)} of any cached at the measurement start"
        return f"The median database was {wording.times_text(self.ratio)} the memory limit{share}"

    def _evidence(self) -> str:
        limits = wording.listing([format_bytes(limit) for limit in self.limits])
        return (
            f"limits of {limits}, page cache included; {format_bytes(self.device_read_bytes)} read from the device for "
            f"{self.values:,} values"
        )


@dataclass(frozen=True, kw_only=True)
class CachedDatabase(Finding):
    """Runs whose reads mostly came from memory, without a memory limit."""

    kind: ClassVar[str] = "cached database"
    topic: ClassVar[Topic] = "quality"
    runs: int
    reading: int
    share: float

    def _sentence(self) -> str:
        return (
            f"{self.runs} of {wording.counted(self.reading, 'run')} with reads measure memory more than the device: "
            f"the device read {wording.percent_text(self.share)} of the bytes that the clients read"
        )

    def _evidence(self) -> str:
        return (
            f"median of the runs with less than {wording.percent_text(1 - CACHED)} by the kernel's counters, ramp "
            f"included and reads of other processes subtracted, and {wording.percent_text(CACHED)} of the database or "
            "more cached at the end (cachestat(2)); "
            "`--set memory_limit=...` makes the memory smaller than the database"
        )


def find(
    cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None, support: Support
) -> Iterator[Finding]:
    """Return what stores delivered; nothing for block I/O."""
    if "store" not in cases.columns:
        return
    loads = _loads(cases, metrics)
    for _, group in loads.group_by("store", maintain_order=True):
        yield _load(group.sort("ops_per_sec", descending=True, maintain_order=True).row(0, named=True), support)
    yield from _background(loads)
    yield from _cancelled(loads)
    if outcomes is not None:
        yield from _stalls(outcomes)
        yield from _values(outcomes)
        yield from _memory(outcomes)
        yield from _cached(cases, outcomes)


def _loads(cases: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return one row per case that loads an empty database: factors, medians of its metrics, all rates."""
    is_load = pl.col("phase") != "trace" if "phase" in cases.columns else pl.lit(True)
    empty = cases.filter(pl.col("database") == "empty", ~pl.col("control"), is_load)
    values = overall(metrics).filter(pl.col("case_id").is_in(empty["case_id"].to_list()))
    if values.is_empty():
        return empty.clear().with_columns(ops_per_sec=pl.lit(0.0))
    medians = values.group_by("case_id", "metric", maintain_order=True).agg(pl.col("value").median())
    wide = medians.pivot(on="metric", index="case_id", values="value")
    rates = values.filter(pl.col("metric") == "ops_per_sec").group_by("case_id").agg(rates="value")
    factors = empty.select(name for name in empty.columns if name == "case_id" or name not in wide.columns)
    whole = factors.join(wide, on="case_id", maintain_order="left").join(rates, on="case_id", maintain_order="left")
    return whole.filter(pl.col("ops_per_sec") > 0)


def _levels(case_id: str) -> tuple[str, ...]:
    """The levels in the name of a case, without the store."""
    return tuple(part.partition("=")[2] for part in case_id.split("/")[1:] if not part.startswith("store="))


def _load(row: Mapping[str, Any], support: Support) -> StoreLoad:
    rate = repeats_interval(row["rates"])
    cases = (row["case_id"],)
    return StoreLoad(
        store=row["store"],
        rate=rate,
        amplification=row.get("device_write_amplification"),
        levels=_levels(str(row["case_id"])),
        costs=tuple((metric, row[metric]) for metric, _ in _COSTS if row.get(metric) is not None),
        repeats=len(row["rates"]),
        verdicts=support.note(cases),
        strength=support.strength(cases, rate),
        case_ids=cases,
        part=row["part"],
    )


def _background(loads: pl.DataFrame) -> Iterator[Finding]:
    """Return stores that use more CPU than the loading threads can: on a busy machine they take it from others."""
    if "cpu_percent" not in loads.columns or loads.is_empty():
        return
    busy = loads.filter(pl.col("cpu_percent") > ONE_CPU * MARGIN * pl.col("jobs"))
    for (store,), group in busy.group_by(["store"], maintain_order=True):
        rows = group.sort("cpu_percent", maintain_order=True).to_dicts()
        least, most = rows[0], rows[-1]
        yield BackgroundWork(
            store=str(store),
            cpu_percent=(least["cpu_percent"], most["cpu_percent"]),
            most=_levels(most["case_id"]),
            cases=len(group),
            loads=len(loads.filter(pl.col("store") == store)),
            strength="moderate",
            case_ids=cases_of(group),
        )


def _cancelled(loads: pl.DataFrame) -> Iterator[Finding]:
    """Return the load of each store with the largest share of bytes that were deleted before writeback."""
    received, percent = pl.col("file_system_write_amplification"), pl.col("cancelled_write_percent")
    if not {"file_system_write_amplification", "cancelled_write_percent"} <= set(loads.columns):
        return
    found = loads.filter(received < RECEIVED, percent >= 100 * CANCELLED).sort(percent, descending=True)
    for _, group in found.group_by("store", maintain_order=True):
        row = group.row(0, named=True)
        yield CancelledWrites(
            store=row["store"],
            share=row["cancelled_write_percent"] / 100,
            received=row["file_system_write_amplification"],
            case_id=row["case_id"],
            repeats=len(row["rates"]),
            strength="moderate",
            case_ids=cases_of(group),
        )


def _stalls(outcomes: pl.DataFrame) -> Iterator[Finding]:
    measured = outcomes.filter(pl.col("stalled_ns") > 0).with_columns(
        share=pl.col("stalled_ns") / pl.col("writing_jobs") / (pl.col("measure_end_ns") - pl.col("measure_start_ns"))
    )
    stalled = measured.filter(pl.col("share") > STALLED).sort("share", descending=True, maintain_order=True)
    if len(stalled):
        worst = stalled.row(0, named=True)
        yield WriteStalls(
            runs=len(stalled),
            writing=len(outcomes.filter(pl.col("writing_jobs") > 0)),
            worst_share=float(worst["share"]),
            worst_case=worst["case_id"],
            strength="moderate",
            case_ids=cases_of(stalled),
        )


def _values(outcomes: pl.DataFrame) -> Iterator[Finding]:
    checked = outcomes.filter(pl.col("values_checked") > 0)
    if checked.is_empty():
        return
    wrong = checked.filter(pl.col("values_corrupted") > 0)
    yield CheckedValues(
        checked=int(checked["values_checked"].sum()),
        corrupted=int(wrong["values_corrupted"].sum()),
        runs=len(wrong) or len(checked),
        strength="strong",
        case_ids=cases_of(wrong),
    )


def _memory(outcomes: pl.DataFrame) -> Iterator[Finding]:
    limited = outcomes.filter(pl.col("memory_limit_bytes").is_not_null(), pl.col("database_bytes") > 0)
    if limited.is_empty():
        return
    read = limited.filter(pl.col("values_checked") > 0)
    cached = (read["cached_bytes_at_start"] / read["database_bytes"]).drop_nulls().to_list()
    yield MemoryPressure(
        ratio=float((limited["database_bytes"] / limited["memory_limit_bytes"]).median()),  # type: ignore[arg-type]
        cached_share=max(cached, default=None),
        limits=tuple(limited["memory_limit_bytes"].unique().sort().to_list()),
        device_read_bytes=int(read.select(_OWN_READ_BYTES.fill_null(0).sum()).item()),
        values=int(read["values_checked"].sum()),
        strength="strong",
    )


def _cached(cases: pl.DataFrame, outcomes: pl.DataFrame) -> Iterator[Finding]:
    if "records" not in cases.columns:
        return
    record_bytes = pl.col("record_bytes") / pl.col("records").cast(pl.Int64, strict=False)
    read = (
        outcomes.filter(
            pl.col("memory_limit_bytes").is_null(), pl.col("values_checked") > 0, pl.col("database_bytes") > 0
        )
        .join(cases.select("case_id", "records"), on="case_id", how="left")
        .with_columns(share=_OWN_READ_BYTES / (pl.col("values_checked") * record_bytes))
    )
    cached = read.filter(
        pl.col("share") < 1 - CACHED, pl.col("cached_bytes_at_end") >= CACHED * pl.col("database_bytes")
    )
    if len(cached):
        yield CachedDatabase(
            runs=len(cached),
            reading=len(read),
            share=float(cached["share"].median()),  # type: ignore[arg-type]
            strength="strong",
            case_ids=cases_of(cached),
        )
