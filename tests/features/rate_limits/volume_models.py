"""Volumes for tests of the identification: token buckets as a fluid, and devices that no rule limits."""

from __future__ import annotations

import csv
import heapq
import math
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from iosonde.features.rate_limits.identify import Settings, identify
from iosonde.features.rate_limits.known_limits import Identification
from iosonde.features.rate_limits.series import Load, Series, Stage

KIB = 1024


def bin_length(stage: Stage) -> float:
    """Intervals of a tenth of a second, of long stages up to 200."""
    return max(0.1, stage.seconds / 200)


def series_of(stage: Stage, idle_s: float, length: float, counts: Sequence[float]) -> Series:
    share = stage.load.read_fraction
    return Series(
        load=stage.load,
        idle_s=idle_s,
        seconds=(length,) * len(counts),
        reads=tuple(each * share for each in counts),
        writes=tuple(each * (1 - share) for each in counts),
    )


@dataclass
class Limit:
    """A token bucket that starts full."""

    counts: str
    rate: float
    burst_rate: float | None = None
    bucket: float = 0.0
    unit_bytes: int | None = None
    merge: bool = False
    read_weight: float = 1.0
    write_weight: float = 1.0
    change: tuple[float, float] | None = None
    """Time, and the rate from then on."""
    credits: float = field(default=-1.0, repr=False)

    def cost(self, load: Load) -> float:
        size = float(load.block_size)
        if self.counts == "operations":
            size = math.ceil(load.block_size / self.unit_bytes) if self.unit_bytes else 1.0
            if self.merge and load.is_sequential:
                size = load.block_size / (self.unit_bytes or 128 * KIB)
        return size * (load.read_fraction * self.read_weight + (1 - load.read_fraction) * self.write_weight)


@dataclass
class Volume:
    """Limits in front of a device with a latency and a bandwidth."""

    limits: list[Limit]
    latency_s: float = 0.0002
    bandwidth: float = 3e9
    noise: float = 0.002
    seed: int = 0
    gap_s: float = 0.4
    now: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for limit in self.limits:
            limit.credits = limit.bucket

    def device_rate(self, load: Load) -> float:
        return min(load.queue_depth / self.latency_s, self.bandwidth / load.block_size)

    def serve(self, stage: Stage) -> Series:
        idle_s = stage.rest_s + self.gap_s
        self._idle(idle_s)
        length = bin_length(stage)
        bins = max(1, round(stage.seconds / length))
        counts, carry = [], 0.0
        for _ in range(bins):
            exact = self._advance(stage.load, length) * (1 + self.random.gauss(0, self.noise)) + carry
            whole = max(0, math.floor(exact))
            carry = exact - whole
            counts.append(float(whole))
        return series_of(stage, idle_s, length, counts)

    def _rate(self, limit: Limit) -> float:
        return limit.change[1] if limit.change and self.now >= limit.change[0] else limit.rate

    def _idle(self, seconds: float) -> None:
        for limit in self.limits:
            limit.credits = min(limit.bucket, limit.credits + self._rate(limit) * seconds)
        self.now += seconds

    def _advance(self, load: Load, length: float) -> float:
        """Operations in one bin; the bin is divided where a bucket becomes empty."""
        left, done = length, 0.0
        demand = self.device_rate(load)
        while left > 1e-12:
            allowed = demand
            for limit in self.limits:
                cost, rate = limit.cost(load), self._rate(limit)
                if cost > 0:
                    cap = rate if limit.credits <= 1e-9 else (limit.burst_rate or math.inf)
                    allowed = min(allowed, cap / cost)
            step = left
            for limit in self.limits:
                spending = allowed * limit.cost(load) - self._rate(limit)
                if spending > 1e-9 and limit.credits > 1e-9:
                    step = min(step, limit.credits / spending)
            for limit in self.limits:
                change = (self._rate(limit) - allowed * limit.cost(load)) * step
                limit.credits = min(limit.bucket, max(0.0, limit.credits + change))
                if limit.credits < 1e-6:
                    limit.credits = 0.0
            done += allowed * step
            left -= step
        self.now += length
        return done


@dataclass
class Device:
    """A device without a rule: noise, drift, and a cliff where its write cache is full."""

    rate: float
    latency_s: float
    bandwidth: float
    noise: float
    slow: float = 0.0
    """Share of the rate after the cliff."""
    cliff_s: float = math.inf
    """Time under load until the cliff."""
    decay: float = 0.0
    """Share of the rate lost per second under load."""
    recovery: float = 0.0
    """Seconds of cliff that a second of rest restores."""
    correlation: float = 0.0
    recorded: tuple[float, ...] = ()
    """Deviations of a recorded rate in intervals of 0.1 s, as shares of its mean, instead of `noise`."""
    seed: int = 0
    used_s: float = 0.0
    state: float = 0.0
    carry: float = 0.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.place = self.random.randrange(len(self.recorded) or 1)

    def _deviation(self, length: float) -> float:
        if not self.recorded:
            return self.correlation * self.state + self.random.gauss(0, self.noise)
        places = range(self.place, self.place + max(1, round(length / 0.1)))
        self.place = places.stop % len(self.recorded)
        return sum(self.recorded[each % len(self.recorded)] for each in places) / len(places)

    def serve(self, stage: Stage) -> Series:
        idle_s = stage.rest_s + 0.4
        self.used_s = max(0.0, self.used_s - idle_s * self.recovery)
        counts = []
        length = bin_length(stage)
        for _ in range(max(1, round(stage.seconds / length))):
            load = stage.load
            top = min(self.rate, load.queue_depth / self.latency_s, self.bandwidth / load.block_size)
            top /= 1 + 0.05 * math.log2(max(1, load.block_size / 4096))
            top *= self.slow if self.used_s > self.cliff_s else 1.0
            top *= max(0.2, 1 - self.decay * self.used_s)
            self.state = self._deviation(length)
            exact = max(0.0, top * length * (1 + self.state)) + self.carry
            counts.append(float(math.floor(exact)))
            self.carry = exact - counts[-1]
            self.used_s += length
        return series_of(stage, idle_s, length, counts)


@dataclass
class Servers:
    """A device of constant service time, which does not depend on the size: as constant as a rule."""

    count: int
    service_s: float
    added_s: float = 0.0
    """Time of an operation outside the device."""
    varies: float = 0.0
    """Standard deviation of the service time, as a share of it."""
    seed: int = 0
    carry: float = 0.0

    def serve(self, stage: Stage) -> Series:
        latency_s = self.service_s + self.added_s
        rate = min(self.count / self.service_s, stage.load.queue_depth / latency_s, stage.rate or math.inf)
        length, counts = bin_length(stage), []
        for _ in range(max(1, round(stage.seconds / length))):
            exact = rate * length + self.carry
            counts.append(float(math.floor(exact)))
            self.carry = exact - counts[-1]
        series = series_of(stage, stage.rest_s + 0.4, length, counts)
        rng = random.Random(self.seed)
        latencies = self._latencies(rng, stage.rate if stage.is_random else 0.0)
        return replace(series, distribution=[(each, 1) for each in latencies] if stage.has_distribution else ())

    def _latencies(self, rng: random.Random, rate: float | None) -> list[float]:
        """Latencies without a queue, or of random arrivals at a rate."""
        now, free, found = 0.0, [0.0] * self.count, []
        for _ in range(3000):
            now = now + rng.expovariate(rate) if rate else max(free)
            done = max(now, heapq.heappop(free)) + max(0.0, rng.gauss(1, self.varies)) * self.service_s
            heapq.heappush(free, done)
            found.append(done - now + self.added_s)
        return found


def random_servers(seed: int) -> Servers:
    """A serial device, or one with up to sixteen servers."""
    rng = random.Random(seed)
    count, service_s = rng.choice([1, 1, 2, 3, 4, 8, 16]), 10 ** rng.uniform(-3.5, -2)
    added_s = rng.choice([0.0, 0.05, rng.uniform(0, 2)]) * service_s
    return Servers(count, service_s, added_s=added_s, varies=rng.uniform(0, 0.15), seed=seed)


def run(settings: Settings, volume: Any) -> Identification:
    """Answer all stages of an identification from a model."""
    stages: Generator[Stage, Series, Identification] = identify(settings)
    try:
        stage = next(stages)
        while True:
            stage = stages.send(volume.serve(stage))
    except StopIteration as end:
        return end.value


def random_volume(seed: int) -> Volume:
    """A volume with one or two random limits."""
    rng = random.Random(seed)
    unit = rng.choice([None, None, 16 * KIB, 64 * KIB, 128 * KIB, 256 * KIB])
    kind = rng.choice(["operations", "operations", "both", "bytes"])
    shared = rng.random() < 0.6
    limits = []
    rate = 10 ** rng.uniform(2, 4)
    weight = rng.choice([1.0, 1.0, 2.0, 3.5, 0.5])
    with_burst = rng.random() < 0.6
    burst = rate * rng.uniform(1.5, 10) if with_burst else None
    bucket = rng.uniform(10, 100) * (burst - rate) if burst else 0.0
    if kind in ("operations", "both"):
        options = {"unit_bytes": unit, "merge": rng.random() < 0.3 and unit is not None}
        if kind == "both":  # A limit in bytes hides the unit, or is hidden by it.
            options = {}
        if shared:
            limits.append(Limit("operations", rate, burst, bucket, write_weight=weight, **options))
        else:
            limits.append(Limit("operations", rate, burst, bucket, write_weight=0.0, **options))
            limits.append(Limit("operations", rate * rng.uniform(0.3, 2), read_weight=0.0, **options))
    if kind == "both":
        limits.append(Limit("bytes", rate * rng.choice([32, 100, 180]) * KIB))
    if kind == "bytes":
        scale = rng.uniform(10e6, 190e6) / rate
        limits.append(
            Limit(
                "bytes", rate * scale, burst and burst * scale, bucket * scale, write_weight=weight if shared else 0.0
            )
        )
        if not shared:
            limits.append(Limit("bytes", rate * scale * rng.uniform(0.3, 2), read_weight=0.0))
    return Volume(limits, latency_s=rng.uniform(0.0001, 0.0005), noise=rng.uniform(0, 0.004), seed=seed)


def random_device(seed: int) -> Device:
    """A device without a rule."""
    rng = random.Random(seed)
    latency = 10 ** rng.uniform(-4.5, -2.2)
    return Device(
        rate=10 ** rng.uniform(2, 5.7),
        latency_s=latency,
        bandwidth=10 ** rng.uniform(8, 9.6),
        noise=10 ** rng.uniform(-2.5, -1),
        slow=rng.uniform(0.1, 0.8),
        cliff_s=rng.choice([math.inf, rng.uniform(3, 150)]),
        decay=rng.choice([0.0, 0.0, rng.uniform(0.0005, 0.01)]),
        recovery=rng.choice([0.0, 0.5, 3.0]),
        correlation=rng.choice([0.0, 0.8]),
        seed=seed,
    )


RECORDED = Path(__file__).parent / "recorded" / "disk.csv"
"""Completed I/Os of a virtual disk (virtio) in each 0.1 s for a minute, on two cores that other work kept busy:

    iosonde run STUDY --target FILE  # 4 KiB, span 256 MiB, interval 100 ms; factors read_fraction and queue_depth
"""


def device_with_recorded_noise(seed: int) -> Device:
    """A device without a rule, whose rate varies as that of a real disk, by as much or by down to a hundredth of it."""
    with RECORDED.open(encoding="utf-8", newline="") as file:
        series = [[float(each) for each in row["operations"].split()] for row in csv.DictReader(file)]
    rng = random.Random(seed)
    chosen = rng.choice(series)
    mean, scale = sum(chosen) / len(chosen), rng.choice([1.0, 10 ** rng.uniform(-2, 0)])
    return replace(random_device(seed), recorded=tuple(scale * (each / mean - 1) for each in chosen))
