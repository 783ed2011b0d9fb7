"""Cost of a run of block I/O: time, and bytes written."""

from __future__ import annotations

import math
from collections.abc import Mapping

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.block.parameters import BlockParameters

ASSUMED_OPERATIONS_PER_SECOND = 20_000
"""Speed at which a run that only operations limit is assumed to go when a plan estimates time."""

SIGMAS = 8
"""Standard deviations by which the number of random arrivals does not exceed what is expected."""


def cost(streams: Mapping[str, BlockParameters]) -> Cost:
    """Time and bytes written at most, without layout; streams must be fitted to the target."""
    whole = next(iter(streams.values()))
    written = [_write_limit(stream) for stream in streams.values() if stream.writes]
    return Cost(
        seconds=(whole.ramp + max(_duration_ns(stream) for stream in streams.values())) / 10**9,
        write_bytes=0 if whole.is_virtual else None if None in written else sum(size or 0 for size in written),
    )


def _write_limit(stream: BlockParameters) -> int | None:
    """Bytes that a stream writes at most, ramp included; None where only time limits them."""
    limits = [stream.byte_limit, (stream.limit_operations or 0) * stream.largest_block, _due(stream, stream.duration)]
    ramps = [stream.ramp_bytes, _due(stream, stream.ramp)]
    measured, ramp = (min((limit for limit in each if limit), default=None) for each in (limits, ramps))
    return None if measured is None or (ramp is None and stream.ramp) else measured + (ramp or 0)


def _due(stream: BlockParameters, length_ns: int | None) -> int | None:
    """Bytes that an open loop requires in some time; of random arrivals the maximum."""
    rate = stream.offered_rate
    if not rate or length_ns is None:
        return None
    expected = rate * length_ns / 10**9
    chance = SIGMAS * math.sqrt(expected) if stream.arrival == "poisson" else 0
    return (math.ceil(expected + chance) + stream.jobs) * stream.largest_block


def _duration_ns(stream: BlockParameters) -> int:
    if stream.duration is not None:
        return stream.duration
    if stream.limit_operations:
        rate = stream.offered_rate if isinstance(stream.rate, float) else ASSUMED_OPERATIONS_PER_SECOND
        return round(stream.limit_operations / rate * 10**9)
    return round((stream.byte_limit or 0) / ASSUMED_BYTES_PER_SECOND * 10**9)
