"""Rates of a closed-loop load over time: segments of constant rate, and what a bucket held at the start.

Everything here is arithmetic on counts of completed operations. `Stage` is what the identification requests, `Series`
what it receives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

CONSTANT = 0.01
"""Largest spread of a rate that counts as constant, as a share of it."""
STEP = 0.03
"""Smallest difference of two rates that counts as a step, as a share of the larger."""
_BIN_S = 0.5
_BIN_OPERATIONS = 100
_LEAST_BINS = 3
_JOINED_BINS = 6
"""Joined bins that a deviation is estimated from."""


Distribution = tuple[tuple[float, float], ...]
"""Latencies in seconds, each with the number of I/Os."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """A closed loop on one volume."""

    block_size: int = 4096
    read_fraction: float = 1.0
    is_sequential: bool = False
    queue_depth: int = 64


@dataclass(frozen=True, kw_only=True)
class Region:
    """Blocks at equal distances."""

    offset: int
    bytes: int
    stride: int


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A rest of known length, then a load."""

    name: str
    load: Load
    seconds: float
    rest_s: float = 0.0
    region: Region | None = None
    """Blocks to access in order; None: blocks of the whole span, as the load says."""
    rate: int | None = None
    """Operations per second of an open loop; None: a closed loop."""
    is_random: bool = False
    """True if the arrivals of the open loop are random (Poisson)."""
    has_distribution: bool = False
    """True if the distribution of latencies is needed."""
    volumes: tuple[int, ...] = ()
    """Volumes to load, by their places in the target; empty: the whole target."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Operations over time under one load. Idle time between runs is part of the time axis."""

    load: Load
    idle_s: float
    """Without load before the first bin: the rest, and the time that the run took to start."""
    seconds: tuple[float, ...]
    """Length of each bin."""
    reads: tuple[float, ...]
    writes: tuple[float, ...]
    idle: tuple[bool, ...] = ()
    """True for bins between runs, in which operations in flight complete; empty: none."""
    name: str = ""
    latencies_s: tuple[float, ...] = ()
    """Mean latency of the operations of each bin that has some."""
    request_bytes: int = 0
    """Largest operation that reaches the device as one request; 0: not known."""
    distribution: Distribution = ()
    """Latencies of all I/Os, if the stage requests them."""
    is_harness_limited: bool = False
    """True if the verdict on its run names the harness as the limit."""
    is_disturbed: bool = False
    """True if other load took CPU time from the engine."""
    in_flight_before: float = 0.0
    """Operations of the stage before that were in flight at its end, and completed in the idle time."""

    def then(self, other: Series) -> Series:
        """Append a series of the same load."""
        gap = (other.idle_s,) if other.idle_s > 0 else ()
        reads = other.in_flight_before * self.load.read_fraction
        writes = other.in_flight_before - reads
        return replace(
            self,
            seconds=(*self.seconds, *gap, *other.seconds),
            reads=(*self.reads, *(reads,) * len(gap), *other.reads),
            writes=(*self.writes, *(writes,) * len(gap), *other.writes),
            idle=(*self._idle, *(True,) * len(gap), *other._idle),
        )

    def after(self, seconds: float) -> Series:
        """The series without the bins that begin in its first seconds."""
        ends = np.cumsum(self.seconds)
        count = min(int(np.searchsorted(ends, seconds)) + 1 if seconds > 0 else 0, len(ends) - 1)
        return replace(
            self,
            seconds=self.seconds[count:],
            reads=self.reads[count:],
            writes=self.writes[count:],
            idle=self.idle[count:],
        )

    @property
    def _idle(self) -> tuple[bool, ...]:
        return self.idle or (False,) * len(self.seconds)

    @property
    def loaded_s(self) -> float:
        """Time under load."""
        return sum(length for length, idle in zip(self.seconds, self._idle, strict=True) if not idle)

    @property
    def operations(self) -> NDArray[np.float64]:
        return np.asarray(self.reads, dtype=np.float64) + np.asarray(self.writes, dtype=np.float64)

    def segments(self) -> list[Segment]:
        """Divide the time under load into stretches of constant rate."""
        starts = np.concatenate(([0.0], np.cumsum(self.seconds)[:-1])) if self.seconds else np.zeros(0)
        chosen = ~np.asarray(self._idle, dtype=bool)
        edges, lengths, counts = _merged(starts[chosen], np.asarray(self.seconds)[chosen], self.operations[chosen])
        if not len(lengths):
            return []
        rates = counts / lengths
        cuts = [0, *sorted(_cuts(rates, lengths, 0, len(rates))), len(rates)]
        return [
            _segment(edges[low:high], lengths[low:high], counts[low:high]) for low, high in itertools.pairwise(cuts)
        ]

    def tail(self) -> Tail:
        """Return the last segment, and what was completed beyond its rate since the start."""
        last = self.segments()[-1]
        times, counts = np.cumsum(self.seconds), np.cumsum(self.operations)
        chosen = times >= min(last.start_s + last.seconds / 2, times[-1])
        held = float(np.mean(counts[chosen] - last.rate * times[chosen]))
        return Tail(rate=last.rate, held=held, segment=last)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of a series without a step."""

    start_s: float
    seconds: float
    rate: float
    """Operations per second."""
    spread: float
    """Robust standard deviation of the rate of its bins, as a share of it, less what counting whole operations adds.

    The least over joined bins, each as that of independent ones: a limiter on a busy machine falls behind and makes up
    for it, so that its deviations cancel out in longer bins; those of devices accumulate.
    """
    bins: int

    @property
    def is_constant(self) -> bool:
        return self.bins >= _LEAST_BINS and self.spread <= CONSTANT

    @property
    def error(self) -> float:
        """Half-width of the rate's interval, in operations per second."""
        counted = 1.0 / max(self.seconds, 1e-9)
        return 2 * self.spread * self.rate / math.sqrt(max(self.bins, 1)) + counted


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The end of a series."""

    rate: float
    """Operations per second in the last segment."""
    held: float
    """Operations completed beyond that rate: what a bucket that is empty now held at the start."""
    segment: Segment


def _merged(
    starts: NDArray[np.float64], lengths: NDArray[np.float64], counts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Join neighbouring bins to about half a second, longer where fewer than 100 operations complete in that time.

    A device averages out over long bins, so they do not grow with the series.
    """
    total, seconds = float(counts.sum()), float(lengths.sum())
    if total <= 0:
        return starts, lengths, counts
    width = min(max(_BIN_S, _BIN_OPERATIONS * seconds / total), seconds / (4 * _LEAST_BINS))
    places = np.flatnonzero(np.diff(np.floor((np.cumsum(lengths) - lengths / 2) / width), prepend=-1.0))
    merged = starts[places], np.add.reduceat(lengths, places), np.add.reduceat(counts, places)
    if len(places) > 1 and merged[1][-1] < 0.7 * width:  # A short last bin would count as noise.
        return merged[0][:-1], merged[1][:-1], merged[2][:-1]
    return merged


def _segment(starts: NDArray[np.float64], lengths: NDArray[np.float64], counts: NDArray[np.float64]) -> Segment:
    inner = slice(1, -1) if len(lengths) >= 2 * _LEAST_BINS else slice(None)
    rates = counts[inner] / lengths[inner]
    rate = _level(rates, lengths[inner])
    spread = _spread(lengths[inner], counts[inner], rate) if rate > 0 else math.inf
    return Segment(start_s=float(starts[0]), seconds=float(lengths.sum()), rate=rate, spread=spread, bins=len(rates))


def _spread(lengths: NDArray[np.float64], counts: NDArray[np.float64], rate: float) -> float:
    found, joined = [], 1
    while joined == 1 or len(counts) // joined >= _JOINED_BINS:
        used = len(counts) // joined * joined
        together = counts[:used].reshape(-1, joined).sum(axis=1)
        rates = together / lengths[:used].reshape(-1, joined).sum(axis=1)
        deviation = 1.4826 * float(np.median(np.abs(rates - np.median(rates))))
        counting = 1.0 / max(float(np.median(together)), 1e-9)
        found.append(math.sqrt(joined * max(0.0, (deviation / rate) ** 2 - counting**2)))
        joined *= 2
    return min(found)


def _level(rates: NDArray[np.float64], lengths: NDArray[np.float64]) -> float:
    """Mean rate; of many bins that of their middle half, because other work on the machine slows down single ones."""
    if len(rates) < 4 * _LEAST_BINS:
        return float(np.average(rates, weights=lengths))
    kept = np.argsort(rates)[len(rates) // 4 : -(len(rates) // 4)]
    return float(np.average(rates[kept], weights=lengths[kept]))


def _cuts(rates: NDArray[np.float64], lengths: NDArray[np.float64], low: int, high: int) -> list[int]:
    """Binary segmentation: places where the mean rate changes by more than noise and by at least `STEP`."""
    if high - low < 2 * _LEAST_BINS:
        return []
    part, weights = rates[low:high], lengths[low:high]
    place = _best_cut(part, weights)
    if place is None:
        return []
    before, after = part[:place], part[place:]
    first, second = float(np.median(before)), float(np.median(after))
    noise = 1.4826 * float(np.median(np.abs(np.diff(part)))) / math.sqrt(2)
    error = noise * math.sqrt(1 / len(before) + 1 / len(after))
    if abs(first - second) < STEP * max(first, second, 1e-9) or abs(first - second) < 4 * error:
        return []
    cut = low + place
    return [*_cuts(rates, lengths, low, cut), cut, *_cuts(rates, lengths, cut, high)]


def _best_cut(part: NDArray[np.float64], weights: NDArray[np.float64]) -> int | None:
    """Return the place that leaves the least squared deviation from the means of both sides."""
    sums, totals = np.cumsum(part * weights), np.cumsum(weights)
    places = np.arange(_LEAST_BINS, len(part) - _LEAST_BINS + 1)
    left = sums[places - 1] ** 2 / totals[places - 1]
    right = (sums[-1] - sums[places - 1]) ** 2 / np.maximum(totals[-1] - totals[places - 1], 1e-12)
    return int(places[np.argmax(left + right)]) if len(places) else None


def deficit(history: Sequence[Series], load_cost: Sequence[float], rate: float) -> float:
    """Return the credits missing from a bucket of unknown size that was full before these series, at their end.

    `load_cost` is the cost of an operation of each series; the bucket refills at `rate` and cannot hold more than full.
    """
    missing, before = 0.0, 0.0
    for series, cost in zip(history, load_cost, strict=True):
        missing = max(0.0, missing + before * series.in_flight_before - rate * series.idle_s)
        before = cost
        for length, count in zip(series.seconds, series.operations, strict=True):
            missing = max(0.0, missing + count * cost - rate * length)
    return missing
