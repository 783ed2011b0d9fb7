"""The signature of a rate limit in one run: a rate more constant than devices are, at a queue that is full.

A token bucket completes as many operations in every second, to within a few, while those of a device are the sum of
many times that vary: they wander from a straight line like the square root of their number. So the number of completed
operations is compared with a line. Two conditions exclude what looks alike. The queue must be full: with the lowest
latency of the run and its queue depth, Little's law must give a multiple of the rate, or the load decides it. And the
rate must be one that a device's controller or link does not reach: those may be as constant as a rule.

Bins shorter than a limiter's own period (100 ms in the kernel) are joined.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from iosonde.features.rate_limits.record import RateLimits

Floats = NDArray[np.float64]

WANDERING = 0.001
"""Largest distance of the completed operations from a line, as a share of them."""
SPREAD = 0.004
"""Largest deviation of a bin from the rate, as a share of it."""
WHOLE = 1.5
"""Operations that counting whole ones adds to both."""
BINS_MIN = 10
OPERATIONS_MIN = 150
"""Completed in each bin; bins with fewer are joined."""
SECONDS_MIN = 3.0
THROTTLED = 3.0
"""Rate that the queue depth would give at the lowest latency, as a multiple of the rate found."""
DROP = 1.1
"""Earlier rate, as a multiple of the later one, that is a drop."""

DEVICE_OPERATIONS = 20_000
DEVICE_BYTES = 82_000_000
"""Above these rates a controller or link may be as constant: not judged on a device that may be a physical one."""
VIRTUAL_OPERATIONS = 400_000
VIRTUAL_BYTES = 5_000_000_000
"""The same on a device that is known to be virtual."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Operations of a closed loop over time; one element of each sequence for a bin."""

    seconds: Sequence[float]
    operations: Sequence[float]
    bytes: float
    """All bytes over all operations: the mean size."""
    lowest_latency_s: float
    """Lowest completion latency of the run."""
    queue_depth: int
    """Operations in flight, of all jobs."""


def signature(load: Load, *, is_virtual: bool = False) -> RateLimits | None:
    """Return the constant rate that a run ends with, and the one before it if it dropped; None without a signature."""
    seconds, counts = _joined(np.asarray(load.seconds, float), np.asarray(load.operations, float))
    if len(counts) < BINS_MIN:
        return None
    start = _start_of_last_level(seconds, counts)
    length, total = float(seconds[start:].sum()), float(counts[start:].sum())
    size = load.bytes / max(1.0, float(sum(load.operations)))
    if len(counts) - start < BINS_MIN or length < SECONDS_MIN or not _is_constant(seconds[start:], counts[start:]):
        return None
    rate = total / length
    possible = load.queue_depth / load.lowest_latency_s if load.lowest_latency_s > 0 else 0.0
    most = (VIRTUAL_OPERATIONS, VIRTUAL_BYTES) if is_virtual else (DEVICE_OPERATIONS, DEVICE_BYTES)
    if rate > most[0] or rate * size > most[1] or possible < THROTTLED * rate:
        return None
    before = float(counts[:start].sum() / seconds[:start].sum()) if start else None
    is_drop = before is not None and before > DROP * rate
    return RateLimits(
        suspected_iops=rate,
        suspected_bytes_per_second=rate * size,
        constant_s=length,
        before_iops=before if is_drop else None,
        dropped_at_s=float(seconds[:start].sum()) if is_drop else None,
    )


def _joined(seconds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Join neighbouring bins until each has enough operations and lasts long enough. The last may be incomplete."""
    typical = float(np.median(seconds)) if len(seconds) else 0.0
    whole = seconds >= 0.5 * typical
    seconds, counts = seconds[whole], counts[whole]
    if len(counts) == 0 or counts.sum() == 0:
        return np.zeros(0), np.zeros(0)
    later = counts[len(counts) // 2 :]
    size = max(1, int(np.ceil(OPERATIONS_MIN / max(1.0, float(np.median(later))))))
    size = max(size, int(np.ceil(0.1 / max(typical, 1e-9))))
    count = len(counts) // size * size
    # The end counts: a remainder is left out at the start.
    return (
        seconds[len(seconds) - count :].reshape(-1, size).sum(axis=1),
        counts[len(counts) - count :].reshape(-1, size).sum(axis=1),
    )


def _start_of_last_level(seconds: Floats, counts: Floats) -> int:
    """Return the first bin of the stretch at the end whose bins agree with the median of the last ones."""
    rates = counts / seconds
    level = float(np.median(rates[-BINS_MIN:]))
    allowed = SPREAD * level + WHOLE / float(np.median(seconds))
    backwards = itertools.takewhile(lambda rate: abs(rate - level) <= allowed, reversed(rates.tolist()))
    return len(rates) - sum(1 for _ in backwards)


def _is_constant(seconds: Floats, counts: Floats) -> bool:
    times, done = np.cumsum(seconds), np.cumsum(counts)
    rate = float(counts.sum() / seconds.sum())
    apart = done - rate * times
    distance = float(apart.max() - apart.min()) / 2
    return distance <= WHOLE + WANDERING * float(counts.sum())
