"""Error rates of the sequential test of a limit by simulation: the table of docs/requirements.md.

    python bench/limit_error_rates.py [--runs 500] [--seed 1]

Latencies are log-normal, with a factor common to each block of half a second whose logarithm is an AR(1) process. Their
99th percentile is the limit times the number in the first column. The test is repeated every second of one minute, as
`iosonde qualify` does. Deterministic for a seed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from shared import options, table

from iosonde.metrics.limit_test import BLOCK_NS, CLEAR, Blocks, compare, decide

SECOND = 10**9
BLOCKS = 60 * SECOND // BLOCK_NS
SHARE = 0.01
_P99 = 2.3263478740408408
"""Standard normal quantile."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """Latencies relative to the limit."""

    p99: float
    rate: int = 400
    """Operations per second."""
    spread: float = 0.5
    """Standard deviation of the logarithm of the latency."""
    common: float = 0.5
    """Part of it that the operations of a block share."""
    correlation: float = 0.5
    """Of that part between neighbouring blocks."""


Minute = tuple[Blocks, Blocks]
"""Operations slower than the limit, and those slower than one that only clear values meet."""


def simulated(device: Device, random: np.random.Generator) -> Minute:
    """One minute on a device."""
    shared, own = device.spread * device.common, device.spread * math.sqrt(1 - device.common**2)
    steps = random.standard_normal(BLOCKS)
    for place in range(1, BLOCKS):
        steps[place] = device.correlation * steps[place - 1] + math.sqrt(1 - device.correlation**2) * steps[place]
    center = math.log(device.p99) - _P99 * device.spread + shared * steps
    above_limit, above_clear = ndtr(center / own), ndtr((center - math.log(CLEAR)) / own)
    operations = np.full(BLOCKS, device.rate * BLOCK_NS // SECOND)
    near = random.binomial(operations, above_clear)
    slow = random.binomial(near, above_limit / np.maximum(above_clear, 1e-300))
    weights = operations.astype(float)
    return Blocks(amounts=slow.astype(float), weights=weights), Blocks(amounts=near.astype(float), weights=weights)


def stalling(stalls_at: list[float], *, rate: int, length: float = 0.2, service: float = 0.002) -> Minute:
    """One minute of an open loop on a device that serves one operation at a time and stalls; the limit is 10 ms."""
    due = np.arange(0, BLOCKS * BLOCK_NS / SECOND, 1 / rate)
    taken, free, remaining = [], 0.0, sorted(stalls_at)
    for instant in due:
        start = max(free, instant)
        while remaining and remaining[0] <= start + service:
            start = max(start, remaining.pop(0) + length)
        free = start + service
        taken.append(free - instant)
    block = (due * SECOND // BLOCK_NS).astype(int)
    weights = np.bincount(block, minlength=BLOCKS).astype(float)
    slow, near = (
        Blocks(amounts=np.bincount(block, weights=np.array(taken) > limit, minlength=BLOCKS), weights=weights)
        for limit in (0.01, 0.01 * CLEAR)
    )
    return slow, near


def first(blocks: Blocks, length: int) -> Blocks:
    return Blocks(amounts=blocks.amounts[:length], weights=blocks.weights[:length])


def decided(minute: Minute) -> tuple[str, float]:
    """The result of the test, and after how many seconds."""
    per_second = SECOND // BLOCK_NS
    for length in range(per_second, BLOCKS + 1, per_second):
        at_limit, clear = (compare(first(each, length), SHARE, is_share=True) for each in minute)
        assert at_limit and clear, "there are operations"
        passed = decide(at_limit, clear, first(minute[0], length), good="below")
        if passed is not None:
            return "pass" if passed else "fail", length / per_second
    return "undecided", BLOCKS / per_second


def outcomes(device: Device, runs: int, seed: int) -> tuple[Counter[str], float]:
    """Return the number of tests by outcome, and the median time in seconds."""
    random = np.random.default_rng(seed)
    ended = [decided(simulated(device, random)) for _ in range(runs)]
    return Counter(side for side, _ in ended), float(np.median([seconds for _, seconds in ended]))


def main() -> None:
    given = options(__doc__, runs=500, seed=1)
    rows = []
    for p99 in (0.8, 0.9, 1.1, 1.2):
        for rate, spread in ((100, 0.3), (400, 0.3), (400, 0.5), (2000, 0.5)):
            counts, seconds = outcomes(Device(p99=p99, rate=rate, spread=spread), given.runs, given.seed)
            shares = (f"{100 * counts[side] / given.runs:.1f}" for side in ("pass", "fail", "undecided"))
            rows.append([str(p99), str(rate), str(spread), *shares, f"{seconds:.0f}"])
    head = ("p99 / limit", "operations/s", "spread", "pass, %", "fail, %", "undecided, %", "median time, s")
    print(table(head, rows))


if __name__ == "__main__":
    main()
