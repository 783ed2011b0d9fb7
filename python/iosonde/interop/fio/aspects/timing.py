"""When I/Os start, and when the load begins and ends."""

from __future__ import annotations

from typing import Any

from iosonde.interop.fio import units
from iosonde.interop.fio.aspects.direction import PLACES, Direction
from iosonde.interop.fio.aspects.sizes import mean_size, sizes_of
from iosonde.interop.fio.given import Given
from iosonde.units import compact_duration

UNBOUNDED_DURATION_NS = 10 * 10**9
"""How long a job is measured whose end the job file leaves to the size of an unknown target."""


def arrival(given: Given, direction: Direction, stream: dict[str, Any], jobs: int) -> dict[str, Any]:
    """Closed loop, or an open loop at a rate."""
    name = given.last_of("rate_iops") or given.last_of("rate")
    rates = _rates(given, name, direction) if name else {}
    wanted = [rate for rate in rates.values() if rate]
    if name is None or not wanted:
        return {}
    if len(wanted) < len(rates):
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
    process = given.text("rate_process", "linear")
    total = sum(wanted)
    share = {"read_fraction": rates["read"] / total} if {*rates} == {"read", "write"} else {}
    return {"arrival": "poisson" if process == "poisson" else "constant", "rate": round(total * jobs, 6), **share}


def _rates(given: Given, name: str, direction: Direction) -> dict[str, float]:
    """I/Os per second and job of each operation; 0 where it has no rate."""
    texts = given.triple(name)
    rates = {}
    for operation in direction.operations:
        text = texts[PLACES.index(operation)]
        rate = float(given.read(name, lambda _: units.size(text, kb_base=given.kb_base)) if text else 0)  # noqa: B023
        rates[operation] = rate if name == "rate_iops" else rate / mean_size(sizes_of(given, operation))
    return rates


def start_ns(given: Given) -> int:
    """How long after the others it starts."""
    ends = [end for end in given.text("startdelay").split("-") if end]
    if len(ends) > 1:
        given.note("startdelay", why="a stream starts at one time", instead="it starts at the earliest of the range")
    return given.read("startdelay", lambda _: units.time_ns(ends[0], unit="s")) if ends else 0


def duration_ns(given: Given, stream: dict[str, Any]) -> int:
    """How long it runs at most; 0 where only its bytes end it."""
    duration = given.time_ns("runtime")
    if duration or _limited(stream):
        return duration
    given.note_section(
        why="it ends with the target, of unknown size",
        instead=f"it is measured for {compact_duration(UNBOUNDED_DURATION_NS)}, or for `--set duration=...`",
    )
    return UNBOUNDED_DURATION_NS


def _limited(stream: dict[str, Any]) -> bool:
    return "limit_bytes" in stream or "limit_operations" in stream


def ramp(given: Given, stream: dict[str, Any]) -> dict[str, Any]:
    """Load before the measurement, and the length of an interval; parameters of the whole run."""
    ramp = given.time_ns("ramp_time")
    if ramp and _limited(stream):
        given.note(
            "ramp_time", why="fio counts what the ramp moves towards `size`", instead="only the measurement is counted"
        )
    interval = given.time_ns("log_avg_msec", unit="ms")
    return {
        "ramp": compact_duration(ramp),
        **({"interval": compact_duration(interval)} if interval >= 10**8 else {}),
    }
