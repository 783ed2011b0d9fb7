"""The finding about a block cache: its gain over the backing device alone, and the read hit ratio."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hand_made import results, study

from iosonde.features.block_caches.questions import CacheGain
from iosonde.findings.findings import findings

ALONE, COLD, WARM = ("none",), ("cold",), ("warm",)
QUESTION = {"kind": "cache_gain", "over": "cached", "metric": "iops"}
Rates = Mapping[tuple[str], list[float]]


def gains(rates: Rates, hits: Rates | None = None) -> dict[str, CacheGain]:
    metrics = {"iops": rates, "cache_read_hit_ratio": hits or {}}
    cases, runs = results(["cached"], metrics, block_size=4096, read_fraction=1.0, access="random", queue_depth=16)
    described = study({"cached": [level for (level,) in rates]}, [QUESTION])
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


def test_without_the_backing_device_alone_nothing_is_claimed() -> None:
    assert gains({COLD: [100.0, 101.0, 99.0], WARM: [50.0, 50.5, 49.5]}) == {}


def gain_by_block_size(rates: Mapping[tuple[str, int], list[float]]) -> CacheGain:
    cases, runs = results(["cached", "block_size"], {"iops": rates}, read_fraction=1.0, access="random", queue_depth=16)
    described = study({"cached": ["none", "warm"], "block_size": [4096, 65536]}, [QUESTION])
    [found] = [each for each in findings(described, cases, runs) if isinstance(each, CacheGain)]
    return found


def around(value: float) -> list[float]:
    return [0.99 * value, value, 1.01 * value]


def test_opposite_effects_of_two_cells_are_not_pooled_into_none() -> None:
    found = gain_by_block_size(
        {
            ("none", 4096): around(20_000),
            ("warm", 4096): around(10_000),
            ("none", 65536): around(1000),
            ("warm", 65536): around(2000),
        }
    )
    assert found.opposed
    assert (found.opposed.smallest, found.opposed.largest) == (("4 KiB blocks", 0.5), ("64 KiB blocks", 2))
    assert (found.decision, found.values) == ("same", None)
    assert found.sentence.endswith(
        ": throughput is higher in 1 and lower in 1 of 2 cells, from 0.50 times with 4 KiB blocks to 2.0 times with "
        "64 KiB blocks, compared with the backing device alone"
    )


def test_cells_within_the_noise_are_not_opposed() -> None:
    noisy = [700.0, 1000.0, 1500.0]
    found = gain_by_block_size(
        {
            ("none", 4096): noisy,
            ("warm", 4096): [0.9 * value for value in noisy],
            ("none", 65536): noisy,
            ("warm", 65536): [1.1 * value for value in noisy],
        }
    )
    assert (found.opposed, found.decision) == (None, "unclear")
