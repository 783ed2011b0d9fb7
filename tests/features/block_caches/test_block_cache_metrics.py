"""Metrics of a block cache in each interval and its tables, from readings with known increases; and its gain over the backing device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import hand_made
import pytest
from plans import hand_plan
from samples import Samples, write

from iosonde.features.block_caches.questions import CacheGain
from iosonde.features.block_caches.record import BlockCacheReading, Prepared
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.findings.findings import findings
from iosonde.metrics.metrics import interval_metrics, run_metrics
from iosonde.plan import Setup
from iosonde.report.content import collect
from iosonde.results import ResultSet

MIB = 1 << 20
METRICS = ("cache_read_hit_ratio", "cache_dirty_bytes_mean", "cache_written_back_bytes", "cache_congested_share")


BYTES = ("read_bytes", "backing_read_bytes", "backing_write_bytes", "dirty_bytes")
READINGS = [
    {name: mebibytes * MIB for name, mebibytes in zip(BYTES, moved, strict=True)}
    | {"congested": congested, "cache_hits": 7, "cache_misses": 0}
    for *moved, congested in ((0, 0, 0, 8, 0), (10, 10, 1, 7, 512), (30, 15, 1, 9, 0), (40, 15, 5, 5, 0))
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return measured(tmp_path_factory.mktemp("cached"), kind="bcache", mode="writeback")


def measured(directory: Path, *, kind: str, mode: str) -> ResultSet:
    """A run of three intervals on a cache with these readings before it and after each interval."""
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


ALONE, COLD, WARM = ("none",), ("cold",), ("warm",)
QUESTION = {"kind": "cache_gain", "over": "cached", "metric": "iops"}
Rates = Mapping[tuple[str], list[float]]


def gains(rates: Rates, hits: Rates | None = None) -> dict[str, CacheGain]:
    metrics = {"iops": rates, "cache_read_hit_ratio": hits or {}}
    cases, runs = hand_made.results(
        ["cached"], metrics, block_size=4096, read_fraction=1.0, access="random", queue_depth=16
    )
    described = hand_made.study({"cached": [level for (level,) in rates]}, [QUESTION])
    found = [each for each in findings(described, cases, runs) if isinstance(each, CacheGain)]
    return {each.top: each for each in found}


def test_each_cache_is_compared_with_the_backing_device_alone() -> None:
    found = gains(
        {ALONE: [100.0, 101.0, 99.0], COLD: [101.0, 100.0, 99.5], WARM: [400.0, 404.0, 396.0]},
        {COLD: [0.0, 0.01, 0.02], WARM: [0.8, 0.82, 0.81]},
    )
    assert set(found) == {"cold", "warm"}
    warm = found["warm"]
    assert (warm.decision, warm.values) == ("higher", (400, 100))
    assert warm.ratio.value == pytest.approx(4)
    assert warm.hit_ratios == (0.81, 0.81)
    assert (len(warm.cells), warm.repeats) == (1, 3)
    assert "4.0 times the throughput of the backing device alone" in warm.sentence
    assert "with a read hit ratio of 0.81" in warm.sentence
    assert "IOPS of warm over the backing device alone: 4.00" in warm.evidence
    assert found["cold"].hit_ratios == (0.01, 0.01)
    assert found["cold"].decision == "same" and "as fast as the backing device alone" in found["cold"].sentence


def test_a_gain_within_the_noise_is_not_claimed() -> None:
    found = gains({ALONE: [80.0, 100.0, 130.0], WARM: [90.0, 110.0, 125.0]})["warm"]
    assert found.decision == "unclear"
    assert "no clear difference from the backing device alone" in found.sentence


def test_a_gain_over_a_value_that_may_be_higher_is_a_bound() -> None:
    found = gains({ALONE: [100.0, 101.0, 99.0], COLD: [101.0, 100.0, 99.5], WARM: [400.0, 404.0, 396.0]})
    for bound in ("at least", "at most"):
        cold, warm = (replace(found[name], bounds=(bound,)).sentence for name in ("cold", "warm"))  # type: ignore[arg-type]
        assert f"{bound} as fast as the backing device alone" in cold
        assert f"{bound} 4.0 times the throughput of the backing device alone" in warm


def test_without_the_backing_device_alone_nothing_is_claimed() -> None:
    assert gains({COLD: [100.0, 101.0, 99.0], WARM: [50.0, 50.5, 49.5]}) == {}


def gain_by_block_size(rates: Mapping[tuple[str, int], list[float]]) -> CacheGain:
    cases, runs = hand_made.results(
        ["cached", "block_size"], {"iops": rates}, read_fraction=1.0, access="random", queue_depth=16
    )
    described = hand_made.study({"cached": ["none", "warm"], "block_size": [4096, 65536]}, [QUESTION])
    [found] = [each for each in findings(described, cases, runs) if isinstance(each, CacheGain)]
    return found


def test_opposite_effects_of_two_cells_are_not_pooled_into_none() -> None:
    rates = {("none", 4096): 20_000, ("warm", 4096): 10_000, ("none", 65536): 1000, ("warm", 65536): 2000}
    found = gain_by_block_size({cell: [0.99 * rate, rate, 1.01 * rate] for cell, rate in rates.items()})
    assert found.opposed
    assert (found.opposed.smallest, found.opposed.largest) == (("4 KiB blocks", 0.5), ("64 KiB blocks", 2))
    assert (found.decision, found.values) == ("same", None)
    assert found.sentence.endswith(
        ": throughput is higher in 1 and lower in 1 of 2 cells, from 0.50 times with 4 KiB blocks to 2.0 times with "
        "64 KiB blocks, compared with the backing device alone"
    )


def test_cells_within_the_noise_are_not_opposed() -> None:
    rates = {("none", 4096): 1000, ("warm", 4096): 900, ("none", 65536): 1000, ("warm", 65536): 1100}
    found = gain_by_block_size({cell: [0.7 * rate, rate, 1.5 * rate] for cell, rate in rates.items()})
    assert (found.opposed, found.decision) == (None, "unclear")
