"""Benefit of a cache's second tier: ratio, hit ratios and device reads, from cells with known values."""

from __future__ import annotations

import polars as pl

from iosonde.features.key_value_stores.cache_tiers import CacheTier
from iosonde.features.key_value_stores.cache_tiers import cache_tiers as find
from iosonde.findings.question import Question
from iosonde.planning import load


def question(memory: list[float], extstore: list[float]) -> Question:
    cases = pl.DataFrame(
        {
            "case_id": ["a", "b"], "part": ["tiers"] * 2, "tier": ["memory only", "memory and extstore"], "jobs": [4, 4],
            "store": ["memcached"] * 2,
        }
    )  # fmt: skip
    values = {
        "gets_per_sec": (memory, extstore),
        "cache_hit_ratio": ([0.4] * len(memory), [0.99] * len(extstore)),
        "extstore_hit_ratio": ([0.0] * len(memory), [0.6] * len(extstore)),
        "device_read_bytes_per_get": ([0.0] * len(memory), [2500.0] * len(extstore)),
    }
    rows = [
        {"case_id": case, "part": "tiers", "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": "all", "metric": metric, "value": value}
        for metric, both in values.items() for case, found in zip("ab", both, strict=True)
        for i, value in enumerate(found)
    ]  # fmt: skip
    study = load("jo2024-cache")
    return Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows))


def test_a_tier_that_serves_misses_is_worth_its_ratio_and_its_hits() -> None:
    [found] = find(question([1000, 1010, 990, 1005], [3000, 3030, 2970, 3015]))
    assert isinstance(found, CacheTier)
    assert found.decision == "higher"
    assert 2.99 < found.ratio.value < 3.01
    assert (found.bottom_hit_ratio, found.top_hit_ratio, found.from_extstore) == (0.4, 0.99, 0.6)
    assert (found.device_read_bytes, found.device_write_bytes) == (2500, None)
    assert found.sentence.startswith("Memory and extstore against memory only: gets per second 3.00 times (95 % CI 2.9")
    assert found.sentence.endswith("the hit ratio is 99 % instead of 40 %, 60 % of gets from extstore")
    assert "2.44 KiB read from and 0 B written to the device per get" in found.evidence


def test_a_difference_within_the_noise_is_not_claimed() -> None:
    [found] = find(question([1000, 1300, 900, 1100], [1000, 1200, 950, 1050]))
    assert isinstance(found, CacheTier)
    assert found.decision == "unclear"
    assert "no clear difference in gets per second" in found.sentence


def test_opposite_effects_of_a_tier_are_not_pooled() -> None:
    ids = {
        "a": ("memory only", 1),
        "b": ("memory and extstore", 1),
        "c": ("memory only", 8),
        "d": ("memory and extstore", 8),
    }
    cases = pl.DataFrame(
        {"case_id": list(ids), "part": ["tiers"] * 4, "tier": [tier for tier, _ in ids.values()],
         "jobs": [jobs for _, jobs in ids.values()], "store": ["memcached"] * 4}
    )  # fmt: skip
    values = {"a": 1000, "b": 500, "c": 1000, "d": 2000}
    rows = [
        {"case_id": case, "part": "tiers", "control": False, "run_id": f"{case}{i}", "repeat": i, "stream": "main",
         "operation": "all", "metric": metric, "value": value * share if metric == "gets_per_sec" else 0.5}
        for metric in ("gets_per_sec", "cache_hit_ratio") for case, value in values.items()
        for i, share in enumerate((0.99, 1.0, 1.01))
    ]  # fmt: skip
    study = load("jo2024-cache")
    [found] = find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=pl.DataFrame(rows)))
    assert isinstance(found, CacheTier)
    assert found.opposed and (found.opposed.smallest[1], found.opposed.largest[1]) == (0.5, 2.0)
    assert (
        "gets per second is higher in 1 and lower in 1 of 2 cells, from 0.50 times with 1 job to 2.0 times with 8 jobs;"
        in found.sentence
    )
