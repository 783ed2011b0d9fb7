"""When I/Os start, and when the load begins and ends."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import Direction
from iosonde.interop.fio.aspects.mix import rate_option, rates
from iosonde.interop.fio.aspects.sizes import sizes_of
from iosonde.interop.fio.given import Given
from iosonde.units import compact_duration


def arrival(given: Given, direction: Direction, jobs: int) -> dict[str, Any]:
    """Closed loop, or an open loop at a rate."""
    name, paced = rate_option(given), rates(given, direction)
    wanted = [rate for rate in paced.values() if rate]
    if name is None or not wanted:
        return {}
    if len(wanted) < len(paced):
        given.note(
            name,
            why="only one of reads and writes has a rate, and a stream has one rate for all",
            instead="the stream runs in a closed loop, as fast as it can",
        )
        return {}
    given.note(
        name,
        why="fio waits for the I/Os in flight before it pauses, and measures latency from submission",
        instead="the rate is kept in open loop, and response latency counts from the intended start",
    )
    if name == "rate" and any(len(sizes_of(given, operation)) > 1 for operation in direction.operations):
        given.note(
            name,
            why="fio paces bytes, so that a larger block is followed by a longer pause",
            instead="I/Os are paced, at the rate that gives these bytes with the mean block size",
        )
    process = given.text("rate_process", "linear")
    return {"arrival": "poisson" if process == "poisson" else "constant", "rate": round(sum(wanted) * jobs, 6)}


def start_ns(given: Given) -> int:
    """Delay of the start after the others."""
    ends = [end for end in given.text("startdelay").split("-") if end]
    if len(ends) > 1:
        given.note("startdelay", why="a stream starts at one time", instead="it starts at the earliest of the range")
    return given.read("startdelay", lambda _: units.time_ns(ends[0], unit="s")) if ends else 0


def duration_ns(given: Given) -> int:
    """Longest duration; 0 where only its bytes end it."""
    return given.time_ns("runtime")


def ramp(given: Given, stream: dict[str, Any]) -> dict[str, Any]:
    """Load before the measurement, and the length of an interval; parameters of the whole run."""
    ramp = given.time_ns("ramp_time")
    if ramp and any(name.startswith("limit_") for name in stream):
        given.note(
            "ramp_time", why="fio counts what the ramp moves towards `size`", instead="only the measurement is counted"
        )
    interval = given.time_ns("log_avg_msec", unit="ms")
    return {
        "ramp": compact_duration(ramp),
        **({"interval": compact_duration(interval)} if interval >= 10**8 else {}),
    }
