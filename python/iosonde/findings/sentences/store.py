"""What key-value stores came to: how fast they load and at what cost, and whether values came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.finding import Finding, Untyped, cases_of
from iosonde.metrics import wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import MINIMUM_REPEATS, median_interval
from iosonde.units import format_bytes

ONE_CPU = 100
"""CPU percent of a single thread that never waits."""

MARGIN = 1.1


def tell(cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None) -> Iterator[Finding]:
    """Say what the loads of a study delivered; nothing of block I/O."""
    if "store" not in cases.columns:
        return
    loads = _loads(cases, metrics)
    for _, group in loads.group_by("store", maintain_order=True):
        fastest = group.sort("ops_per_sec", descending=True, maintain_order=True).row(0, named=True)
        yield _load(fastest)
    yield from _background(loads)
    if outcomes is not None:
        yield from _stalls(outcomes)
        yield from _values(outcomes)
        yield from _memory(outcomes)
        yield from _cached(outcomes)


def _loads(cases: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return one row a case that begins with an empty database: its factors, the medians of its metrics, all values."""
    began_empty = cases.filter(pl.col("database") == "empty", ~pl.col("control"))
    values = overall(metrics).filter(pl.col("case_id").is_in(began_empty["case_id"].to_list()))
    if values.is_empty():
        return began_empty.clear().with_columns(ops_per_sec=pl.lit(0.0))
    medians = values.group_by("case_id", "metric", maintain_order=True).agg(pl.col("value").median())
    wide = medians.pivot(on="metric", index="case_id", values="value")
    rates = values.filter(pl.col("metric") == "ops_per_sec").group_by("case_id").agg(rates="value")
    factors = began_empty.select(name for name in began_empty.columns if name == "case_id" or name not in wide.columns)
    return factors.join(wide, on="case_id").join(rates, on="case_id").filter(pl.col("ops_per_sec") > 0)


def _load(row: Mapping[str, Any]) -> Finding:
    rate = wording.value_text("ops_per_sec", row["ops_per_sec"]).replace("operations", "records")
    store = wording.store_name(row["store"])
    amplification = row.get("device_write_amplification")
    written = f", and the device takes {wording.times_text(amplification)} their bytes" if amplification else ""
    return Untyped(
        kind="headline",
        title=wording.sentence(f"{store} loads {rate}{written}{_where(row)}"),
        note=f"{wording.estimate_text('ops_per_sec', median_interval(row['rates']))}; {_account(row)}",
        strength="strong" if len(row["rates"]) >= MINIMUM_REPEATS else "weak",
        case_ids=(row["case_id"],),
        part=row["part"],
    )


def _where(row: Mapping[str, Any]) -> str:
    """Name the other levels of the case, as they stand in its name."""
    levels = [part.partition("=")[2] for part in str(row["case_id"]).split("/")[1:] if not part.startswith("store=")]
    return f" ({', '.join(levels)})" if levels else ""


def _account(row: Mapping[str, Any]) -> str:
    parts = [
        f"{words} {wording.value_text(metric, row[metric])}"
        for metric, words in (
            ("wall_seconds", "wall time"),
            ("cpu_percent", "CPU %"),
            ("store_write_amplification", "application to store"),
            ("file_system_write_amplification", "store to device"),
            ("space_amplification", "space amplification"),
        )
        if row.get(metric) is not None
    ]
    return ", ".join(parts)


def _background(loads: pl.DataFrame) -> Iterator[Finding]:
    """Name stores that take more than the loading threads can: they will take it from others on a busy machine."""
    if "cpu_percent" not in loads.columns or loads.is_empty():
        return
    busy = loads.filter(pl.col("cpu_percent") > ONE_CPU * MARGIN * pl.col("jobs"))
    for (store,), group in busy.group_by(["store"], maintain_order=True):
        low, high = (float(end) for end in (group["cpu_percent"].min(), group["cpu_percent"].max()))  # type: ignore[arg-type]
        yield Untyped(
            kind="headline",
            title=f"{wording.store_name(str(store))} works beside the thread that loads: up to {high:.0f} % of a CPU",
            note=f"{low:.0f} to {high:.0f} % in {wording.counted(len(group), 'case')}; a thread alone takes "
            f"{ONE_CPU} % at most",
            strength="moderate",
            case_ids=cases_of(group),
        )


STALLED = 0.01
"""Share of a run for which writes are held back that is worth a sentence."""


def _stalls(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Name runs in which a store held writes back: its background work did not keep up."""
    measured = outcomes.filter(pl.col("stalled_ns") > 0).with_columns(
        share=pl.col("stalled_ns") / pl.col("writing_jobs") / (pl.col("measure_end_ns") - pl.col("measure_begin_ns"))
    )
    stalled = measured.filter(pl.col("share") > STALLED).sort("share", descending=True, maintain_order=True)
    if stalled.is_empty():
        return
    worst = stalled.row(0, named=True)
    yield Untyped(
        kind="tail",
        title=f"Writes were held back in {wording.counted(len(stalled), 'run')}, at worst for "
        f"{wording.percent_text(float(worst['share']))} of the time ({worst['case_id']})",
        note="of all writers' time, as the store accounts for it: flushes and compactions did not keep up",
        strength="moderate",
        case_ids=cases_of(stalled),
    )


def _values(outcomes: pl.DataFrame) -> Iterator[Finding]:
    checked = outcomes.filter(pl.col("values_checked") > 0)
    if checked.is_empty():
        return
    wrong = checked.filter(pl.col("values_corrupted") > 0)
    values = int(checked["values_checked"].sum())
    if len(wrong):
        corrupted = int(wrong["values_corrupted"].sum())
        yield Untyped(
            kind="trust",
            title=f"{corrupted:,} of {values:,} values read are not what their keys demand",
            note=f"in {wording.counted(len(wrong), 'run')}: store or device returned other data than was written",
            strength="strong",
            case_ids=cases_of(wrong),
        )
    else:
        yield Untyped(
            kind="trust",
            title=f"Every one of {values:,} values read was what its key demands",
            note=f"each is compared byte by byte, in {wording.counted(len(checked), 'run')}",
            strength="strong",
        )


def _memory(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Say how much larger than the memory the databases were, and what was really read from the device."""
    limited = outcomes.filter(pl.col("memory_limit_bytes").is_not_null(), pl.col("database_bytes") > 0)
    if limited.is_empty():
        return
    ratio = float((limited["database_bytes"] / limited["memory_limit_bytes"]).median())  # type: ignore[arg-type]
    read = limited.filter(pl.col("values_checked") > 0)
    device = int(read["run_device_read_bytes"].fill_null(0).sum())
    cached = (read["cached_bytes_at_begin"] / read["database_bytes"]).drop_nulls().to_list()
    share = f", at most {wording.percent_text(max(cached))} of them in memory at the begin" if cached else ""
    yield Untyped(
        kind="trust",
        title=f"The databases were {wording.times_text(ratio)} the memory{share}",
        note=f"limits of {_limits(limited)} with the page cache charged; {format_bytes(device)} were read from the "
        f"device for {int(read['values_checked'].sum()):,} values",
        strength="strong",
    )


CACHED = 0.5
"""Share of a database in memory from which on reads tell of memory more than of the device."""


def _cached(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Warn of reads from a database that memory holds, without a limit that the study chose."""
    read = outcomes.filter(
        pl.col("memory_limit_bytes").is_null(), pl.col("values_checked") > 0, pl.col("database_bytes") > 0
    ).with_columns(share=pl.col("cached_bytes_at_end") / pl.col("database_bytes"))
    cached = read.filter(pl.col("share") >= CACHED)
    if cached.is_empty():
        return
    share = wording.percent_text(min(1.0, float(cached["share"].median())))  # type: ignore[arg-type]
    yield Untyped(
        kind="trust",
        title=f"In {len(cached)} of {wording.counted(len(read), 'run')} that read, {share} of the database was in "
        "memory at the end: they tell of memory more than of the device",
        note=f"median of what cachestat(2) tells; runs with {wording.percent_text(CACHED)} or more are counted; "
        "`--set memory_limit=...` makes the memory smaller than the database",
        strength="strong",
        case_ids=cases_of(cached),
    )


def _limits(limited: pl.DataFrame) -> str:
    return wording.listing([format_bytes(limit) for limit in limited["memory_limit_bytes"].unique().sort()])
