"""Statistics that stores report about themselves, as tables over time: stalls, compactions, cache hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from iosonde.report.content.table import Cell, Table
from iosonde.report.material.result_sets import Material, Source
from iosonde.results.schema import Record
from iosonde.units import format_bytes, format_count, format_duration
from iosonde.workload import names_where, streams_of
from iosonde.workload.terms import store_name

MOMENTS = 6
"""Columns of a table: the start, the end, and evenly spaced times between them."""

MOST_TABLES = 6

_BYTES = ("bytes", "size", "mem-tables", "usage", "capacity", "mem", "size_bytes")


def statistics_tables(material: Material) -> list[Table]:
    """Return a table for the first run of each part and store, and of several cases the one with the most threads."""
    chosen = [(source, record) for source in material.sources for record in _chosen(source)][:MOST_TABLES]
    return [table for source, record in chosen if (table := _table(source, record, named=len(material.sources) > 1))]


def _chosen(source: Source) -> list[Record]:
    busiest: dict[tuple[str, str], Record] = {}
    names = names_where(lambda description: description.has_statistics)
    for record in (each for name in names for each in source.complete_of(name)):
        workload = record.spec["workload"]
        key = (record.part, (workload.get("store") or workload["server"])["kind"])
        if key not in busiest or _threads(record) > _threads(busiest[key]):
            busiest[key] = record
    return list(busiest.values())


def _threads(record: Record) -> int:
    return sum(stream["jobs"] for stream in streams_of(record.spec["workload"]))


def _table(source: Source, record: Record, *, named: bool) -> Table | None:
    text = f"SELECT * FROM store_statistics WHERE run_id = '{record.run_id}' AND phase = 'measure'"
    frame = source.results.sql(text).sort("interval")
    store = (record.result or {}).get("store") or record.server or {}
    start: Mapping[str, int] = store.get("statistics_at_start") or {}
    ends = frame["end_ns"].unique().sort().to_list()
    if not start or not ends:
        return None
    moments = spread(ends)
    origin = (record.result or {})["begin_ns"]
    rows = []
    for name in sorted(set(frame["statistic"])):
        known = dict(frame.filter(pl.col("statistic") == name).select("end_ns", "value").iter_rows())
        values = [start.get(name), *(known.get(moment) for moment in moments)]
        if any(values):
            rows.append([Cell(text=name), *(_cell(name, value) for value in values)])
    if not rows:
        return None
    label = f"{source.label}: " if named else ""
    times = [format_duration(moment - origin) for moment in moments]
    return Table(
        title=f"{label}Statistics of {_called(store)}: {record.case_id}",
        caption=f"Its own counters in run {record.run_id}, by its own names, at the start of the measurement and "
        "later, without those that stayed 0. Every interval is in the table `store_statistics`.",
        heads=["Statistic", "start", *times],
        labels=1,
        rows=rows,
    )


def _called(store: Mapping[str, str]) -> str:
    """Name and version; some stores begin their version with their name."""
    name = store_name(store["kind"])
    version = store["version"].partition(": (")[0].partition(" (")[0]
    return version if version.startswith(name) else f"{name} {version}"


def spread(ends: Sequence[int]) -> list[int]:
    """Return the times of the columns after the start: the last one, and evenly spaced ones before it."""
    steps = min(MOMENTS - 1, len(ends))
    return [ends[round((number + 1) * len(ends) / steps) - 1] for number in range(steps)]


def _cell(name: str, value: int | None) -> Cell:
    if value is None:
        return Cell(text="-")
    last = name.rpartition(".")[2]
    if name.endswith(".micros"):
        return Cell(text=format_duration(value * 1000), number=value)
    if name.endswith("_ns"):
        return Cell(text=format_duration(value), number=value)
    if any(last.endswith(word) for word in _BYTES) or ".bytes." in name:
        return Cell(text=format_bytes(value), number=value)
    return Cell(text=format_count(value), number=value)
