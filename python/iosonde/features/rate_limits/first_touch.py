"""First-touch penalty: the latency of the first access to a block beyond that of later ones.

Blocks at equal distances in three regions of the span are accessed in order, a second and a third time. Each pass is an
open loop of few operations per second, so that limits and credits have no part in the difference. It comes before all
other stages, which access blocks at random.

The latency of a pass is the median over its intervals. It also changes from pass to pass without a penalty, on a busy
machine by a multiple, so the scale of a difference is the range of the later passes over all regions.

A read cache has the same effect on three passes. So the blocks are accessed once more after all other stages: a penalty
is paid once, while a cache smaller than what was accessed in between has lost them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from statistics import median

from iosonde.features.rate_limits.rules import FirstTouch, TouchedRegion, TouchVerdict
from iosonde.features.rate_limits.series import Load, Region, Series, Stage
from iosonde.units import format_bytes

RATE = 50
"""Operations per second of a pass."""
SECONDS = 1.0
REGIONS = 3
_STRIDE = 4 << 20
"""Largest distance between blocks, above the sizes in which providers fetch blocks of a snapshot."""
_RANGES = 3.0
"""Ranges of the later passes that a certain difference exceeds."""
_LEAST = 0.1
"""Smallest difference that counts, as a share of the latency of a later access."""

Passes = dict[Region, list[Series]]
"""Passes over each region, in order."""
Request = Callable[[Stage], Generator[Stage, Series, Series]]


def regions(span: int, block_size: int) -> tuple[Region, ...]:
    """Return regions of as many blocks as a pass accesses."""
    blocks = round(RATE * SECONDS)
    # Two more, so that a pass never starts again.
    stride = min(_STRIDE, span // REGIONS // (blocks + 2)) // block_size * block_size
    if not stride:
        return ()
    starts = (place * span // REGIONS // block_size * block_size for place in range(REGIONS))
    return tuple(Region(offset=start, bytes=(blocks + 2) * stride, stride=stride) for start in starts)


def measure(request: Request, load: Load, span: int) -> Generator[Stage, Series, Passes]:
    """Request three passes over each region."""
    passes: Passes = {region: [] for region in regions(span, load.block_size)}
    for number in (1, 2, 3):
        yield from _pass(number, request, load, passes)
    return passes


def again(request: Request, load: Load, passes: Passes) -> Generator[Stage, Series, None]:
    """Request the last pass over each region."""
    yield from _pass(4, request, load, passes)


LAST_PASS = "touch4"
"""Start of the names of its stages, which follow all others."""


def _pass(number: int, request: Request, load: Load, passes: Passes) -> Generator[Stage, Series, None]:
    for place, (region, found) in enumerate(passes.items(), start=1):
        name = f"touch{number}-region{place}"
        found.append((yield from request(Stage(name=name, load=load, seconds=SECONDS, region=region, rate=RATE))))


def is_slower(passes: Passes) -> bool:
    """Return True if the first access took longer than later ones in any region."""
    return any(each.is_slower for each in _regions(passes))


def judge(passes: Passes, *, between: float, span: int) -> FirstTouch:
    """Conclude from all passes; `between` are the bytes accessed before the last one."""
    verdict, reason = _verdict(passes, between, span)
    found = _regions(passes)
    return FirstTouch(verdict=verdict, reason=reason, regions=found, bound_s=max(each.high_s for each in found))


def _verdict(passes: Passes, between: float, span: int) -> tuple[TouchVerdict, str]:
    early = _regions({region: each[:3] for region, each in passes.items()})
    slower = [each for region, each in zip(early, passes.values(), strict=True) if region.is_slower]
    if not slower:
        return "none", ""
    if any(each.is_disturbed for found in passes.values() for each in found):
        return "undecided", "other load took CPU time while first accesses were measured"
    if any(len(each) < 4 for each in slower):
        return "undecided", (
            "a read cache would have the same effect; no time for a last access, or a rate limit below 100 IOPS"
        )
    amount = format_bytes(round(between))
    if any(_latency(each[3]) > (_latency(each[0]) + _later(each[:3])) / 2 for each in slower):
        return "cache", f"after {amount} of other accesses the blocks are slow again, so a read cache had served them"
    if not is_slower(passes):
        return "undecided", "the latency of later accesses varies as much"
    if between < span:
        return "undecided", f"a read cache of {amount} would have the same effect: other stages accessed no more"
    return "penalty", (
        f"the blocks are as fast after {amount} of other accesses, which a smaller read cache would not have kept"
    )


def _regions(passes: Passes) -> tuple[TouchedRegion, ...]:
    later = [_latency(each) for found in passes.values() for each in found[1:]]
    scale = max(later, default=0.0) - min(later, default=0.0)
    return tuple(_region(region, found, scale) for region, found in passes.items())


def _region(region: Region, passes: Sequence[Series], scale: float) -> TouchedRegion:
    added = _latency(passes[0]) - _later(passes)
    error = scale + _standard_error(passes[0].latencies_s)
    return TouchedRegion(
        offset=region.offset,
        stride=region.stride,
        latencies_s=tuple(map(_latency, passes)),
        added_s=added,
        low_s=added - error,
        high_s=added + error,
        is_slower=added > max(_RANGES * scale, _LEAST * _later(passes)),
    )


def _latency(found: Series) -> float:
    return median(found.latencies_s)


def _later(passes: Sequence[Series]) -> float:
    return median(map(_latency, passes[1:]))


def _standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the median, from the median absolute deviation."""
    middle = median(values)
    deviation = 1.4826 * median(abs(each - middle) for each in values)
    return 1.2533 * deviation / math.sqrt(len(values))
