"""Unit that a limit counts: operations, operations in units, or bytes, from rates over block sizes."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

from iosonde.features.rate_limits.known_limits import Counted
from iosonde.features.rate_limits.series import Load, Series, Stage, Tail
from iosonde.features.rate_limits.walk import KIB, SAME, Point, Settings, Stages, Walk, same, sized


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
    rejected.append(f"units of {plateau // KIB} KiB: the rate falls gradually, not to half, above that size")
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
