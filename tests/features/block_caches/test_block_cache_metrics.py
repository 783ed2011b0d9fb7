"""Metrics of a block cache in each interval, and its tables in a report, from readings with known increases."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import hand_plan
from samples import Samples, write

from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.plan import Setup
from iosonde.report.content.report import collect
from iosonde.results import ResultSet

MIB = 1 << 20
METRICS = ("cache_read_hit_ratio", "cache_dirty_bytes_mean", "cache_written_back_bytes", "cache_congested_share")


def reading(*, read: int, missed: int, written_back: int, dirty: int, congested: int) -> dict[str, int]:
    return {
        "read_bytes": read * MIB,
        "backing_read_bytes": missed * MIB,
        "backing_write_bytes": written_back * MIB,
        "dirty_bytes": dirty * MIB,
        "congested": congested,
        "cache_hits": 7,
        "cache_misses": 0,
    }


READINGS = (
    reading(read=0, missed=0, written_back=0, dirty=8, congested=0),
    reading(read=10, missed=10, written_back=1, dirty=7, congested=512),
    reading(read=30, missed=15, written_back=1, dirty=9, congested=0),
    reading(read=40, missed=15, written_back=5, dirty=5, congested=0),
)


@pytest.fixture
def results(tmp_path: Path) -> ResultSet:
    return measured(tmp_path, kind="bcache", mode="writeback")


def measured(directory: Path, *, kind: str, mode: str) -> ResultSet:
    """A run of three intervals on a cache with these readings before it and after each interval."""
    directory.mkdir(exist_ok=True)
    plan = hand_plan(levels=("x",), factor="cached", repeats=1)
    layer = BlockCacheSetup(kind=kind, mode=mode, state="warm", hit_ratio=0.5)  # type: ignore[arg-type]
    setup = Setup(parts={layer.part: layer.model_dump()})
    plan = plan.model_copy(update={"cases": [each.model_copy(update={"setup": setup}) for each in plan.cases]})
    results = ResultSet.create(directory / "set", plan)
    cache = BlockCacheReading(
        kind=kind,
        mode=mode,
        prepared=Prepared(state="warm", requested_hit_ratio=0.5, hit_ratio=0.62, steps=3),
        at_start=READINGS[0],
        at_end=READINGS[-1],
        dirty_bytes_mean=7 * MIB,
        congested_share=1 / 3,
    )
    statistics = [{f"block_cache.{name}": value for name, value in each.items()} for each in READINGS[1:]]
    samples = [Samples(interval=number, completion_ns=[1000]) for number in range(3)]
    with results.lock():
        write(
            results, plan.runs[0], samples, intervals=3, parts={cache.name: cache.model_dump()}, statistics=statistics
        )
    return results


def series(results: ResultSet) -> dict[str, list[tuple[int, float]]]:
    table = interval_metrics(results, metrics=METRICS)
    assert set(table["operation"]) <= {"all"}, "not repeated for each operation"
    return {
        metric: list(table.filter(metric=metric).sort("interval").select("interval", "value").iter_rows())
        for metric in METRICS
    }


def test_each_interval_has_its_hit_ratio_dirty_data_written_back_bytes_and_congestion(results: ResultSet) -> None:
    """The first interval has states only: there is no reading before it."""
    assert series(results) == {
        "cache_read_hit_ratio": [(1, 0.75), (2, 1.0)],
        "cache_dirty_bytes_mean": [(0, 7 * MIB), (1, 9 * MIB), (2, 5 * MIB)],
        "cache_written_back_bytes": [(1, 0), (2, 4 * MIB)],
        "cache_congested_share": [(0, 1), (1, 0), (2, 0)],
    }


def test_a_run_has_values_of_its_own_and_of_its_intervals(results: ResultSet) -> None:
    values = dict(run_metrics(results).filter(operation="all").select("metric", "value").iter_rows())
    assert {name: values[name] for name in METRICS} == {
        "cache_read_hit_ratio": 1 - 15 / 40,
        "cache_dirty_bytes_mean": 7 * MIB,
        "cache_written_back_bytes": 5 * MIB,
        "cache_congested_share": 1 / 3,
    }


def test_device_mapper_has_current_counters_and_other_modes_write_nothing_back(tmp_path: Path) -> None:
    found = series(measured(tmp_path, kind="dm-cache", mode="writethrough"))
    assert found["cache_read_hit_ratio"] == [], "the counters of this cache did not grow"
    assert found["cache_written_back_bytes"] == []


def test_the_report_has_a_table_of_cases_and_the_readings_over_time(results: ResultSet) -> None:
    [chapter] = collect([results]).chapters
    cases, over_time = (table for table in chapter.detail_tables if table.title.startswith("Block cache"))
    [row] = cases.rows
    shown = dict(zip(cases.heads, (cell.text for cell in row), strict=True))
    assert (shown["Cache"], shown["Before the run"]) == ("bcache, writeback", "warm, hit ratio 0.62")
    assert shown["Dirty bytes in the block cache"] == "7 MiB"
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in over_time.rows}
    assert over_time.heads == ["Reading", "start", "1 s", "2 s", "3 s"]
    assert rows["Dirty data"] == ["8 MiB", "7 MiB", "9 MiB", "5 MiB"]
    assert rows["Congested"] == ["no", "yes", "no", "no"]
    assert rows["Read from the cached device"] == ["0 B", "10 MiB", "30 MiB", "40 MiB"]
    assert rows["Written to the backing device"] == ["0 B", "1 MiB", "1 MiB", "5 MiB"]
