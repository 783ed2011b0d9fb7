"""Memory replaced by a device, and the throughput that a store retains: from cells with known values."""

from __future__ import annotations

import polars as pl
import pytest

from iosonde.features.key_value_stores.questions import MemoryExtension, memory_extension
from iosonde.findings.question import Question
from iosonde.findings.questions.comparison import MemoryShare, memory_shares
from iosonde.planning import load

MIB = 1 << 20
LEVELS = ("all", "three quarters", "half", "quarter")


def rows(metric: str, operation: str, part: str, cells: dict[str, list[float]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"case_id": case, "part": part, "control": False, "run_id": f"{case}{repeat}", "repeat": repeat,
             "stream": "main", "operation": operation, "metric": metric, "value": value}
            for case, values in cells.items() for repeat, value in enumerate(values)
        ]
    )  # fmt: skip


def share(latencies: list[list[float]]) -> MemoryShare:
    study = load("cache-tiers")
    limits = [160 * MIB * part // 4 for part in (4, 3, 2, 1)]
    cases = pl.DataFrame(
        {"case_id": list(LEVELS), "part": ["extstore"] * 4, "memory": list(LEVELS), "memory_limit": limits}
    )
    runs = rows("response_latency_ns_p99", "read", "extstore", dict(zip(LEVELS, latencies, strict=True)))
    question = Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs)
    [found] = memory_shares(question)
    assert isinstance(found, MemoryShare)
    return found


def test_the_largest_share_with_an_equal_latency_is_the_answer() -> None:
    found = share([[100.0, 101, 99], [101.0, 100, 102], [102.0, 101, 100], [300.0, 310, 305]])
    assert found.replaced == 0.5
    assert found.ratio is not None and found.next_ratio is not None
    assert 1.0 <= found.ratio.value <= 1.02
    assert (found.next_replaced, found.next_decision) == (0.75, "worse")
    assert 3.0 < found.next_ratio.value < 3.1
    assert found.sentence.startswith("Flash tier (extstore): with 50 % of memory replaced, p99")
    assert "with 75 % replaced it is 3.0" in found.sentence


def test_a_device_that_replaces_nothing_and_one_that_replaces_everything_measured() -> None:
    none = share([[100.0, 101, 99], [200.0, 201, 202], [100.0, 100, 101], [300.0, 310, 305]])
    assert (none.replaced, none.ratio, none.next_replaced, none.equal_beyond) == (0, None, 0.25, (0.5,))
    assert "the smallest measured share of memory cannot be replaced" in none.sentence
    assert none.sentence.endswith("; with 50 % replaced it is not higher")
    every = share([[100.0, 101, 99]] * 4)
    assert (every.replaced, every.next_replaced) == (0.75, None)
    assert every.sentence.endswith("no larger share was measured")


def extended(values: list[int]) -> MemoryExtension:
    study = load("memory-extension")
    levels = ["all in memory", "half, swap on the device", "half, flash tier"]
    ids = [f"{level}{jobs}" for level in levels for jobs in (1, 4)]
    cases = pl.DataFrame(
        {"case_id": ids, "part": ["rocksdb"] * 6, "tier": [level for level in levels for _ in (1, 4)],
         "jobs": [1, 4] * 3, "store": ["rocksdb"] * 6}
    )  # fmt: skip
    runs = rows("ops_per_sec", "all", "rocksdb", {case: [v, v, v] for case, v in zip(ids, values, strict=True)})
    [found] = memory_extension(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs))
    assert isinstance(found, MemoryExtension)
    return found


def test_a_store_keeps_a_share_of_its_throughput_with_each_extension() -> None:
    found = extended([1000, 4000, 100, 400, 500, 2000])
    assert found.opposed == (None, None)
    assert (found.store, found.whole, found.cells, found.repeats) == ("RocksDB", "all in memory", 2, 3)
    assert [(level, each.value) for level, each in found.kept] == [
        ("half, swap on the device", pytest.approx(0.1)),
        ("half, flash tier", pytest.approx(0.5)),
    ]
    assert "RocksDB operations per second over all in memory: half, swap on the device 0.10 times" in found.sentence
