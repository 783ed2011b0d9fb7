"""The finding about a persistent read cache: its gain and its tiers."""

from __future__ import annotations

import pytest
from hand_made import results, study

from iosonde.features.key_value_stores.cache_tiers import ReadCacheGain
from iosonde.findings.findings import findings

NONE, CACHED = ("memory only",), ("512MiB",)
QUESTION = {"kind": "read_cache", "over": "read_cache", "metric": "ops_per_sec"}


def gain_of(rates: dict[tuple[str], list[float]]) -> ReadCacheGain:
    metrics = {
        "ops_per_sec": rates,
        "block_cache_hit_ratio": {NONE: [0.2] * 3, CACHED: [0.25] * 3},
        "read_cache_hit_ratio": {CACHED: [0.8, 0.7, 0.9]},
    }
    cases, runs = results(["read_cache"], metrics, store="rocksdb", phase="readrandom", database="loaded")
    described = study({"read_cache": ["memory only", "512MiB"]}, [QUESTION])
    [finding] = [each for each in findings(described, cases, runs) if isinstance(each, ReadCacheGain)]
    return finding


def test_throughput_and_hit_ratios_of_both_tiers_are_stated() -> None:
    finding = gain_of({NONE: [100.0, 101.0, 102.0], CACHED: [250.0, 252.5, 255.0]})
    assert (finding.bottom, finding.top, finding.decision) == ("memory only", "512MiB", "higher")
    assert finding.ratio.value == pytest.approx(2.5)
    assert (finding.block_cache_hit_ratio, finding.read_cache_hit_ratio) == pytest.approx((0.25, 0.8))
    assert "25 % of blocks found in memory, 80 % of the others in the read cache" in finding.sentence


def test_a_gain_within_the_noise_is_not_claimed() -> None:
    finding = gain_of({NONE: [80.0, 100.0, 130.0], CACHED: [90.0, 110.0, 125.0]})
    assert finding.decision == "unclear" and "no clear difference" in finding.sentence


def test_opposite_effects_of_two_cells_are_not_pooled() -> None:
    rates = {("memory only", 1): 100.0, ("512MiB", 1): 50.0, ("memory only", 16): 100.0, ("512MiB", 16): 200.0}
    metrics = {"ops_per_sec": {levels: [0.99 * rate, rate, 1.01 * rate] for levels, rate in rates.items()}}
    cases, runs = results(["read_cache", "jobs"], metrics, store="rocksdb", phase="readrandom", database="loaded")
    described = study({"read_cache": ["memory only", "512MiB"], "jobs": [1, 16]}, [QUESTION])
    [found] = [each for each in findings(described, cases, runs) if isinstance(each, ReadCacheGain)]
    assert found.opposed and (found.opposed.smallest, found.opposed.largest) == (("1 job", 0.5), ("16 jobs", 2))
    assert (
        "is higher in 1 and lower in 1 of 2 cells, from 0.50 times with 1 job to 2.0 times with 16 jobs"
        in found.sentence
    )
