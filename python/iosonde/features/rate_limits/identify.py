"""Identification of rate limits: which stage comes next, and what all of them together show.

`identify` is a generator that requests stages and receives series of rates. It knows nothing of runs, records or
targets: a simulated bucket in a test answers as well as a volume. The stages, each chosen from what is known:

0. First accesses, before any other stage (`credit_duration.py`).
1. Drain: small operations in a closed loop, in stages of growing length, until the rate has dropped to a constant one.
2. Sizes: the same with larger blocks, and a bisection where the rate begins to fall, show what is counted.
3. Queue depth: the rate with a quarter of the queue depth. A rule does not depend on it; a device usually does. Where
   it differs, the first load again: the limit may have changed in the meantime.
4. Rests of known length: what came back is the refill. A rest until the bucket must be full shows its size again.
5. The same for the limit of large blocks, if that is another one.
6. Writes, and a mix in which two separate budgets would give twice the rate of a shared one.
7. Queue depth 1 at the limit and an open loop below it: the latency that the limiter adds (`limiter.py`). Without
   credits that come back these are before 5: the latency may explain the rate.
8. The first load again: a limit that changed is reported as a change.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from iosonde.features.rate_limits import credit_duration, limiter
from iosonde.features.rate_limits.known_limits import (
    Change,
    Counted,
    Estimate,
    Identification,
    Limiter,
    Parameter,
    Rule,
    Sharing,
    Verdict,
    parameter,
)
from iosonde.features.rate_limits.series import STEP, Load, Segment, Series, Stage, Tail
from iosonde.features.rate_limits.walk import (
    KIB,
    SAME,
    Bucket,
    FailedError,
    OutOfTimeError,
    Point,
    Settings,
    Stages,
    StoppedError,
    Walk,
    find_bucket,
    last_segment,
    load_text,
    same,
    sized,
)
from iosonde.units import format_count, format_latency

FAST_OPERATIONS = 100_000
FAST_BYTES = 200_000_000
"""Above these rates a device's controller or link may be as constant as a rule."""
STEADIER = 3
"""Times that a limit in bytes holds the rate of large blocks steadier than the device holds that of small ones."""


def identify(settings: Settings) -> Generator[Stage, Series, Identification]:
    """Request stages until the rules are known, or cannot be known within the bounds."""
    walk = Walk(settings)
    passes: credit_duration.Passes = {}
    try:
        yield from _stages(walk, passes)
    except StoppedError as end:
        limiter.conclude(walk, str(end))
    if passes:
        between = sum(float(each.operations.sum()) * each.load.block_size for each in walk.history)
        walk.known.first_touch = credit_duration.judge(passes, between=between, span=settings.touch_span)
    _withdraw_where_disturbed(walk)
    return walk.known


def _stages(walk: Walk, passes: credit_duration.Passes) -> Stages:
    """All stages; `passes` receives those over first accesses once the first three are complete."""
    try:
        passes.update((yield from _first_accesses(walk)))
        yield from _identify(walk)
    except FailedError as failed:
        walk.known.failure = str(failed)
        walk.known.reason = walk.known.reason or str(failed)
    except OutOfTimeError as late:
        walk.known.undecided.append(f"time ran out before the stage {late}")
        walk.known.reason = walk.known.reason or "the time bound was reached before the decision"
    if passes:
        yield from _touched_again(walk, passes)


def _withdraw_where_disturbed(walk: Walk) -> None:
    """Withdraw what other load on the machine explains as well: a rate that varies, and one that differs later."""
    known, disturbed = walk.known, [each.is_disturbed for each in walk.history]
    text = f"other load took CPU time in {sum(disturbed)} of {len(disturbed)} stages"
    # Whether credits come back is decided by two rests, each after a stage that spends them.
    last = 4 if known.change and known.change.stage == "drain" else 2
    if known.change and any(disturbed[-last:]):
        known.undecided.append(f"whether the limit changed: {text}")
        known.change = None
    is_deciding = sum(disturbed) >= len(disturbed) / 4 or any(disturbed[-1:])
    if known.verdict == "not limited" and is_deciding:
        known.verdict, known.reason = "undecided", f"{known.reason}; but {text}"


def _small(settings: Settings) -> Load:
    fraction = 1.0 if settings.reads else 0.0
    return Load(block_size=settings.smallest, read_fraction=fraction, queue_depth=settings.queue_depth)


def _first_accesses(walk: Walk) -> Generator[Stage, Series, credit_duration.Passes]:
    """Three passes over blocks that nothing has accessed; time is kept for a fourth if the first one was slower."""
    passes = yield from credit_duration.measure(walk.request, _small(walk.settings), walk.settings.touch_span)
    if credit_duration.is_slower(passes):
        walk.reserved_s = 3 * credit_duration.SECONDS * len(passes)
    return passes


def _touched_again(walk: Walk, passes: credit_duration.Passes) -> Stages:
    walk.reserved_s = 0.0
    small = [each for each in walk.history if each.load.block_size == walk.settings.smallest and each.loaded_s]
    slowest = min((each.operations.sum() / each.loaded_s for each in small), default=0.0)
    # Below twice the rate of a pass, a limit without credits would slow it down.
    if credit_duration.is_slower(passes) and slowest > 2 * credit_duration.RATE:
        with suppress(OutOfTimeError):
            yield from credit_duration.again(walk.request, _small(walk.settings), passes)


def _identify(walk: Walk) -> Stages:
    settings, known = walk.settings, walk.known
    small = _small(settings)
    first = yield from walk.drain("drain", small, settings.drain_s)
    tail = walk.tail(first)
    known.constant_s = tail.segment.seconds if tail.segment.is_constant else 0.0
    if not tail.segment.is_constant:
        return (yield from _of_bytes_only(walk, small, first))
    if tail.rate > 1.03 * min(each.rate for each in first.segments()):
        _rose(walk, first)
        return
    walk.burst, walk.sustained = first.segments()[0].rate, tail.rate
    points = yield from sizes(walk, small, tail)
    counted = counted_by(walk, points, settings)
    if counted.plateau < points[-1].size and (after := (yield from _changed_rate(walk, "base", small, first, tail))):
        # Lower rates of larger blocks may be those of the changed limit.
        known.rejected.clear()
        _changed(walk, tail.rate, after, "size", _MEANWHILE)
        return
    independent = yield from _independent(walk, small, counted, points)
    if not independent and (after := (yield from _changed_rate(walk, "depth-base", small, first, tail))):
        _changed(walk, tail.rate, after, "depth", _MEANWHILE)
        return
    cost = counted.cost(small.block_size)
    bucket = yield from find_bucket(walk, "small", small, cost, first, tail)
    if bucket.changed:
        known.rejected.append("a burst: nothing came back during a rest")
        before, after = first.segments()[0].rate, first.segments()[-1].rate
        reason = "the rate fell from one constant value to another and did not recover with rest"
        _changed(walk, before, after, "drain", reason)
        return
    verdict, reason = _verdict(counted, bucket, tail.rate, small, independent=independent)
    added: Limiter | None = None
    if verdict == "limited" and not bucket.refills:
        # Before the rule is named: what has no credits may be a device of constant service time.
        added = yield from limiter.measure(walk, small, tail.rate)
        if added and (why := (yield from limiter.device_instead(walk, small, added, tail.rate))):
            verdict, reason = "undecided", _device_text(added, tail.rate, why)
    known.verdict, known.reason = verdict, reason
    if verdict != "limited":
        return
    rule = _rule(counted.counts, counted.unit_bytes, small.read_fraction, bucket, tail, cost)
    known.rules = (rule,)
    if counted.counts == "operations":
        rule = replace(rule, merges=(yield from _merges(walk, small, tail.rate)))
        known.rules = (rule,)
        other = yield from _second_rule(walk, counted, small, points)
        known.rules = (rule, other) if other else (rule,)
    if settings.reads and settings.writes:
        known.sharing, known.write_weight = yield from _writes(walk, small, first, tail.rate)
    added = added or (yield from limiter.measure(walk, small, tail.rate))
    if after := (yield from _changed_rate(walk, "last", small, first, tail)):
        known.change = Change(before=tail.rate, after=after, stage="last")
    else:
        known.limiter = added


def _independent(walk: Walk, small: Load, counted: Counting, points: list[Point]) -> Generator[Stage, Series, bool]:
    """True if a quarter of the queue depth reaches the same rate; with larger blocks where the limit is in bytes."""
    size = min(64 * KIB, walk.largest) if counted.counts == "bytes" else small.block_size
    load = sized(small, size)
    load = replace(load, queue_depth=max(1, load.queue_depth // 4))
    expected = next((each.rate for each in points if each.size == size), points[0].rate)
    if counted.counts != "bytes":
        yield from emptied(walk, small, points[0].rate)
    found = yield from walk.probe("depth", load, expected)
    if not same(found.rate, expected):
        # Other work on the machine slows down a stage, and a device every one.
        found = yield from walk.probe("depth-again", load, expected)
    return same(found.rate, expected)


def _of_bytes_only(walk: Walk, small: Load, first: Series) -> Stages:
    """The device limits small blocks; large ones may still meet a limit in bytes."""
    _not_constant(walk, small, first.segments()[-1])
    load = sized(small, walk.largest)
    rule = yield from _large_rule(walk, load, most_spread=first.segments()[-1].spread / STEADIER)
    if rule is None:
        return
    if rule.bucket is None and rule.rate.value > FAST_BYTES:
        walk.known.verdict = "undecided"
        walk.known.reason = "the bandwidth is constant, but so high that the controller or the link may be the limit"
        return
    walk.known.verdict, walk.known.reason = "limited", ""
    walk.known.rules, walk.known.constant_s = (rule,), rule.constant_s


def _not_constant(walk: Walk, load: Load, segment: Segment) -> None:
    walk.known.rejected.append(
        f"a limit that {load_text(load)} reach: their rate varies by {100 * segment.spread:.1f} %"
    )
    walk.known.verdict = "not limited"
    walk.known.reason = f"the rate varies by {100 * segment.spread:.1f} % from interval to interval, as device rates do"


def _rose(walk: Walk, series: Series) -> None:
    """A bucket cannot make a rate rise under load."""
    segments = series.segments()
    before = min(segments[:-1], key=lambda each: each.rate)
    if not before.is_constant:
        _not_constant(walk, series.load, before)
        return
    walk.known.rejected.append("a burst: the rate rose under constant load")
    reason = "the rate changed from one constant value to a higher one under constant load"
    _changed(walk, before.rate, segments[-1].rate, "drain", reason)


_MEANWHILE = "the rate of the first load changed while other stages ran, so their rates are not those of one rule"


def _changed(walk: Walk, before: float, after: float, stage: str, reason: str) -> None:
    walk.known.change = Change(before=before, after=after, stage=stage)
    walk.known.reason = reason


# What a limit counts: operations, operations in units, or bytes, from rates over block sizes


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


def sizes(walk: Walk, small: Load, tail: Tail) -> Generator[Stage, Series, list[Point]]:
    """Rates over sizes, ascending, so that the bucket of small blocks stays empty; then bisect the first drop."""
    points = [Point(size=small.block_size, rate=tail.rate, segment=tail.segment)]
    size = 4 * small.block_size
    while size <= walk.largest:
        expected = min(points[-1].rate, tail.rate) / 2
        points.append((yield from walk.probe(f"size-{size // KIB}k", sized(small, size), expected)))
        size *= 4
    if 1.5 * points[-1].size <= walk.largest:
        expected = min(points[-1].rate, tail.rate) / 2
        points.append((yield from walk.probe(f"size-{walk.largest // KIB}k", sized(small, walk.largest), expected)))
    low = max((each.size for each in points if same(each.rate, tail.rate)), default=small.block_size)
    above = [each for each in points if each.size > low]
    if not above or not same(next(each.rate for each in points if each.size == low), tail.rate):
        return points
    high = above[0].size
    while high - low > small.block_size:
        middle = (low + high) // 2 // small.block_size * small.block_size
        yield from emptied(walk, small, tail.rate)
        point = yield from walk.probe(f"size-{middle // KIB}k", sized(small, middle), tail.rate / 2)
        points.append(point)
        if same(point.rate, tail.rate):
            low = middle
        else:
            high = middle
            # With units the rate falls to half at once; by bytes it falls in proportion.
            if _is_fraction(tail.rate / point.rate) is None:
                break
    return sorted(points, key=lambda each: each.size)


def emptied(walk: Walk, small: Load, rate: float) -> Stages:
    """Empty the bucket again, which larger blocks may have let refill."""
    spare = walk.history[-1]
    if spare.operations.sum() * 1.0 >= 0.98 * rate * spare.loaded_s:
        return
    yield from walk.drain("empty", small, min(walk.settings.drain_s, 2 * walk.settings.probe_s), known=rate)


def _is_fraction(ratio: float) -> int | None:
    """The whole number, 2 at least, that a ratio of rates is; None if it is none."""
    whole = round(ratio)
    return whole if whole >= 2 and abs(ratio / whole - 1) <= SAME else None


def counted_by(walk: Walk, points: list[Point], settings: Settings) -> Counting:
    """Decide what is counted from rates over sizes."""
    base = points[0]
    steady = [each for each in points if each.segment.is_constant]
    plateau = max(each.size for each in points if same(each.rate, base.rate))
    above = [each for each in points if each.size > plateau]
    rejected = walk.known.rejected
    by_bytes = [each for each in steady if same(each.rate * each.size, base.rate * base.size)]
    if plateau == base.size and len(by_bytes) >= 3:
        rejected.append("a limit in operations: larger blocks complete fewer operations, the same bytes")
        return Counting(counts="bytes", unit_bytes=None, plateau=plateau, proven=True)
    if not above:
        rejected.append(f"a limit in bytes: {plateau // KIB} KiB blocks complete as many operations as small ones")
        return Counting(counts="operations", unit_bytes=None, plateau=plateau, proven=True)
    knee = above[0]
    is_unit = knee.size - plateau <= settings.smallest and _is_fraction(base.rate / knee.rate) == 2
    if is_unit:
        unit = plateau
        off = [each for each in above if not same(each.rate * math.ceil(each.size / unit), base.rate)]
        rejected.append(
            f"operations counted once whatever their size: {knee.size // KIB} KiB blocks reach half the rate of "
            f"{plateau // KIB} KiB"
        )
        other = max((each.size for each in off), default=0)
        return Counting(
            counts="operations", unit_bytes=unit, plateau=plateau, proven=True, other_bytes=bool(off), other_size=other
        )
    rejected.append(
        f"operations counted in units of {plateau // KIB} KiB: the rate falls gradually, not to half, above that size"
    )
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


# The verdict


def _verdict(counted: Counting, bucket: Bucket, rate: float, load: Load, *, independent: bool) -> tuple[Verdict, str]:
    """A rule is named only where a device would behave differently."""
    if bucket.is_gradual:
        return "undecided", (
            "the rate falls gradually, not from one value to another: a cache, garbage collection or temperature would "
            "do that"
        )
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
    if not independent:
        return "not limited", "the rate depends on the queue depth, so the device limits it"
    value = rate * load.block_size
    is_fast = value > FAST_BYTES if counted.counts == "bytes" else rate > FAST_OPERATIONS
    if is_fast and not counted.other_bytes and not bucket.credits:
        return "undecided", "the rate is constant, but so high that the controller or the link may be the limit"
    return "limited", ""


def _device_text(added: Limiter, rate: float, why: str) -> str:
    time = format_latency(1e9 * added.device_s[1])
    return (
        f"a device that serves a fixed number of operations at a time may be the limit: below {format_count(rate)} per "
        f"second, {why}, and the rate times the latency of {time} is {rate * added.device_s[1]:.2f}"
    )


def _rule(counts: Counted, unit_bytes: int | None, fraction: float, bucket: Bucket, tail: Tail, cost: float) -> Rule:
    """The rule in what it counts, of which an operation of the load costs `cost`."""

    def scaled(estimates: Iterable[Estimate]) -> list[Estimate]:
        return [replace(each, value=each.value * cost) for each in estimates]

    refills, sizes = scaled(bucket.refills), scaled(bucket.estimates)
    [sustained] = scaled([Estimate(method="rate while the bucket is empty", value=tail.rate)])
    burst = None
    if bucket.burst:
        found = scaled([Estimate(method="rate at the start", value=bucket.burst.rate)])
        burst = parameter(*found, error=bucket.burst.error * cost)
    return Rule(
        counts=counts,
        operation="read" if fraction else "write",
        rate=parameter(sustained, *refills[:1], error=tail.segment.error * cost),
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
    if point.rate > 2 * rate or (point.rate > 1.1 * rate and point.segment.is_constant):
        walk.known.rejected.append("each operation counted by itself: sequential ones reach a higher rate")
        return True
    return False if same(point.rate, rate) else None


def _second_rule(
    walk: Walk, counted: Counting, small: Load, points: list[Point]
) -> Generator[Stage, Series, Rule | None]:
    """The limit of large blocks, if the rule of small ones does not explain their rate."""
    if not counted.other_bytes:
        return None
    load = sized(small, counted.other_size)
    most = points[0].rate / counted.cost(load.block_size // 2)
    return (yield from _large_rule(walk, load, most, explained=points[0].rate / counted.cost(load.block_size)))


def _large_rule(
    walk: Walk, load: Load, most: float = math.inf, *, explained: float = 0.0, most_spread: float = math.inf
) -> Generator[Stage, Series, Rule | None]:
    """A limit in bytes. `most` is what another limit allows of blocks of half the size, `explained` of these.

    Where the rate varies by more than `most_spread`, nothing holds it.
    """
    series = yield from walk.drain("large", load, walk.settings.drain_s)
    tail = walk.tail(series)
    if not tail.segment.is_constant:
        walk.known.undecided.append("a limit of large blocks: their rate is not constant, so the device may limit them")
        return None
    if tail.segment.spread > most_spread:
        walk.known.undecided.append("a limit of large blocks: their rate is hardly steadier than that of small ones")
        return None
    if explained and abs(tail.rate / explained - 1) <= STEP:
        return None
    half = sized(load, load.block_size // 2)
    point = yield from walk.probe(f"large-{half.block_size // KIB}k", half, tail.rate)
    depth = yield from walk.probe("large-depth", replace(load, queue_depth=max(1, load.queue_depth // 4)), tail.rate)
    same_bytes = same(point.rate, 2 * tail.rate) or point.rate >= 0.97 * most
    if not same_bytes or not same(depth.rate, tail.rate):
        walk.known.undecided.append("a limit of large blocks: their rate depends on size or queue depth, as a device's")
        return None
    bucket = yield from find_bucket(walk, "large", load, float(load.block_size), series, tail)
    if bucket.mismatch or bucket.changed or bucket.is_gradual:
        walk.known.undecided.append("a limit of large blocks: what came back with rest does not fit their rate")
        return None
    return _rule("bytes", None, load.read_fraction, bucket, tail, float(load.block_size))


# Reads and writes


def _writes(
    walk: Walk, small: Load, first: Series, reads: float
) -> Generator[Stage, Series, tuple[Sharing, Parameter | None]]:
    """Writes alone, then the mix in which separate budgets would complete twice what a shared one does."""
    load = replace(small, read_fraction=0.0)
    yield from walk.drain("writes", load, min(walk.settings.drain_s, max(1.5 * first.loaded_s, 5.0)))
    tail = last_segment(walk.history[-1])
    if not tail.is_constant:
        walk.known.undecided.append("the budget of writes: their rate is not constant, so the device may limit them")
        return "unknown", None
    writes = tail.rate
    fraction = round(min(0.95, max(0.05, reads / (reads + writes))), 2)
    mix = replace(small, read_fraction=fraction)
    yield from walk.drain("mix", mix, min(walk.settings.drain_s, max(1.5 * first.loaded_s, 5.0)))
    rate = last_segment(walk.history[-1]).rate
    used = rate * (fraction / reads + (1 - fraction) / writes)
    if abs(used - 1) <= 0.05:
        walk.known.rejected.append(
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
        walk.known.rejected.append(f"a budget shared by reads and writes: a mix completes {used:.2f} times as much")
        return "separate", None
    walk.known.undecided.append(f"whether reads and writes share a budget: a mix completes {used:.2f} of one budget")
    return "unknown", None


def _changed_rate(
    walk: Walk, name: str, small: Load, first: Series, tail: Tail
) -> Generator[Stage, Series, float | None]:
    """Repeat the first load: its rate where it differs from that of the drain, twice; None if it does not."""
    for place in (name, f"{name}-again"):
        if len(first.segments()) > 1:
            yield from walk.drain(place, small, walk.settings.drain_s, known=tail.rate)
            rate = last_segment(walk.history[-1]).rate
        else:
            rate = (yield from walk.probe(place, small, tail.rate)).rate
        if abs(rate / tail.rate - 1) <= STEP:
            return None
    return rate
