"""Findings about key-value stores: the fastest, logs and syncs, published values, and tiers of caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hand_made import results, study

from iosonde.features.key_value_stores.questions import (
    CachedDatabase,
    CacheTier,
    CancelledWrites,
    ReadCacheGain,
    StoreLoad,
    difference,
    observed,
)
from iosonde.features.key_value_stores.questions import cache_tiers as find_tiers
from iosonde.findings.finding import support_of
from iosonde.findings.findings import findings
from iosonde.findings.published import PublishedComparison, published
from iosonde.findings.question import Question
from iosonde.findings.questions.peak import Fastest
from iosonde.metrics import wording
from iosonde.planning import load

STORES = {"lmdb": 5_441, "rocksdb": 18_500, "wiredtiger": 22_900}
QUESTIONS = [
    {"kind": kind, "over": "store", "metric": "ops_per_sec", "by": ["phase"]} for kind in ("peak", "asymmetry")
]


def about_stores(repeats: int, spread: float = 0.01) -> list[Any]:
    values = {
        ("ycsb_a", store): [rate * (1 + spread * (each - (repeats - 1) / 2)) for each in range(repeats)]
        for store, rate in STORES.items()
    }
    cases, runs = results(["phase", "store"], {"ops_per_sec": values}, database="loaded")
    return findings(study({"phase": ["ycsb_a"], "store": list(STORES)}, QUESTIONS), cases, runs)


def test_the_fastest_store_is_named_with_its_lead_unless_stores_are_tied() -> None:
    [finding] = [each for each in about_stores(3) if isinstance(each, Fastest)]
    assert [level for level, _ in finding.levels] == ["WiredTiger", "RocksDB", "LMDB"]
    assert finding.lead is not None and finding.lead.value == pytest.approx(22_900 / 18_500)
    assert (finding.tied, finding.strength) == (1, "strong")
    [finding] = [each for each in about_stores(3, spread=0.4) if isinstance(each, Fastest)]
    assert finding.tied > 1
    assert finding.strength == "weak"
    assert "do not differ measurably" in finding.sentence
    for repeats in (1, 3):  # One question has one decision: pairs are not compared as well.
        assert [each.kind for each in about_stores(repeats) if each.topic == "comparison"] == ["fastest"]


REFERENCE = {
    "name": "published",
    "csv": "han2021_fig6to7_dbbench.csv",
    "source": "Han 2021",
    "columns": {"workload": "load"},
    "value": "million_ops_s",
    "metric": "ops_per_sec",
    "scale": 1e6,
    "label": "raid_level",
}


def test_several_published_devices_are_one_finding_with_the_ratio_of_each() -> None:
    values = {("fillrandom",): [650_000.0] * 3, ("fillseq",): [180_000.0] * 3}
    cases, runs = results(["load"], {"ops_per_sec": values}, database="loaded", store="rocksdb")
    found = findings(study({"load": ["fillrandom", "fillseq"]}, [], references=[REFERENCE]), cases, runs)
    [finding] = [each for each in found if isinstance(each, PublishedComparison)]
    by_label = {each.label: each for each in finding.devices}
    assert by_label.keys() == {"raid0", "raid1", "raid10", "raid5", "raid6"}
    assert by_label["raid0"].median == pytest.approx(0.30, abs=0.005)
    medians = [each.median for each in finding.devices]
    assert medians == sorted(medians)
    assert [words for words, _ in by_label["raid0"].ratios] == ["fillseq", "fillrandom"]


@pytest.mark.parametrize(
    ("values", "is_within"), [([0.99, 1.0, 1.01], True), ([1.01], False), ([0.9, 1.0, 1.2], False)]
)
def test_own_values_are_within_5_percent_of_published_ones_by_their_intervals(
    values: list[float], is_within: bool
) -> None:
    reference = REFERENCE | {"where": {"raid_level": "raid0"}, "label": "RAID 0"}
    asked = study({"load": ["fillseq"]}, [], references=[reference])
    table = published(asked.references[0])
    [rate] = table.filter(pl.col("load") == "fillseq")["value"]
    own = {("fillseq",): [rate * each for each in values]}
    cases, runs = results(["load"], {"ops_per_sec": own}, database="loaded", store="rocksdb")
    [finding] = [each for each in findings(asked, cases, runs) if isinstance(each, PublishedComparison)]
    assert (finding.repeats, finding.devices[0].ends is None) == (len(values), len(values) < 3)
    assert ("within 5 %" in finding.sentence) is is_within
    assert wording.counted(len(values), "run") in finding.evidence


def outcomes(cases: pl.DataFrame, durability: dict[str, str]) -> pl.DataFrame:
    """Return the facts of runs that findings need, with what writes survive in each store."""
    facts = cases.select("case_id", store_kind="store", store_durability=pl.col("store").replace_strict(durability))
    missing = ["stalled_ns", "values_checked", "memory_limit_bytes", "database_bytes"]
    missing += ["database_bytes_at_end", "cached_bytes_at_end"]
    return facts.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in missing)


@pytest.mark.parametrize(
    ("rocksdb", "kinds"), [("process_crash", {"fastest"}), ("nothing", set()), ("power_loss", set())]
)
def test_stores_of_different_durability_are_not_ranked(rocksdb: str, kinds: set[str]) -> None:
    values = {("ycsb_a", store): [rate, rate * 1.01, rate * 1.02] for store, rate in STORES.items()}
    cases, runs = results(["phase", "store"], {"ops_per_sec": values}, database="loaded")
    facts = outcomes(cases, dict.fromkeys(STORES, "process_crash") | {"rocksdb": rocksdb})
    asked = study({"phase": ["ycsb_a"], "store": list(STORES)}, QUESTIONS)
    found = difference(Question(study=asked, analysis=asked.analysis[0], cases=cases, runs=runs, outcomes=facts))
    assert (found is None) == bool(kinds)
    if found is not None:
        assert dict(found.stores)["rocksdb"] == rocksdb
        assert found.sentence.startswith("Stores are not ranked: ")


def test_bytes_deleted_before_writeback_explain_a_device_that_received_few() -> None:
    values = {
        "ops_per_sec": {("rocksdb",): [1000.0, 1010.0], ("lmdb",): [900.0, 905.0]},
        "file_system_write_amplification": {("rocksdb",): [0.52, 0.52], ("lmdb",): [1.05, 1.05]},
        "cancelled_write_percent": {("rocksdb",): [46.0, 46.0], ("lmdb",): [0.0, 0.0]},
    }
    cases, runs = results(["store"], values, database="empty", phase="load", jobs=1)
    question: list[Any] = []
    found = findings(study({"store": ["rocksdb", "lmdb"]}, question), cases, runs)
    [finding] = [each for each in found if isinstance(each, CancelledWrites)]
    assert (finding.store, finding.share, finding.received) == ("rocksdb", pytest.approx(0.46), pytest.approx(0.52))
    assert "unexplained" not in finding.evidence
    assert "84 % unexplained" in replace(finding, share=0.06, received=0.1).evidence


@pytest.mark.parametrize(
    ("device_read", "foreign", "is_cached"),
    [(0.4, None, True), (0.6, None, False), (0.6, 0.5, True), (0.6, 0.1, False), (9.0, 0.96, True)],
)
def test_reads_of_others_do_not_count_where_reads_are_taken_for_cached(
    device_read: float, foreign: float | None, is_cached: bool
) -> None:
    values = {"ops_per_sec": {("read",): [1000.0]}}
    cases, runs = results(["phase"], values, store="lmdb", database="loaded", records=100)
    sizes = ("record_bytes", "database_bytes", "database_bytes_at_end", "cached_bytes_at_end")
    outcomes = pl.DataFrame(
        {
            "run_id": runs["run_id"], "case_id": runs["case_id"], **dict.fromkeys(sizes, 100 * 4096),
            "memory_limit_bytes": None, "values_checked": 1000, "values_corrupted": 0, "stalled_ns": 0, "writing_jobs": 0,
            "run_device_read_bytes": round(device_read * 1000 * 4096), "foreign_read_share": foreign,
            "measure_start_ns": 0, "measure_end_ns": 1,
        }
    )  # fmt: skip
    found = [
        each for each in observed(cases, runs, outcomes, support_of(runs, None)) if isinstance(each, CachedDatabase)
    ]
    assert bool(found) is is_cached
    for finding in found:
        assert finding.share == pytest.approx(device_read * (1 - (foreign or 0)))


@pytest.mark.parametrize(("phase", "is_load"), [("fillseq", True), ("trace", False)])
def test_a_replay_that_starts_with_an_empty_database_is_no_load(phase: str, is_load: bool) -> None:
    values = {("closed",): [100.0, 101.0, 102.0], ("trace",): [10.0, 10.0, 10.0]}
    cases, runs = results(["arrival"], {"ops_per_sec": values}, store="memcached", phase=phase, database="empty")
    found = findings(study({"arrival": ["closed", "trace"]}, []), cases, runs)
    assert any(isinstance(each, StoreLoad) for each in found) is is_load


# Tiers of caches ------------------------------------------------------------------------------------------------------


MEMORY, EXTSTORE = ("memory only",), ("memory and extstore",)


def tiers(memory: list[float], extstore: list[float]) -> CacheTier:
    def both(of_memory: float, of_extstore: float) -> dict[tuple[str], list[float]]:
        return {MEMORY: [of_memory] * len(memory), EXTSTORE: [of_extstore] * len(extstore)}

    metrics = {
        "gets_per_sec": {MEMORY: memory, EXTSTORE: extstore},
        "cache_hit_ratio": both(0.4, 0.99),
        "extstore_hit_ratio": both(0.0, 0.6),
        "device_read_bytes_per_get": both(0.0, 2500.0),
    }
    study = load("jo2024-cache")
    cases, runs = results(["tier"], metrics, part="tiers", jobs=4, store="memcached")
    [found] = find_tiers(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs))
    assert isinstance(found, CacheTier)
    return found


def test_a_tier_that_serves_misses_is_worth_its_ratio_and_its_hits() -> None:
    found = tiers([1000, 1010, 990, 1005], [3000, 3030, 2970, 3015])
    assert found.decision == "higher"
    assert 2.99 < found.ratio.value < 3.01
    assert (found.bottom_hit_ratio, found.top_hit_ratio, found.from_extstore) == (0.4, 0.99, 0.6)
    assert (found.device_read_bytes, found.device_write_bytes) == (2500, None)
    assert tiers([1000, 1300, 900, 1100], [1000, 1200, 950, 1050]).decision == "unclear"


# Read caches of RocksDB -----------------------------------------------------------------------------------------------

NONE, CACHED = ("memory only",), ("512MiB",)
OF_READ_CACHE = {"kind": "read_cache", "over": "read_cache", "metric": "ops_per_sec"}


def gain_of(rates: dict[tuple[str], list[float]]) -> ReadCacheGain:
    metrics = {
        "ops_per_sec": rates,
        "block_cache_hit_ratio": {NONE: [0.2] * 3, CACHED: [0.25] * 3},
        "read_cache_hit_ratio": {CACHED: [0.8, 0.7, 0.9]},
    }
    cases, runs = results(["read_cache"], metrics, store="rocksdb", phase="readrandom", database="loaded")
    described = study({"read_cache": ["memory only", "512MiB"]}, [OF_READ_CACHE])
    [finding] = [each for each in findings(described, cases, runs) if isinstance(each, ReadCacheGain)]
    return finding


def test_throughput_and_hit_ratios_of_both_tiers_are_stated() -> None:
    finding = gain_of({NONE: [100.0, 101.0, 102.0], CACHED: [250.0, 252.5, 255.0]})
    assert (finding.bottom, finding.top, finding.decision) == ("memory only", "512MiB", "higher")
    assert finding.ratio.value == pytest.approx(2.5)
    assert (finding.block_cache_hit_ratio, finding.read_cache_hit_ratio) == pytest.approx((0.25, 0.8))
    finding = gain_of({NONE: [80.0, 100.0, 130.0], CACHED: [90.0, 110.0, 125.0]})
    assert finding.decision == "unclear"
