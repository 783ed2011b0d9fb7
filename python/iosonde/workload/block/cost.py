"""Cost of a run of block I/O: time, and bytes written."""

from __future__ import annotations

import math
from collections.abc import Mapping

from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost
from iosonde.workload.block.parameters import BlockParameters

ASSUMED_OPERATIONS_PER_SECOND = 20_000
"""Speed at which small operations are assumed to go when a plan estimates time."""

SIGMAS = 8
"""Standard deviations by which the number of random arrivals does not exceed what is expected."""


def cost(streams: Mapping[str, BlockParameters]) -> Cost:
    """Time, and bytes written at most, without layout; streams must be fitted to the target."""
    whole = next(iter(streams.values()))
    written = [_write_limit(stream) for stream in streams.values() if stream.writes]
    return Cost(
        seconds=max(map(_ramp_s, streams.values())) + max(map(_measured_s, streams.values())),
        write_bytes=0 if whole.is_virtual else None if None in written else sum(size or 0 for size in written),
    )


def _write_limit(stream: BlockParameters) -> int | None:
    """Bytes that a stream writes at most, ramp included; None where only time limits them."""
    due = None if stream.duration is None else _due(stream, stream.ramp + stream.duration)
    limits = [stream.byte_limit, (stream.limit_operations or 0) * stream.largest_block, due]
    ramps = [stream.ramp_bytes, _due(stream, stream.ramp)]
    measured, ramp = (min((limit for limit in each if limit), default=None) for each in (limits, ramps))
    if measured is None or (ramp is None and stream.ramp):
        return None
    return min(measured + (ramp or 0), due or measured + (ramp or 0))


def _due(stream: BlockParameters, length_ns: int) -> int | None:
    """Bytes that an open loop requires from its start to this time; of random arrivals the maximum.

    A flush takes one position of the schedule. Threads count their writes until the next flush by themselves.
    """
    if not stream.offered_rate:
        return None
    expected = stream.offered_rate * length_ns / 10**9
    chance = SIGMAS * math.sqrt(expected) if stream.arrival == "poisson" else 0
    writes = math.ceil(expected + chance)
    if every := stream.writes_per_flush:
        writes = (writes + stream.jobs * stream.queue_depth) * every // (every + 1)
    return writes * stream.largest_block


def _ramp_s(stream: BlockParameters) -> float:
    """Length of the ramp: of its time, or of its bytes if they are assumed to come first."""
    length = stream.ramp / 10**9
    return min(length, stream.ramp_bytes / _assumed_rate(stream)) if stream.ramp_bytes else length


def _measured_s(stream: BlockParameters) -> float:
    """Length of the measurement: of the limit that is assumed to be reached first."""
    limits = [] if stream.duration is None else [stream.duration / 10**9]
    for limit in (stream.byte_limit, (stream.limit_operations or 0) * stream.largest_block):
        if limit:
            limits.append(limit / _assumed_rate(stream))
    return min(limits, default=0.0)


def _assumed_rate(stream: BlockParameters) -> float:
    """Bytes per second."""
    operations = stream.offered_rate if isinstance(stream.rate, float) else ASSUMED_OPERATIONS_PER_SECOND
    return min(operations * stream.largest_block, ASSUMED_BYTES_PER_SECOND)
