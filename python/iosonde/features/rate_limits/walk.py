"""The walk through the stages of an identification: its settings, what it knows so far, drains and probes."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from iosonde.features.rate_limits.rules import Identification, Notes
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage, Tail
from iosonde.units import MIB

SAME = 0.02
"""Largest difference of two rates that count as the same, as a share."""
_LEAST_DEPTH = 8
COUNTED = 500
"""Operations that a stage should complete, so that counting whole ones adds little error."""
KIB = 1024

Stages = Generator[Stage, Series, None]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Bounds of an identification."""

    probe_s: float = 5.0
    """Length of a short stage."""
    drain_s: float = 170.0
    """Longest time to drain one bucket."""
    rest_s: float = 120.0
    """Longest rest; 0: none."""
    total_s: float = math.inf
    """Time of all stages together, after which no further one starts."""
    smallest: int = 4 * KIB
    largest: int = MIB
    queue_depth: int = 64
    reads: bool = True
    writes: bool = False
    touch_span: int = 0
    """Bytes in which first accesses are measured; 0: they are not."""


class FailedError(Exception):
    """A stage has no result."""


class StoppedError(Exception):
    """Thrown into an identification whose study was stopped in the named stage: there are no further series."""


class OutOfTimeError(Exception):
    """The next stage would end after the time bound."""


@dataclass
class Point:
    """The rate with one size of block."""

    size: int
    rate: float
    segment: Segment


@dataclass
class Walk:
    """The stages so far."""

    settings: Settings
    history: list[Series] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    known: Identification = field(default_factory=lambda: Identification(verdict="undecided", reason=""))
    """Conclusions so far, apart from notes."""
    used_s: float = 0.0
    reserved_s: float = 0.0
    """Time kept for the last stages."""
    burst: float = 0.0
    """Rate above the sustained one while there are credits; 0: none seen."""
    sustained: float = 0.0

    def run(self, stage: Stage) -> Generator[Stage, Series, Series]:
        series = yield from self.request(stage)
        self.history.append(series)
        return series

    def request(self, stage: Stage) -> Generator[Stage, Series, Series]:
        """Carry out a stage whose operations spend no credits."""
        if self.used_s + stage.rest_s + stage.seconds > self.settings.total_s - self.reserved_s:
            raise OutOfTimeError(stage.name)
        series = yield stage
        self.used_s += series.idle_s + sum(series.seconds)
        return replace(series, name=stage.name)

    @property
    def largest(self) -> int:
        """Largest block that reaches the device as one request; a limit counts each part of larger ones."""
        smallest = self.settings.smallest
        whole = min((each.request_bytes for each in self.history if each.request_bytes), default=self.settings.largest)
        return min(self.settings.largest, max(4 * smallest, whole // smallest * smallest))

    def seconds(self, rate: float) -> float:
        """Length of a stage at a rate, in operations per second."""
        wanted = COUNTED / rate if rate > 0 else 0.0
        return min(max(self.settings.probe_s, wanted), max(self.settings.probe_s, self.settings.drain_s))

    def drain(
        self, name: str, load: Load, limit_s: float, *, known: float | None = None
    ) -> Generator[Stage, Series, Series]:
        """Continue in stages of growing length until the rate has dropped and is constant, or time is up.

        `known` is the rate with an empty bucket, once it is known: the drain ends when it is reached.
        """
        whole: Series | None = None
        length = min(self.settings.probe_s, limit_s)
        number = 0
        while True:
            number += 1
            part = yield from self.run(Stage(name=f"{name}-{number}", load=load, seconds=length))
            whole = part if whole is None else whole.then(part)
            left = limit_s - whole.loaded_s
            tail = last_segment(whole)
            is_known = known is not None and same(tail.rate, known) and tail.seconds > 0.5 * self.settings.probe_s
            if left < 0.2 * self.settings.probe_s or is_known or _has_dropped(whole, self.settings.probe_s):
                return whole
            enough = 0.0 if tail.rate <= 0 else COUNTED / tail.rate
            length = min(left, max(whole.loaded_s, enough / 4))
            length = left if left - length < self.settings.probe_s else length

    def tail(self, whole: Series) -> Tail:
        """The end of a drain; by its last stage alone where the starts of stages hide that the rate is constant.

        A limiter lets operations through at once at the start of each stage: its own few, and credits that came back
        between stages.
        """
        found, last = whole.tail(), last_segment(self.history[-1])
        is_most = last.seconds >= found.segment.seconds / 2
        if not last.is_constant or (found.segment.is_constant and not is_most):
            return found
        if not is_most and abs(last.rate / found.rate - 1) > STEP:
            return found
        held = float(whole.operations.sum()) - last.rate * sum(whole.seconds)
        return Tail(rate=last.rate, held=held, segment=last)

    def probe(self, name: str, load: Load, expected: float) -> Generator[Stage, Series, Point]:
        """One short stage; the rate of its last segment."""
        segment = yield from self._probe(name, load, self.seconds(expected))
        if segment.rate > 0 and segment.rate * segment.seconds < COUNTED / 3 and self.settings.drain_s > 30:
            segment = yield from self._probe(f"{name}-again", load, self.seconds(segment.rate))
        return Point(size=load.block_size, rate=segment.rate, segment=segment)

    def _probe(self, name: str, load: Load, seconds: float) -> Generator[Stage, Series, Segment]:
        """Return the last segment without the time in which the load spends the credits of the idle time before."""
        longer = min(self._spending_s(self.history[-1].idle_s), self.settings.probe_s)
        series = yield from self.run(Stage(name=name, load=load, seconds=seconds + longer))
        return last_segment(series.after(min(self._spending_s(series.idle_s), series.loaded_s / 2)))

    def _spending_s(self, idle_s: float) -> float:
        if self.burst <= (1 + STEP) * self.sustained:
            return 0.0
        return 1.2 * idle_s * self.sustained / (self.burst - self.sustained)


def sized(load: Load, size: int) -> Load:
    """The same load with another block size, and no more in flight than 4 MiB or 8 operations."""
    depth = min(load.queue_depth, max(_LEAST_DEPTH, 4 * MIB // size))
    return replace(load, block_size=size, queue_depth=depth)


def load_text(load: Load) -> str:
    """Name a load in a statement."""
    return f"{load.block_size // KIB} KiB {'reads' if load.read_fraction else 'writes'}"


def last_segment(series: Series) -> Segment:
    segments = series.segments()
    if not segments:
        raise FailedError(f"no I/O completed in the stage {series.name}")
    return segments[-1]


def _has_dropped(series: Series, least_s: float) -> bool:
    """True if a drop was seen and the rate after it was constant for long enough."""
    segments = series.segments()
    if len(segments) < 2:
        return False
    last, before = segments[-1], segments[-2]
    long_enough = last.seconds >= least_s and last.rate * last.seconds >= COUNTED / 2
    return last.rate < before.rate and last.is_constant and long_enough


def same(one: float, other: float) -> bool:
    return other > 0 and abs(one / other - 1) <= SAME
