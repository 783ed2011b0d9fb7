"""The transport below a target and the readings of a run, as its record has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from iosonde.features.network_storage.tcp import CONNECTION
from iosonde.results.schema import RecordPart

_NOT_ADDED = ("clock_ns", "time_ns", "read_ns", "nic_", "nfsd_")
"""Prefixes of counters that are not those of one host alone."""
_NUMBERS: Mapping[str, Callable[[Iterable[int]], int]] = {"tcp_connections": sum, "tcp_min_round_trip_us": min}
"""Values of a time, which do not grow, and what several hosts have together."""
_ROUND_TRIPS = ("connect_ns", "call_ns", "padded_call_ns", "echo_ns", "padded_echo_ns", "idle_connect_ns")


class NetworkReading(RecordPart):
    """Transport, counters at the start and the end of the measurement, and probes during it."""

    name = "network_storage"

    transport: dict[str, Any]
    """`transport`, `version`, `server`, `options`, `path` (route and interface) and others, as far as known."""
    at_start: dict[str, int] = Field(default_factory=dict)
    """Counters by name, with `clock_ns`; bytes and milliseconds since mount, connection or interface exist."""
    at_end: dict[str, int] = Field(default_factory=dict)
    connect_ns: list[int] = Field(default_factory=list)
    """Round trips of connections during the measurement: the network alone."""
    call_ns: list[int] = Field(default_factory=list)
    """Round trips of empty calls during the measurement: the network and a thread of the server."""
    payload_bytes: int = 0
    """Payload of padded calls and echoes; 0 if there were none."""
    padded_call_ns: list[int] = Field(default_factory=list)
    echo_ns: list[int] = Field(default_factory=list)
    padded_echo_ns: list[int] = Field(default_factory=list)
    lost_probes: int = 0
    """Echoes without reply, and connections whose first segment had none at first, during the measurement."""
    idle_connect_ns: list[int] = Field(default_factory=list)
    """Round trips of connections before the engine started."""

    @classmethod
    def of_hosts(cls, parts: Sequence[Self]) -> Self | None:
        """Add the counters of all hosts; of interfaces the busiest counts. None if they use different servers."""
        first = parts[0]
        keys = ("transport", "server", "source")
        if any(each.transport.get(key) != first.transport.get(key) for each in parts for key in keys):
            return None
        grown = [
            {name: each.at_end[name] - start for name, start in each.at_start.items() if name in each.at_end}
            for each in parts
        ]
        names = [name for name in grown[0] if all(each.get(name, -1) >= 0 for each in grown)]
        # Each host has connections of its own.
        own = {name: value for each in grown for name, value in each.items() if name.startswith(CONNECTION)}
        whole = {
            name: (max if name.startswith(_NOT_ADDED) else sum)(each[name] for each in grown) for name in names
        } | own
        whole |= {
            name: together([each.at_end[name] for each in parts])
            for name, together in _NUMBERS.items()
            if all(name in each.at_end for each in parts)
        }
        return cls(
            transport=first.transport,
            at_start=dict.fromkeys((*names, *own), 0),
            at_end=whole,
            payload_bytes=min(each.payload_bytes for each in parts),
            lost_probes=sum(each.lost_probes for each in parts),
            **{name: [value for each in parts for value in getattr(each, name)] for name in _ROUND_TRIPS},
        )

    def about_target(self) -> dict[str, dict[str, Any]]:
        """Groups of facts for the report, by title."""
        facts = {name: value for name, value in self.transport.items() if not name.endswith(("_pid", "_pids"))}
        return {"Network storage": facts} if facts else {}


class OutageReading(RecordPart):
    """An outage during the measurement, and what the load saw of it; times of the engine's clock, in nanoseconds."""

    name = "outage"

    kind: str
    requested_ns: int
    began_ns: int | None = None
    ended_ns: int | None = None
    unavailable_from_ns: int | None = None
    """Start of the longest time without a completed I/O; None if every interval has one."""
    unavailable_ns: int | None = None
    resolution_ns: int | None = None
    """Length of an interval: each end of that time is known to half of it."""
    backlog_max: int | None = None
    caught_up_ns: int | None = None
    """Time from the next completed I/O until the backlog was as before; None if it never was."""

    @property
    def length_ns(self) -> int | None:
        """Length of the outage as carried out; None if it was not."""
        return None if self.began_ns is None or self.ended_ns is None else self.ended_ns - self.began_ns


PARTS = (NetworkReading, OutageReading)

STATISTICS = "network."
"""Prefix of its readings in the table `store_statistics`."""
