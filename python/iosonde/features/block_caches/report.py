"""Tables of block caches: every case with hits, dirty data and congestion, and readings over time of chosen runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.features.block_caches.record import STATISTICS, BlockCacheReading
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.report.details import spread
from iosonde.report.material import Material, Source, Subject, Values, medians_of
from iosonde.report.quantities import factor_title, level_text, metric_title
from iosonde.report.table import Cell, Table, tabulated
from iosonde.results.schema import Record
from iosonde.units import format_bytes, format_duration

METRICS = (
    "cache_read_hit_ratio",
    "cache_counted_hit_ratio",
    "cache_dirty_bytes_mean",
    "cache_written_back_bytes",
    "cache_bypassed_bytes",
    "cache_congested_share",
)
MOST_RUNS = 6
"""Runs whose readings are shown over time."""

STATES = {"dirty_bytes": "Dirty data", "congested": "Congested"}
"""Readings that are states -> what a row is called."""
COUNTED = {
    "read_bytes": "Read from the cached device",
    "write_bytes": "Written to the cached device",
    "cache_device_read_bytes": "Read from the cache device",
    "cache_device_write_bytes": "Written to the cache device",
    "backing_read_bytes": "Read from the backing device",
    "backing_write_bytes": "Written to the backing device",
}
"""Readings that are counters of bytes."""


def tables(material: Material) -> list[Table]:
    """Return a table of cases for each part with block caches, then readings of one run for each cache and mode."""
    parts = dict.fromkeys(case.part for _, case in material.cases())
    of_cases = [table for part in parts if (table := _table_of_cases(part, material))]
    named = len(material.sources) > 1
    chosen = [(source, *found) for source in material.sources for found in _chosen(source)][:MOST_RUNS]
    over_time = [_table_over_time(source, record, cache, named=named) for source, record, cache in chosen]
    return [*of_cases, *filter(None, over_time)]


def _table_of_cases(part: str, material: Material) -> Table | None:
    found = [
        Subject(source=source, case=case)
        for source, case in material.cases()
        if case.part == part and case.setup is not None and case.setup.layer(BlockCacheSetup)
    ]
    if not found:
        return None
    factors = list(dict.fromkeys(name for subject in found for name in subject.case.levels))
    setups = [_setup(subject) for subject in found]
    values = {metric: Values(material, metric) for metric in METRICS}
    return tabulated(
        "Block caches",
        [
            *((factor_title(name), [level_text(name, subject.level(name)) for subject in found]) for name in factors),
            material.label_column(subject.source for subject in found),
            ("Cache", [f"{setup.kind}, {setup.mode}" for setup in setups]),
            ("Before the run", [_prepared(subject) for subject in found]),
        ],
        [(metric_title(metric), [known.cell(subject) for subject in found]) for metric, known in values.items()],
        caption="Before the run: read hit ratio or dirty data that was reached, smallest of the repeats. "
        f"{medians_of(material, METRICS)}",
        keys=[subject.source.key(subject.case) for subject in found],
    )


def _setup(subject: Subject) -> BlockCacheSetup:
    found = subject.case.setup and subject.case.setup.layer(BlockCacheSetup)
    assert found, "a case with a block cache"
    return found


def _prepared(subject: Subject) -> str:
    """State that was requested and the least that was reached."""
    state = _setup(subject).state
    prepared = [
        reading.prepared
        for each in subject.source.records
        if each.case_id == subject.case.case_id and (reading := each.of(BlockCacheReading))
    ]
    ratios = [each.hit_ratio for each in prepared if each.hit_ratio is not None]
    dirty = [each.dirty_bytes for each in prepared if each.dirty_bytes is not None]
    if ratios:
        return f"{state}, hit ratio {min(ratios):.2f}"
    return f"{state}, {format_bytes(min(dirty))}" if dirty else state


def _chosen(source: Source) -> Iterator[tuple[Record, BlockCacheReading]]:
    """Yield the first complete run of each part, kind of cache and mode."""
    seen = set()
    for record in source.records:
        cache = record.of(BlockCacheReading)
        if record.outcome == "complete" and cache:
            key = (record.part, cache.kind, cache.mode)
            if key not in seen:
                seen.add(key)
                yield record, cache


def _table_over_time(source: Source, record: Record, cache: BlockCacheReading, *, named: bool) -> Table | None:
    text = f"SELECT * FROM store_statistics WHERE run_id = '{record.run_id}' AND phase = 'measure'"
    readings = source.results.sql(text).filter(pl.col("statistic").str.starts_with(STATISTICS))
    ends = readings["end_ns"].unique().sort().to_list()
    start = cache.at_start
    if not ends or not start:
        return None
    moments, origin = spread(ends), (record.result or {})["begin_ns"]
    known = {
        (name.removeprefix(STATISTICS), end): value
        for name, end, value in readings.select("statistic", "end_ns", "value").iter_rows()
    }
    label = f"{source.label}: " if named else ""
    return Table(
        title=f"{label}Block cache over time: {record.case_id}",
        caption=f"Run {record.run_id}, {cache.kind} in {cache.mode} mode. "
        "Bytes read and written since the start of the measurement. Every interval is in the table `store_statistics`.",
        heads=["Reading", "start", *(format_duration(moment - origin) for moment in moments)],
        labels=1,
        rows=[*_states(start, known, moments), *_increases(start, known, moments)],
    )


def _states(start: Mapping[str, int], known: Mapping[Any, int], moments: Sequence[int]) -> Iterator[list[Cell]]:
    for name, title in STATES.items():
        values = [start.get(name), *(known.get((name, moment)) for moment in moments)]
        if not any(value is not None for value in values):
            continue  # Device mapper reports no congestion.
        if name == "congested":
            words = {None: "-", 0: "no"}
            yield [Cell(text=title), *(Cell(text=words.get(value, "yes")) for value in values)]
        else:
            yield [Cell(text=title), *map(_bytes, values)]


def _increases(start: Mapping[str, int], known: Mapping[Any, int], moments: Sequence[int]) -> Iterator[list[Cell]]:
    for name, title in COUNTED.items():
        if name in start:
            later = (known.get((name, moment)) for moment in moments)
            yield [
                Cell(text=title),
                *map(_bytes, [0, *(None if each is None else each - start[name] for each in later)]),
            ]


def _bytes(value: int | None) -> Cell:
    return Cell(text="-") if value is None else Cell(text=format_bytes(value), number=value)


TABLES = (tables,)
