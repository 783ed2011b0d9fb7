"""The signature of a rate limit: on token buckets by arithmetic, and not on sums of varying times."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable

import pytest

from iosonde.features.rate_limits.signature import Load, signature

Model = Callable[[float], float]
"""Operations that were completed by an instant."""


def bucket(rate: float, *, burst: float = 0, credits: float = 0) -> Model:
    """A token bucket under a load that asks for more."""
    empty_s = credits / (burst - rate) if burst else 0.0
    return lambda at_s: float(int(min(at_s, empty_s) * burst + max(0.0, at_s - empty_s) * rate))


def load(done: Model, *, seconds: float = 60, bin_s: float = 1, depth: int = 32, lowest_s: float = 5e-4) -> Load:
    """Series that a run with a full queue sees of it."""
    edges = [number * bin_s for number in range(round(seconds / bin_s) + 1)]
    counts = [done(after) - done(before) for before, after in itertools.pairwise(edges)]
    bins = [bin_s] * len(counts)
    return Load(seconds=bins, operations=counts, bytes=4096 * sum(counts), lowest_latency_s=lowest_s, queue_depth=depth)


def renewals(mean_s: float, variation: float, dies: int, seed: int) -> Model:
    """A device: so many dies, whose times vary uniformly by up to a fraction."""
    draw, times = random.Random(seed), []
    for _ in range(dies):
        at = draw.random() * mean_s
        while at < 61:
            times.append(at)
            at += mean_s * (1 + variation * (2 * draw.random() - 1))
    times.sort()
    return lambda at_s: float(bisect_right(times, at_s))


@pytest.mark.parametrize("rate", [120, 300, 1000, 3000, 16_000])
@pytest.mark.parametrize("bin_s", [0.1, 1.0])
def test_a_token_bucket_is_recognised_with_its_rate(rate: float, bin_s: float) -> None:
    found = signature(load(bucket(rate), bin_s=bin_s, lowest_s=1e-4))
    assert found is not None
    assert found.rate == pytest.approx(rate, rel=0.002)
    assert found.before is None


def test_the_drop_from_a_burst_is_dated() -> None:
    found = signature(load(bucket(300, burst=3000, credits=54_000)))
    assert found is not None
    assert (found.rate, found.before, found.dropped_at_s) == (
        pytest.approx(300, rel=0.01),
        pytest.approx(3000, rel=0.01),
        pytest.approx(20, abs=1.5),
    )


def test_a_queue_that_is_not_full_shows_nothing() -> None:
    assert signature(load(bucket(1900), depth=1, lowest_s=5e-4)) is None


def test_a_rate_that_a_controller_reaches_is_judged_on_network_volumes_only() -> None:
    fast = load(bucket(80_000), depth=256, lowest_s=1e-4)
    assert signature(fast) is None
    assert signature(fast, is_virtual=True) is not None


@pytest.mark.parametrize("variation", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_devices_whose_times_vary_are_not_limited(variation: float, seed: int) -> None:
    assert signature(load(renewals(5e-3, variation, 4, seed), depth=32, lowest_s=1e-3)) is None


def test_a_run_of_a_few_intervals_shows_nothing() -> None:
    assert signature(load(bucket(3000), seconds=2, bin_s=0.1)) is None
    assert signature(load(bucket(3000), seconds=5, bin_s=1)) is None
