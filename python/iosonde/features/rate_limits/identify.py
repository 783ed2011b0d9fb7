"""Identification of rate limits: which stage comes next, and what all of them together show.

`identify` is a generator that requests stages and receives series of rates. It knows nothing of runs, records or
targets: a simulated bucket in a test answers as well as a volume. The stages, each chosen from what is known:

1. Drain: small operations in a closed loop, in stages of growing length, until the rate has dropped to a constant one.
2. Sizes: the same with larger blocks, and a bisection where the rate begins to fall, show what is counted.
3. Queue depth: the rate with a quarter of the queue depth. A rule does not depend on it; a device usually does.
4. Rests of known length: what came back is the refill. A rest until the bucket must be full shows its size again.
5. The same for the limit of large blocks, if that is another one.
6. Writes, and a mix in which two separate budgets would give twice the rate of a shared one.
7. The first load again: a limit that changed is reported as a change.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from iosonde.features.rate_limits.rules import (
    Change,
    Counted,
    Estimate,
    Identification,
    Notes,
    Parameter,
    Rule,
    Sharing,
    Verdict,
    parameter,
)
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage, Tail, deficit
from iosonde.units import MIB

SAME = 0.02
"""Largest difference of two rates that count as the same, as a share."""
_LEAST_DEPTH = 8
_COUNTED = 500
"""Operations that a stage should complete, so that counting whole ones adds little error."""
KIB = 1024

FAST_OPERATIONS = 100_000
FAST_BYTES = 200_000_000
"""Above these rates a device's controller or link may be as constant as a rule."""

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


class FailedError(Exception):
    """A stage has no result."""


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

    def run(self, stage: Stage) -> Generator[Stage, Series, Series]:
        if self.used_s + stage.rest_s + stage.seconds > self.settings.total_s:
            raise OutOfTimeError(stage.name)
        series = yield stage
        self.used_s += series.idle_s + sum(series.seconds)
        series = replace(series, name=stage.name)
        self.history.append(series)
        return series

    def seconds(self, rate: float) -> float:
        """Length of a stage at a rate, in operations per second."""
        wanted = _COUNTED / rate if rate > 0 else 0.0
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
            tail = _last(whole)
            is_known = known is not None and _same(tail.rate, known) and tail.seconds > 0.5 * self.settings.probe_s
            if left < 0.2 * self.settings.probe_s or is_known or _has_dropped(whole, self.settings.probe_s):
                return whole
            enough = 0.0 if tail.rate <= 0 else _COUNTED / tail.rate
            length = min(left, max(whole.loaded_s, enough / 4))
            length = left if left - length < self.settings.probe_s else length

    def tail(self, whole: Series) -> Tail:
        """The end of a drain; by its last stage alone where the starts of stages hide that the rate is constant.

        A limiter lets a few operations through at once at the start of each stage, which counts where they are few.
        """
        found, last = whole.tail(), _last(self.history[-1])
        if found.segment.is_constant or not last.is_constant or abs(last.rate / found.rate - 1) > STEP:
            return found
        held = float(whole.operations.sum()) - last.rate * sum(whole.seconds)
        return Tail(rate=last.rate, held=held, segment=last)

    def probe(self, name: str, load: Load, expected: float) -> Generator[Stage, Series, Point]:
        """One short stage; the rate of its last segment."""
        series = yield from self.run(Stage(name=name, load=load, seconds=self.seconds(expected)))
        segment = _last(series)
        if segment.rate > 0 and segment.rate * segment.seconds < _COUNTED / 3 and self.settings.drain_s > 30:
            series = yield from self.run(Stage(name=f"{name}-again", load=load, seconds=self.seconds(segment.rate)))
            segment = _last(series)
        return Point(size=load.block_size, rate=segment.rate, segment=segment)


def _sized(load: Load, size: int) -> Load:
    """The same load with another block size, and no more in flight than 4 MiB or 8 operations."""
    depth = min(load.queue_depth, max(_LEAST_DEPTH, 4 * MIB // size))
    return replace(load, block_size=size, queue_depth=depth)


def _load_text(load: Load) -> str:
    """Name a load in a statement."""
    return f"{load.block_size // KIB} KiB {'reads' if load.read_fraction else 'writes'}"


def _last(series: Series) -> Segment:
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
    long_enough = last.seconds >= least_s and last.rate * last.seconds >= _COUNTED / 2
    return last.rate < before.rate and last.is_constant and long_enough


def identify(settings: Settings) -> Generator[Stage, Series, Identification]:
    """Request stages until the rules are known, or cannot be known within the bounds."""
    walk = Walk(settings)
    try:
        yield from _identify(walk)
    except FailedError as failed:
        walk.known = replace(walk.known, failure=str(failed), reason=walk.known.reason or str(failed))
    except OutOfTimeError as late:
        walk.notes.undecided.append(f"what the stage {late} and later ones show: the time bound was reached")
        walk.known = replace(walk.known, reason=walk.known.reason or "the time bound was reached before the decision")
    return replace(walk.known, rejected=tuple(walk.notes.rejected), undecided=tuple(walk.notes.undecided))


def _identify(walk: Walk) -> Stages:
    settings = walk.settings
    fraction = 1.0 if settings.reads else 0.0
    small = Load(block_size=settings.smallest, read_fraction=fraction, queue_depth=settings.queue_depth)
    first = yield from walk.drain("drain", small, settings.drain_s)
    tail = walk.tail(first)
    walk.known = replace(walk.known, constant_s=tail.segment.seconds if tail.segment.is_constant else 0.0)
    if not tail.segment.is_constant:
        return (yield from _of_bytes_only(walk, small, first))
    if tail.rate > 1.03 * min(each.rate for each in first.segments()):
        _rose(walk, first)
        return
    points = yield from _sizes(walk, small, tail)
    counted = _counted(walk, points, settings)
    independent = yield from _independent(walk, small, counted, points)
    bucket = yield from _bucket(walk, "small", small, counted.cost(small.block_size), first, tail)
    if bucket.changed:
        _changed(walk, first)
        return
    verdict, reason = _verdict(_Evidence(counted=counted, independent=independent, bucket=bucket, tail=tail), small)
    walk.known = replace(walk.known, verdict=verdict, reason=reason)
    if verdict != "limited":
        return
    rule = _rule(counted.counts, counted.unit_bytes, fraction, bucket, tail, counted.cost(small.block_size))
    walk.known = replace(walk.known, rules=(rule,))
    if counted.counts == "operations":
        rule = replace(rule, merges=(yield from _merges(walk, small, tail.rate)))
        walk.known = replace(walk.known, rules=(rule,))
        other = yield from _second_rule(walk, counted, small, points)
        walk.known = replace(walk.known, rules=(rule, other) if other else (rule,))
    if settings.reads and settings.writes:
        sharing, weight = yield from _writes(walk, small, first, tail.rate)
        walk.known = replace(walk.known, sharing=sharing, write_weight=weight)
    last = yield from _again(walk, small, tail, bool(bucket.credits))
    if abs(last.rate / tail.rate - 1) > SAME:
        walk.known = replace(walk.known, change=Change(before=tail.rate, after=last.rate, stage="last"))


def _independent(walk: Walk, small: Load, counted: Counting, points: list[Point]) -> Generator[Stage, Series, bool]:
    """True if a quarter of the queue depth reaches the same rate; with larger blocks where the limit is in bytes."""
    size = min(64 * KIB, walk.settings.largest) if counted.counts == "bytes" else small.block_size
    load = _sized(small, size)
    load = replace(load, queue_depth=max(1, load.queue_depth // 4))
    expected = next((each.rate for each in points if each.size == size), points[0].rate)
    if counted.counts != "bytes":
        yield from _emptied(walk, small, points[0].rate)
    found = yield from walk.probe("depth", load, expected)
    return _same(found.rate, expected)


def _of_bytes_only(walk: Walk, small: Load, first: Series) -> Stages:
    """The device limits small blocks; large ones may still meet a limit in bytes."""
    _not_constant(walk, first)
    load = _sized(small, walk.settings.largest)
    rule = yield from _large_rule(walk, load)
    if rule is None:
        return
    if rule.bucket is None and rule.rate.value > FAST_BYTES:
        walk.known = replace(
            walk.known,
            verdict="undecided",
            reason="the bandwidth is constant, but so high that the controller or the link may be the limit",
        )
        return
    walk.known = replace(walk.known, verdict="limited", reason="", rules=(rule,), constant_s=rule.constant_s)


def _not_constant(walk: Walk, series: Series) -> None:
    segment = series.segments()[-1]
    walk.notes.rejected.append(
        f"a limit that {_load_text(series.load)} reach: their rate varies by {100 * segment.spread:.1f} %"
    )
    reason = f"the rate varies by {100 * segment.spread:.1f} % from interval to interval, as device rates do"
    walk.known = replace(walk.known, verdict="not limited", reason=reason)


def _rose(walk: Walk, series: Series) -> None:
    """A bucket cannot make a rate rise under load."""
    segments = series.segments()
    before = min(segments[:-1], key=lambda each: each.rate)
    if not before.is_constant:
        _not_constant(walk, series)
        return
    walk.notes.rejected.append("a burst: the rate rose under constant load")
    walk.known = replace(
        walk.known,
        reason="the rate changed from one constant value to a higher one under constant load",
        change=Change(before=before.rate, after=segments[-1].rate, stage="drain"),
    )


# What is counted


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Unit in which the limit of small blocks counts."""

    counts: Counted
    unit_bytes: int | None
    plateau: int
    """Largest size with the rate of the smallest."""
    proven: bool
    """True if the sizes distinguish it from a device."""
    other_bytes: bool = False
    """True if larger blocks meet another limit, by bytes."""
    other_size: int = 0

    def cost(self, size: int) -> float:
        if self.counts == "bytes":
            return float(size)
        return float(math.ceil(size / self.unit_bytes)) if self.unit_bytes else 1.0


def _sizes(walk: Walk, small: Load, tail: Tail) -> Generator[Stage, Series, list[Point]]:
    """Rates over sizes, ascending, so that the bucket of small blocks stays empty; then bisect the first drop."""
    points = [Point(size=small.block_size, rate=tail.rate, segment=tail.segment)]
    size = 4 * small.block_size
    while size <= walk.settings.largest:
        expected = min(points[-1].rate, tail.rate) / 2
        points.append((yield from walk.probe(f"size-{size // KIB}k", _sized(small, size), expected)))
        size *= 4
    low = max((each.size for each in points if _same(each.rate, tail.rate)), default=small.block_size)
    above = [each for each in points if each.size > low]
    if not above or not _same(_plateau_rate(points, low), tail.rate):
        return points
    high = above[0].size
    while high - low > small.block_size:
        middle = (low + high) // 2 // small.block_size * small.block_size
        yield from _emptied(walk, small, tail.rate)
        point = yield from walk.probe(f"size-{middle // KIB}k", _sized(small, middle), tail.rate / 2)
        points.append(point)
        if _same(point.rate, tail.rate):
            low = middle
        else:
            high = middle
            # With units the rate falls to half at once; by bytes it falls in proportion.
            if _is_fraction(tail.rate / point.rate) is None:
                break
    return sorted(points, key=lambda each: each.size)


def _emptied(walk: Walk, small: Load, rate: float) -> Stages:
    """Empty the bucket again, which larger blocks may have let refill."""
    spare = walk.history[-1]
    if spare.operations.sum() * 1.0 >= 0.98 * rate * spare.loaded_s:
        return
    yield from walk.drain("empty", small, min(walk.settings.drain_s, 2 * walk.settings.probe_s), known=rate)


def _same(one: float, other: float) -> bool:
    return other > 0 and abs(one / other - 1) <= SAME


def _plateau_rate(points: list[Point], size: int) -> float:
    return next(each.rate for each in points if each.size == size)


def _is_fraction(ratio: float) -> int | None:
    """The whole number, 2 at least, that a ratio of rates is; None if it is none."""
    whole = round(ratio)
    return whole if whole >= 2 and abs(ratio / whole - 1) <= SAME else None


def _counted(walk: Walk, points: list[Point], settings: Settings) -> Counting:
    """Decide what is counted from rates over sizes."""
    base = points[0]
    steady = [each for each in points if each.segment.is_constant]
    plateau = max(each.size for each in points if _same(each.rate, base.rate))
    above = [each for each in points if each.size > plateau]
    notes = walk.notes
    by_bytes = [each for each in steady if _same(each.rate * each.size, base.rate * base.size)]
    if plateau == base.size and len(by_bytes) >= 3:
        notes.rejected.append("a limit in operations: larger blocks complete fewer operations, the same bytes")
        return Counting(counts="bytes", unit_bytes=None, plateau=plateau, proven=True)
    if not above:
        notes.rejected.append(
            f"a limit in bytes: {plateau // KIB} KiB blocks complete as many operations as small ones"
        )
        return Counting(counts="operations", unit_bytes=None, plateau=plateau, proven=True)
    knee = above[0]
    is_unit = knee.size - plateau <= settings.smallest and _is_fraction(base.rate / knee.rate) == 2
    if is_unit:
        unit = plateau
        off = [each for each in above if not _same(each.rate * math.ceil(each.size / unit), base.rate)]
        notes.rejected.append(
            f"operations counted once whatever their size: {knee.size // KIB} KiB blocks reach half the rate of "
            f"{plateau // KIB} KiB"
        )
        other = max((each.size for each in off), default=0)
        return Counting(
            counts="operations", unit_bytes=unit, plateau=plateau, proven=True, other_bytes=bool(off), other_size=other
        )
    notes.rejected.append(f"units of {plateau // KIB} KiB: the rate falls gradually, not to half, above that size")
    # A device completes fewer operations of 16 times the size, even where its single rates vary too much to be sure.
    alike = len([each for each in steady if each.size <= plateau])
    proven = plateau >= 16 * base.size or (plateau > base.size and alike >= 2)
    return Counting(
        counts="operations",
        unit_bytes=None,
        plateau=plateau,
        proven=proven,
        other_bytes=True,
        other_size=max(each.size for each in above),
    )


# Bucket and refill


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


def _bucket(
    walk: Walk, name: str, load: Load, cost: float, series: Series, tail: Tail
) -> Generator[Stage, Series, Bucket]:
    """Rest, drain again, and compare what came back with the sustained rate; `series` drained it first."""
    segments = series.segments()
    head = segments[0]
    has_burst = len(segments) > 1 and head.rate > (1 + STEP) * tail.rate
    noise = max(20.0, 3 * tail.segment.error * sum(series.seconds), 0.1 * tail.rate)
    if not has_burst and tail.held < noise:
        return Bucket()
    history = [each for each in walk.history if each.load.read_fraction == load.read_fraction]
    until = next((place for place, each in enumerate(history) if each.name.startswith(series.name[:-1])), 0)
    count = sum(1 for each in history if each.name.startswith(series.name[:-1]))
    used = history[: until + count]
    costs = [_relative_cost(each.load, load, cost) for each in used]
    first = deficit(used, costs, tail.rate) if has_burst else tail.held
    estimates = [Estimate(method="drained from the start", value=first)]
    full_s = first / tail.rate
    if full_s < 2 or not has_burst or walk.settings.rest_s < 1:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head if has_burst else None, rest_missing=True)
    refills: list[Estimate] = []
    burst_s = first / max(head.rate - tail.rate, 1e-9)
    lengths = [min(walk.settings.rest_s, share * full_s) for share in (0.3, 0.6)]
    for number, rest_s in enumerate(dict.fromkeys(lengths), start=1):
        yield from walk.drain(f"{name}-empty{number}", load, _drain_time(walk, burst_s), known=tail.rate)
        back = yield from _back(walk, f"{name}-rest{number}", load, tail, head, rest_s)
        refills.append(Estimate(method=f"came back in {back[0]:.3g} s", value=back[1] / back[0]))
    if refills and refills[0].value < 0.2 * tail.rate:
        return Bucket(credits=first, estimates=tuple(estimates), burst=head, changed=True)
    mismatch = any(abs(each.value / tail.rate - 1) > 0.05 for each in refills)
    if 1.3 * full_s <= walk.settings.rest_s:
        full = yield from _back(walk, f"{name}-full", load, tail, head, 1.3 * full_s)
        if full[1] > 1.04 * first and 1.7 * full[1] / tail.rate <= walk.settings.rest_s:
            estimates = [Estimate(method="drained after a rest", value=full[1])]
            full = yield from _back(walk, f"{name}-full2", load, tail, head, 1.7 * full[1] / tail.rate)
        estimates.append(Estimate(method=f"drained after {full[0]:.3g} s of rest", value=full[1]))
    return Bucket(
        credits=estimates[-1].value,
        estimates=tuple(estimates),
        refills=tuple(refills),
        burst=head,
        mismatch=mismatch,
    )


def _relative_cost(used: Load, load: Load, cost: float) -> float:
    """Cost of an operation of another size, in operations of `load`; by bytes if its cost is its size."""
    return used.block_size / load.block_size if cost == load.block_size else 1.0


def _drain_time(walk: Walk, burst_s: float) -> float:
    return min(walk.settings.drain_s, 1.2 * burst_s + 2 * walk.settings.probe_s)


def _back(
    walk: Walk, name: str, load: Load, tail: Tail, head: Segment, rest_s: float
) -> Generator[Stage, Series, tuple[float, float]]:
    """Rest, then drain: the length of the rest, and the credits that came back."""
    burst_s = rest_s * tail.rate / max(head.rate - tail.rate, 1e-9)
    length = 1.2 * burst_s + max(walk.settings.probe_s, _COUNTED / tail.rate)
    series = yield from walk.run(Stage(name=name, load=load, seconds=length, rest_s=rest_s))
    total = sum(series.seconds)
    return series.idle_s, float(series.operations.sum()) - tail.rate * total


def _changed(walk: Walk, series: Series) -> None:
    segments = series.segments()
    walk.notes.rejected.append("a burst: nothing came back during a rest")
    walk.known = replace(
        walk.known,
        reason="the rate fell from one constant value to another and did not recover with rest",
        change=Change(before=segments[0].rate, after=segments[-1].rate, stage="drain"),
    )


# The verdict


@dataclass(frozen=True, kw_only=True)
class _Evidence:
    counted: Counting
    independent: bool
    bucket: Bucket
    tail: Tail


def _verdict(evidence: _Evidence, load: Load) -> tuple[Verdict, str]:
    """A rule is named only where a device would behave differently."""
    counted, bucket = evidence.counted, evidence.bucket
    rate = evidence.tail.rate
    if bucket.mismatch:
        return "undecided", (
            "the rate drops from one value to another constant one, but what comes back with rest is not what the "
            "lower rate gives: a cache, garbage collection or temperature would do that"
        )
    if bucket.refills:
        return "limited", ""
    if not counted.proven and counted.plateau > load.block_size:
        return "undecided", "larger blocks reach the same rate, but it is not constant enough for a rule"
    if not counted.proven:
        return "not limited", "the rate depends on the block size as a device's does, neither by operations nor bytes"
    if not evidence.independent:
        return "not limited", "the rate depends on the queue depth, so the device limits it"
    value = rate * load.block_size
    is_fast = value > FAST_BYTES if counted.counts == "bytes" else rate > FAST_OPERATIONS
    if is_fast and not counted.other_bytes and not bucket.credits:
        return "undecided", "the rate is constant, but so high that the controller or the link may be the limit"
    return "limited", ""


def _rule(counts: Counted, unit_bytes: int | None, fraction: float, bucket: Bucket, tail: Tail, cost: float) -> Rule:
    scale = cost
    refills = [Estimate(method=each.method, value=each.value * scale) for each in bucket.refills]
    sustained = Estimate(method="rate while the bucket is empty", value=tail.rate * scale)
    error = tail.segment.error * scale
    burst = None
    if bucket.burst:
        burst = parameter(
            Estimate(method="rate at the start", value=bucket.burst.rate * scale), error=bucket.burst.error * scale
        )
    sizes = [Estimate(method=each.method, value=each.value * scale) for each in bucket.estimates]
    return Rule(
        counts=counts,
        operation="read" if fraction else "write",
        rate=parameter(sustained, *refills[:1], error=error),
        unit_bytes=unit_bytes,
        burst_rate=burst,
        is_burst_limited=bool(bucket.burst and bucket.burst.is_constant),
        bucket=parameter(*reversed(sizes)) if sizes else None,
        refill=parameter(*refills) if refills else None,
        constant_s=tail.segment.seconds,
        may_be_burst=not bucket.credits,
    )


def _merges(walk: Walk, small: Load, rate: float) -> Generator[Stage, Series, bool | None]:
    point = yield from walk.probe("sequential", replace(small, is_sequential=True), rate)
    if point.rate > 1.1 * rate:
        walk.notes.rejected.append("each operation counted by itself: sequential ones reach a higher rate")
        return True
    return False if _same(point.rate, rate) else None


def _second_rule(
    walk: Walk, counted: Counting, small: Load, points: list[Point]
) -> Generator[Stage, Series, Rule | None]:
    """The limit of large blocks, if the rule of small ones does not explain their rate."""
    if not counted.other_bytes:
        return None
    load = _sized(small, counted.other_size)
    most = points[0].rate / counted.cost(load.block_size // 2)
    return (yield from _large_rule(walk, load, most))


def _large_rule(walk: Walk, load: Load, most: float = math.inf) -> Generator[Stage, Series, Rule | None]:
    """A limit in bytes. `most` is what another limit allows of blocks of half the size."""
    series = yield from walk.drain("large", load, walk.settings.drain_s)
    tail = walk.tail(series)
    if not tail.segment.is_constant:
        walk.notes.undecided.append("a limit of large blocks: their rate is not constant, so the device may limit them")
        return None
    half = _sized(load, load.block_size // 2)
    point = yield from walk.probe(f"large-{half.block_size // KIB}k", half, tail.rate)
    depth = yield from walk.probe("large-depth", replace(load, queue_depth=max(1, load.queue_depth // 4)), tail.rate)
    same_bytes = _same(point.rate, 2 * tail.rate) or point.rate >= 0.97 * most
    if not same_bytes or not _same(depth.rate, tail.rate):
        walk.notes.undecided.append("a limit of large blocks: their rate depends on size or queue depth, as a device's")
        return None
    bucket = yield from _bucket(walk, "large", load, float(load.block_size), series, tail)
    if bucket.mismatch or bucket.changed:
        walk.notes.undecided.append("a limit of large blocks: what came back with rest does not fit their rate")
        return None
    return _rule("bytes", None, load.read_fraction, bucket, tail, float(load.block_size))


# Reads and writes


def _writes(
    walk: Walk, small: Load, first: Series, reads: float
) -> Generator[Stage, Series, tuple[Sharing, Parameter | None]]:
    """Writes alone, then the mix in which separate budgets would complete twice what a shared one does."""
    load = replace(small, read_fraction=0.0)
    yield from walk.drain("writes", load, min(walk.settings.drain_s, max(1.5 * first.loaded_s, 5.0)))
    tail = _last(walk.history[-1])
    if not tail.is_constant:
        walk.notes.undecided.append("the budget of writes: their rate is not constant, so the device may limit them")
        return "unknown", None
    writes = tail.rate
    fraction = round(min(0.95, max(0.05, reads / (reads + writes))), 2)
    mix = replace(small, read_fraction=fraction)
    yield from walk.drain("mix", mix, min(walk.settings.drain_s, max(1.5 * first.loaded_s, 5.0)))
    rate = _last(walk.history[-1]).rate
    used = rate * (fraction / reads + (1 - fraction) / writes)
    if abs(used - 1) <= 0.05:
        walk.notes.rejected.append(
            f"separate budgets for reads and writes: a mix of {100 * fraction:.0f} % reads completes "
            f"{used:.2f} of one budget, not 2"
        )
        weight = reads / writes
        second = (reads / rate - fraction) / (1 - fraction)
        return "shared", parameter(
            Estimate(method="reads alone over writes alone", value=weight),
            Estimate(method=f"mix of {100 * fraction:.0f} % reads", value=second),
        )
    if used >= 1.7:
        walk.notes.rejected.append(f"a budget shared by reads and writes: a mix completes {used:.2f} times as much")
        return "separate", None
    walk.notes.undecided.append(f"whether reads and writes share a budget: a mix completes {used:.2f} of one budget")
    return "unknown", None


def _again(walk: Walk, small: Load, tail: Tail, has_burst: bool) -> Generator[Stage, Series, Point]:
    """The first load once more, at the end."""
    if has_burst:
        yield from walk.drain("last", small, walk.settings.drain_s, known=tail.rate)
        segment = _last(walk.history[-1])
        return Point(size=small.block_size, rate=segment.rate, segment=segment)
    return (yield from walk.probe("last", small, tail.rate))
