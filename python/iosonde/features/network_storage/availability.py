"""Unavailable time from the intervals of a measurement.

It is the longest time without a completed I/O, of those that overlap with an outage if that is known. The last
completion is somewhere in the interval before, the next one somewhere in the interval after, so each end is known to
half an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Interval:
    """Completed I/Os and the largest backlog of an interval of the measurement; times of the engine's clock."""

    begin_ns: int
    end_ns: int
    count: int
    backlog: int


@dataclass(frozen=True, kw_only=True)
class Unavailability:
    """The longest time without a completed I/O, and the time until the backlog was as before."""

    begin_ns: int
    end_ns: int
    resolution_ns: int
    """Length of an interval: each end is known to half of it."""
    backlog_max: int
    caught_up_ns: int | None
    """Time from its end until the backlog was as before; None if it never was, or without a backlog."""


def unavailability(
    intervals: Sequence[Interval], after_ns: int = 0, before_ns: int | None = None
) -> Unavailability | None:
    """Return the longest time without a completed I/O that ends after a time and begins before another one.

    None if every interval has one, or none follows. The default is any time.
    """
    longest: tuple[int, int] | None = None
    served = [place for place, each in enumerate(intervals) if each.count]
    for before, after in pairwise(served):
        is_other = intervals[after].end_ns <= after_ns or (
            before_ns is not None and intervals[before].begin_ns >= before_ns
        )
        if after - before > 1 and not is_other and (longest is None or after - before > longest[1] - longest[0]):
            longest = before, after
    if longest is None:
        return None
    before, after = longest
    resolution = max(each.end_ns - each.begin_ns for each in intervals[before : after + 1])
    begin = (intervals[before].begin_ns + intervals[before].end_ns) // 2
    end = (intervals[after].begin_ns + intervals[after].end_ns) // 2
    usual = max(each.backlog for each in intervals[:before] or intervals[:1])
    backlog = max(each.backlog for each in intervals[before:])
    back = next((each for each in intervals[after:] if each.backlog <= usual), None)
    return Unavailability(
        begin_ns=begin,
        end_ns=end,
        resolution_ns=resolution,
        backlog_max=backlog,
        caught_up_ns=max(0, back.end_ns - end) if back and backlog > usual else None,
    )
