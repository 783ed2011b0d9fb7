"""Findings about key-value stores: gain of cache tiers and of a device that extends memory, durability; load rates and
their cost, write stalls, checked values, and the memory they ran in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Count, Finding, Support, cases_of, some
from iosonde.findings.kinds import BOTTOM, TOP, Opposed, Ratio, Rows, between, compared, opposed, over_numbers, pairs_of
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import Estimate, pooled_ratio, repeats_interval
from iosonde.study.workload import store_name
from iosonde.units import format_bytes

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
"""Reads measure memory more than the device if at least this share of reads and database is in memory."""

_OWN_READ_BYTES = pl.col("run_device_read_bytes") * (1 - pl.col("foreign_read_share").fill_null(0.0))
"""Bytes that the device read in a run, less the known reads of other processes."""

_COSTS = (
    ("wall_seconds", "wall time"),
    ("cpu_percent", "CPU %"),
    ("store_write_amplification", "application to store"),
    ("file_system_write_amplification", "store to device"),
    ("space_amplification", "space amplification"),
)


class StoreLoad(Finding, kind="store load", topic="stores", place=2):
    """The fastest load of a store that starts with an empty database."""

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
        return f"{store_name(self.store)} loads {rate}{written}{_in_parentheses(self.levels)}"

    def _evidence(self) -> str:
        words = dict(_COSTS)
        costs = ", ".join(f"{words[metric]} {wording.value_text(metric, value)}" for metric, value in self.costs)
        verdicts = f"; {self.verdicts}" if self.verdicts else ""
        return f"{wording.counted(self.repeats, 'run')}; {costs}{verdicts}"


class BackgroundWork(Count, kind="background work", topic="stores"):
    """Loads of a store in which it uses more CPU than its loading threads can."""

    noun = "load"
    store: str
    cpu_percent: tuple[float, float]
    most: tuple[str, ...]
    """Levels of the load with the most."""

    def _sentence(self) -> str:
        some = f" in {self.some}" if self.count < self.total else ""
        most = f"up to {self.cpu_percent[1]:.0f} % of a CPU{_in_parentheses(self.most)}"
        return f"{store_name(self.store)} uses background threads{some}: {most}"

    def _evidence(self) -> str:
        used = wording.range_text(*(f"{end:.0f}" for end in self.cpu_percent))
        return f"{used} % in {wording.counted(self.count, 'case')}; one thread uses at most {ONE_CPU} %"


class CancelledWrites(Finding, kind="cancelled writes", topic="stores"):
    """A load of which the device received fewer bytes than the store wrote to its files."""

    store: str
    share: float
    """Bytes that were deleted before writeback over bytes written to files."""
    received: float
    """Bytes that the device wrote over bytes written to files."""
    case_id: str
    repeats: int

    @property
    def _is_unexplained(self) -> bool:
        return 1 - self.share - self.received > UNEXPLAINED

    def _sentence(self) -> str:
        share, received = wording.percent_text(self.share), wording.percent_text(self.received)
        deleted = f"deleted {share} of the bytes written to files before they were written back"
        then = "and" if self._is_unexplained else "so"
        return f"{store_name(self.store)} {deleted}, {then} the device received {received} of them"

    def _evidence(self) -> str:
        rest = wording.percent_text(1 - self.share - self.received)
        unexplained = f"; {rest} unexplained" if self._is_unexplained else ""
        return (
            f"`{self.case_id}`, {wording.counted(self.repeats, 'run')}: `cancelled_write_bytes` of the kernel, such as "
            f"logs that a flush made obsolete; no saving of the file system{unexplained}"
        )


class WriteStalls(Count, kind="write stalls", topic="stores"):
    """Runs with writers in which a store stalled them."""

    worst_share: float
    worst_case: str
    evidence_text = "share of all writers' time, as the store reports it: flushes and compactions did not keep up"

    def _sentence(self) -> str:
        return (
            f"Write stalls in {self.some}, up to {wording.percent_text(self.worst_share)} of the time "
            f"(`{self.worst_case}`)"
        )


class CheckedValues(Finding, kind="checked values", topic="quality"):
    """Values read, all of which are correct; others are `WrongData`."""

    checked: int
    runs: int

    def _sentence(self) -> str:
        return f"All {self.checked:,} values read are correct"

    def _evidence(self) -> str:
        return f"compared byte by byte, in {wording.counted(self.runs, 'run')}"


class MemoryPressure(Finding, kind="memory pressure", topic="quality"):
    """Size of the databases over the memory limit."""

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
        read = f"{format_bytes(self.device_read_bytes)} read from the device for {self.values:,} values"
        return f"limits of {limits}, page cache included; {read}"


class CachedDatabase(Count, kind="cached database", topic="quality"):
    """Runs whose reads mostly came from memory, without a memory limit, of all with reads."""

    share: float
    """Median of bytes that the device read over bytes that the clients read."""
    evidence_text = (
        f"median of the runs with less than {wording.percent_text(1 - CACHED)} by the kernel's counters, ramp "
        f"included and reads of other processes subtracted, and {wording.percent_text(CACHED)} of the database or more "
        "cached at the end (cachestat(2)); `--set memory_limit=...` makes the memory smaller than the database"
    )

    def _sentence(self) -> str:
        read = f"the device read {wording.percent_text(self.share)} of the bytes that the clients read"
        return f"{self.some} with reads measured memory more than the device: {read}"


def observed(
    cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None, support: Support
) -> Iterator[Finding]:
    if "store" not in cases.columns:
        return
    loads = _loads(cases, metrics)
    for _, group in loads.group_by("store", maintain_order=True):
        row = group.sort("ops_per_sec", descending=True, maintain_order=True).row(0, named=True)
        rate, fastest = repeats_interval(row["rates"]), (row["case_id"],)
        yield StoreLoad(
            store=row["store"],
            rate=rate,
            amplification=row.get("device_write_amplification"),
            levels=_levels(row["case_id"]),
            costs=tuple((metric, row[metric]) for metric, _ in _COSTS if row.get(metric) is not None),
            repeats=len(row["rates"]),
            verdicts=support.note(fastest),
            strength=support.strength(fastest, rate),
            case_ids=fastest,
            part=row["part"],
        )
    yield from _background(loads)
    yield from _cancelled(loads)
    if outcomes is not None:
        yield from _stalls(outcomes)
        yield from _values(outcomes)
        yield from _memory(outcomes)
        yield from _cached_databases(cases, outcomes)


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


def _in_parentheses(levels: Sequence[str]) -> str:
    return f" ({', '.join(levels)})" if levels else ""


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
            **some(group, loads.filter(pl.col("store") == store)),
            strength="moderate",
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
            **some(stalled, outcomes.filter(pl.col("writing_jobs") > 0)),
            worst_share=float(worst["share"]),
            worst_case=worst["case_id"],
            strength="moderate",
        )


def _values(outcomes: pl.DataFrame) -> Iterator[Finding]:
    checked = outcomes.filter(pl.col("values_checked") > 0)
    if len(checked) and not checked["values_corrupted"].sum():
        yield CheckedValues(checked=int(checked["values_checked"].sum()), runs=len(checked), strength="strong")


def _memory(outcomes: pl.DataFrame) -> Iterator[Finding]:
    limited = outcomes.filter(pl.col("memory_limit_bytes").is_not_null(), pl.col("database_bytes") > 0)
    if limited.is_empty():
        return
    read = limited.filter(pl.col("values_checked") > 0)
    cached = (read["cached_bytes_at_start"] / read["database_bytes_at_start"]).drop_nulls().to_list()
    yield MemoryPressure(
        ratio=float((limited["database_bytes"] / limited["memory_limit_bytes"]).median()),  # type: ignore[arg-type]
        cached_share=max(cached, default=None),
        limits=tuple(limited["memory_limit_bytes"].unique().sort().to_list()),
        device_read_bytes=int(read.select(_OWN_READ_BYTES.fill_null(0).sum()).item()),
        values=int(read["values_checked"].sum()),
        strength="strong",
    )


def _cached_databases(cases: pl.DataFrame, outcomes: pl.DataFrame) -> Iterator[Finding]:
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
        pl.col("share") < 1 - CACHED, pl.col("cached_bytes_at_end") >= CACHED * pl.col("database_bytes_at_end")
    )
    if len(cached):
        yield CachedDatabase(
            **some(cached, read),
            share=float(cached["share"].median()),  # type: ignore[arg-type]
            strength="strong",
        )


SURVIVES = {
    "nothing": "do not survive a crash of the process",
    "process_crash": "survive a crash of the process",
    "power_loss": "survive a power failure",
}


class DifferentDurability(Finding, kind="different durability", topic="stores"):
    """Stores that a study compares although their writes survive different failures."""

    evidence_text = "durability of acknowledged writes under the options in effect; set `sync = true` to compare them"
    stores: tuple[tuple[str, str], ...]
    """Store, and what its acknowledged writes survive."""

    def _sentence(self) -> str:
        listed = [f"writes of {store_name(store)} {SURVIVES[survives]}" for store, survives in self.stores]
        return f"Stores are not ranked: {wording.listing(listed)}"


def difference(question: Question) -> DifferentDurability | None:
    """Return the difference between stores that a question compares; None where they may be ranked."""
    outcomes, compared = question.outcomes, question.cells()
    if outcomes is None or "store_durability" not in outcomes.columns or compared.is_empty():
        return None
    facts = outcomes.select("case_id", "store_kind", "store_durability").drop_nulls().unique(maintain_order=True)
    for _, group in groups(compared, question.by):
        found = facts.join(group.select("case_id"), on="case_id", how="semi", maintain_order="left")
        if found["store_kind"].n_unique() > 1 and found["store_durability"].n_unique() > 1:
            pairs = found.select("store_kind", "store_durability").unique(maintain_order=True)
            return DifferentDurability(
                stores=tuple(pairs.iter_rows()),
                strength="strong",
                case_ids=cases_of(found),
                part=question.part.name,
            )
    return None


class CacheTier(Ratio, kind="cache tier", topic="stores", place=1):
    """Gets per second with two arrangements of a cache's tiers."""

    bottom_hit_ratio: float | None
    top_hit_ratio: float | None
    from_extstore: float | None
    """Share of the gets that extstore served at the top level; None without extstore."""
    device_read_bytes: float | None
    device_write_bytes: float | None
    """Per get, at the top level; None without any."""

    def _details(self) -> str:
        top, bottom = (wording.percent_text(each or 0) for each in (self.top_hit_ratio, self.bottom_hit_ratio))
        served = f", {wording.percent_text(self.from_extstore)} of gets from extstore" if self.from_extstore else ""
        return f"; the hit ratio is {top} instead of {bottom}{served}"

    def _evidence(self) -> str:
        read, written = (
            wording.value_text("device_read_bytes_per_get", each or 0)
            for each in (self.device_read_bytes, self.device_write_bytes)
        )
        return f"{super()._evidence()}; {read} read from and {written} written to the device per get"


class ReadCacheGain(Ratio, kind="read cache", topic="stores"):
    """Throughput with one size of the read cache over that with another, or without."""

    block_cache_hit_ratio: float | None
    read_cache_hit_ratio: float | None
    """At the top level; None where RocksDB did not count."""

    def _details(self) -> str:
        if self.block_cache_hit_ratio is None:
            return ""
        memory = f"; {wording.percent_text(self.block_cache_hit_ratio)} of blocks found in memory"
        if self.read_cache_hit_ratio is None:
            return memory
        return f"{memory}, {wording.percent_text(self.read_cache_hit_ratio)} of the others in the read cache"


def cache_tiers(question: Question) -> Iterator[Finding]:
    return compared(
        question,
        CacheTier,
        bottom_hit_ratio=("cache_hit_ratio", BOTTOM),
        top_hit_ratio=("cache_hit_ratio", TOP),
        from_extstore=("extstore_hit_ratio", TOP),
        device_read_bytes=("device_read_bytes_per_get", TOP),
        device_write_bytes=("device_write_bytes_per_get", TOP),
    )


def read_cache(question: Question) -> Iterator[Finding]:
    hit_ratios = {name: (name, TOP) for name in ("block_cache_hit_ratio", "read_cache_hit_ratio")}
    return compared(question, ReadCacheGain, **hit_ratios)


class MemoryExtension(Finding, kind="memory extension", topic="stores", place=1):
    """Throughput of each extension over that of the first level, all in memory, over all cells that have both."""

    store: str
    whole: str
    """Name of the first level."""
    metric: str
    kept: tuple[tuple[str, Estimate], ...]
    """Name of each other level, and its throughput over that of the first."""
    opposed: tuple[Opposed | None, ...]
    """For each of them the cells with opposite effects, if there are any."""
    about: str
    cells: int
    repeats: int

    def _sentence(self) -> str:
        metric = wording.metric_words(self.metric)
        parts = [
            f"{level} {cells.text if cells else wording.ratio_estimate_text(each)}"
            for (level, each), cells in zip(self.kept, self.opposed, strict=True)
        ]
        return f"{self.store} {metric} over {self.whole}{self.about}: {', '.join(parts)}"

    def _evidence(self) -> str:
        over = f" over {self.cells} cells" if self.cells > 1 else ""
        return f"ratio of medians{over}; {wording.counted(self.repeats, 'run')} each"


def memory_extension(question: Question) -> Iterator[Finding]:
    """Compare every level of `over` with the first; numeric levels of other factors are pooled."""
    for key, group in over_numbers(question):
        whole, _ = pairs_of(group)[0]
        others = [level for first, level in pairs_of(group) if first == whole]
        yield _extension(question, key, str(whole), [between(group, level, whole) for level in others])


def _extension(question: Question, key: dict[str, Any], whole: str, compared: Sequence[Rows]) -> MemoryExtension:
    kept, extremes = [], []
    for rows in compared:
        pairs = [row["pair"] for row in rows]
        kept.append((str(rows[0]["levels"][TOP]), pooled_ratio(pairs)))
        extremes.append(opposed([question.numbers(row) for row in rows], pairs))
    cells = [row for rows in compared for row in rows]
    ids = tuple(dict.fromkeys(case_id for row in cells for case_id in reversed(row["cases"])))
    stores = question.cases.filter(pl.col("case_id").is_in(ids))["store"].unique().to_list()
    words = [wording.level_words(name, level) for name, level in key.items()]
    return MemoryExtension(
        store=" and ".join(sorted(store_name(store) for store in stores)),
        whole=whole,
        metric=question.analysis.metric,
        kept=tuple(kept),
        opposed=tuple(extremes),
        about=f" ({', '.join(words)})" if words else "",
        cells=len(cells) // len(kept),
        repeats=min(len(values) for row in cells for values in row["pair"]),
        **question.claim(ids, *(each for _, each in kept)),
    )


KINDS = (
    QuestionKind("cache_tiers", cache_tiers, compares_levels=True),
    QuestionKind("read_cache", read_cache, compares_levels=True),
    QuestionKind("memory_extension", memory_extension, compares_levels=True),
)
OBSERVATIONS = (observed,)
NOT_RANKED = (difference,)
