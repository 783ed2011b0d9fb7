"""The walk through the stages of an identification: its settings, what it knows so far, drains and probes."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from pydantic import BaseModel, ConfigDict

from iosonde.features.rate_limits.known_limits import Estimate, Identification
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage, Tail, deficit
from iosonde.units import MIB

SAME = 0.02
"""Largest difference of two rates that count as the same, as a share."""
_LEAST_DEPTH = 8
COUNTED = 500
"""Operations that a stage should complete, so that counting whole ones adds little error."""
KIB = 1024

Stages = Generator[Stage, Series, None]


class Settings(BaseModel):
    """Bounds of an identification, as a plan has them."""

    model_config = ConfigDict(frozen=True)

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
    """Bytes in which first accesses are measured; 0: they are not. Not in a plan, since it follows from the target."""


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
    known: Identification = field(default_factory=Identification)
    """Conclusions so far."""
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


_BETWEEN = 1.25
"""Factor from the first and the last rate at which a rate is clearly between them."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Credits of one limit, in operations of the load that it was determined with."""

    credits: float = 0.0
    """In the bucket when it is full; 0: none seen."""
    estimates: tuple[Estimate, ...] = ()
    refills: tuple[Estimate, ...] = ()
    burst: Segment | None = None
    changed: bool = False
    mismatch: bool = False
    """True if what came back is not what the sustained rate predicts."""
    rest_missing: bool = False
    """True if no rest was possible within the bounds."""
    is_gradual: bool = False
    """True if the rate fell gradually, not from one value to another."""


def find_bucket(
    walk: Walk, name: str, load: Load, cost: float, series: Series, tail: Tail
) -> Generator[Stage, Series, Bucket]:
    """Rest, drain again, and compare what came back with the sustained rate; `series` drained it first."""
    segments = series.segments()
    head = _head(walk, series)
    has_burst = len(segments) > 1 and head.rate > (1 + STEP) * tail.rate
    noise = max(20.0, 3 * tail.segment.error * sum(series.seconds), 0.1 * tail.rate)
    if not has_burst and tail.held < noise:
        return Bucket()
    if has_burst and _falls_gradually(segments, head, tail):
        return Bucket(burst=head, is_gradual=True)
    history = [each for each in walk.history if each.load.read_fraction == load.read_fraction]
    until = next((place for place, each in enumerate(history) if each.name.startswith(series.name[:-1])), 0)
    count = sum(1 for each in history if each.name.startswith(series.name[:-1]))
    used = history[: until + count]
    # In operations of `load`: of another size by bytes, if its cost is its size.
    by_bytes = cost == load.block_size
    costs = [each.load.block_size / load.block_size if by_bytes else 1.0 for each in used]
    first = deficit(used, costs, tail.rate) if has_burst else tail.held
    estimates = [Estimate(method="drained from the start", value=first)]
    full_s = first / tail.rate
    if full_s < 2 or not has_burst or walk.settings.rest_s < 1:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head if has_burst else None, rest_missing=True)
    refills: list[Estimate] = []
    burst_s = first / max(head.rate - tail.rate, 1e-9)
    lengths = [min(walk.settings.rest_s, share * full_s) for share in (0.3, 0.6)]
    drain_s = min(walk.settings.drain_s, 1.2 * burst_s + 2 * walk.settings.probe_s)
    for number, rest_s in enumerate(dict.fromkeys(lengths), start=1):
        yield from walk.drain(f"{name}-empty{number}", load, drain_s, known=tail.rate)
        back = yield from _back(walk, f"{name}-rest{number}", load, tail, head, rest_s)
        refills.append(Estimate(method=f"came back in {back[0]:.3g} s", value=back[1] / back[0]))
    if refills and refills[0].value < 0.2 * tail.rate:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head, changed=True)
    mismatch = any(abs(each.value / tail.rate - 1) > 0.05 for each in refills)
    if 1.3 * full_s <= walk.settings.rest_s:
        full = yield from _back(walk, f"{name}-full", load, tail, head, 1.3 * full_s, is_full=True)
        if full[1] > 1.04 * first and 1.7 * full[1] / tail.rate <= walk.settings.rest_s:
            estimates = [Estimate(method="drained after a rest", value=full[1])]
            full = yield from _back(walk, f"{name}-full2", load, tail, head, 1.7 * full[1] / tail.rate, is_full=True)
        estimates.append(Estimate(method=f"drained after {full[0]:.3g} s of rest", value=full[1]))
    return Bucket(
        credits=estimates[-1].value,
        estimates=tuple(estimates),
        refills=tuple(refills),
        burst=head,
        mismatch=mismatch,
    )


def _head(walk: Walk, series: Series) -> Segment:
    """The first segment, by the first stage alone where that is a good part of it: credits come back between stages."""
    head = series.segments()[0]
    first = next(each for each in walk.history if each.name == series.name).segments()
    return first[0] if len(first) == 1 and first[0].seconds >= head.seconds / 3 else head


def _falls_gradually(segments: Sequence[Segment], head: Segment, tail: Tail) -> bool:
    """True if the rate was clearly between its first and its last value for a quarter of the time before the last."""
    before = segments[:-1]
    between = [each.seconds for each in before if _BETWEEN * tail.rate < each.rate < head.rate / _BETWEEN]
    return sum(between) > sum(each.seconds for each in before) / 4


def _back(
    walk: Walk, name: str, load: Load, tail: Tail, head: Segment, rest_s: float, *, is_full: bool = False
) -> Generator[Stage, Series, tuple[float, float]]:
    """Rest, then drain: the length of the rest, and the credits that came back."""
    burst_s = rest_s * tail.rate / max(head.rate - tail.rate, 1e-9)
    length = 1.2 * burst_s + max(walk.settings.probe_s, COUNTED / tail.rate)
    series = yield from walk.run(Stage(name=name, load=load, seconds=length, rest_s=rest_s))
    total = sum(series.seconds)
    held = float(series.operations.sum()) - tail.rate * total
    # Operations in flight at the end of the stage before spent credits in the rest; a full bucket does not show them.
    return series.idle_s, held if is_full else held + series.in_flight_before
