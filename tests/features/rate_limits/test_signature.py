"""The signature of a rate limit in one run, and the latency that kinds of limiters add: token buckets by arithmetic, and devices."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Callable

import pytest

from iosonde.features.rate_limits.limiter import judge
from iosonde.features.rate_limits.run import Load, signature
from iosonde.features.rate_limits.series import Load as StageLoad
from iosonde.features.rate_limits.series import Series

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
    assert found.suspected_iops == pytest.approx(rate, rel=0.002)
    assert found.before_iops is None


def test_the_drop_from_a_burst_is_dated() -> None:
    found = signature(load(bucket(300, burst=3000, credits=54_000)))
    assert found is not None
    assert (found.suspected_iops, found.before_iops, found.dropped_at_s) == (
        pytest.approx(300, rel=0.01),
        pytest.approx(3000, rel=0.01),
        pytest.approx(20, abs=1.5),
    )


def test_where_a_load_or_a_controller_may_decide_the_rate_nothing_is_shown() -> None:
    assert signature(load(bucket(1900), depth=1, lowest_s=5e-4)) is None, "the queue is not full"
    fast = load(bucket(80_000), depth=256, lowest_s=1e-4)
    assert signature(fast) is None
    assert signature(fast, is_virtual=True) is not None, "a network volume"
    assert signature(load(bucket(3000), seconds=2, bin_s=0.1)) is None, "too short"
    assert signature(load(bucket(3000), seconds=5, bin_s=1)) is None, "too few intervals"


@pytest.mark.parametrize("variation", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_devices_whose_times_vary_are_not_limited(variation: float, seed: int) -> None:
    assert signature(load(renewals(5e-3, variation, 4, seed), depth=32, lowest_s=1e-3)) is None


RATE = 1000.0
SECONDS = 5


def series(latencies: list[float], *, seconds: float = SECONDS) -> Series:
    return Series(
        load=StageLoad(queue_depth=1),
        idle_s=0,
        seconds=(seconds,),
        reads=(float(len(latencies)),),
        writes=(0.0,),
        distribution=tuple((each, 1.0) for each in latencies),
    )


def device(rng: random.Random, spread: float = 0.1) -> float:
    return 0.0002 * rng.uniform(1 - spread, 1 + spread)


def queued(rng: random.Random) -> list[float]:
    """Each I/O passes 1 ms after the one before, and takes the device's latency from then."""
    done = [number / RATE + device(rng) for number in range(round(SECONDS * RATE))]
    return [after - before for before, after in zip(done, [*done[1:], done[-1] + 1 / RATE], strict=True)]


def paced(rng: random.Random) -> list[float]:
    return [1 / RATE] * round(SECONDS * RATE)


def batched(rng: random.Random) -> list[float]:
    """100 I/Os in each slice of 0.1 s, at the device's latency; the last one waits for the next slice."""
    found: list[float] = []
    for _ in range(10 * SECONDS):
        slice_s = [device(rng) for _ in range(99)]
        found += [*slice_s, 0.1 - sum(slice_s)]
    return found


@pytest.mark.parametrize(("model", "style"), [(queued, "queued"), (paced, "paced"), (batched, "batched")])
def test_each_kind_of_limiter_is_recognised(model: Callable[[random.Random], list[float]], style: str) -> None:
    rng = random.Random(3)
    found = judge(series(model(rng)), series([device(rng) for _ in range(300)]), RATE)
    assert found and found.style == style
    if style == "batched":
        assert found.wait_s == pytest.approx(0.08, rel=0.01)
        assert found.waiting == pytest.approx(0.01, rel=0.01)


def test_it_is_not_decided_where_the_latencies_do_not_show_it() -> None:
    rng = random.Random(4)
    below = series([device(rng) for _ in range(300)])
    slow = series([1.2 / RATE] * round(SECONDS * RATE / 1.2))
    undecided = judge(slow, below, RATE)
    assert undecided and (undecided.style, undecided.reason) == (
        "undecided",
        "a queue depth of 1 reaches 83 % of the limit",
    )
    constant = judge(series(paced(rng)), series([0.0002] * 300), RATE)
    assert constant and constant.style == "undecided"
    assert judge(series([]), below, RATE) is None
