"""Evidence from the wire of a run on the storage of a server: bytes, calls, and round trips of the network itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iosonde.core.features import contributed
from iosonde.results.schema import Record


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Counted while the load completed the bytes of `load_*`; times are means of calls, None where not known."""

    load_read_bytes: int
    load_write_bytes: int
    read_bytes: int
    write_bytes: int
    """Payload over the wire."""
    queue_ns: float | None = None
    """Time of a call in the client before it was sent."""
    round_trip_ns: float | None = None
    is_one_call: bool = False
    """True if each operation of the load was one call."""
    network_ns: float | None = None
    """Median round trip of probes of the network during the measurement; else the shortest one of the connections."""
    payload_ns: float | None = None
    """Time that the payload of a call takes on the network in addition."""
    longest_network_ns: float | None = None
    """Time of a call on the network at most, by an echo that takes the payload both ways."""
    empty_calls_ns: tuple[int, ...] = ()
    """Round trips of calls that need a thread of the server, and no storage."""
    server_device_ns: float | None = None
    """Time of the server's drives for each operation, of a server that is a host of the study."""
    server_device_share: float | None = None
    """Utilization of its busiest drive."""
    server_cpu_share: float | None = None
    """CPU time of it over that of all its CPUs."""
    calls_without_thread_share: float | None = None
    """Share of its calls that found no idle thread."""
    daemon_ns: float | None = None
    """CPU time of a FUSE daemon for each operation, and its wait for a CPU."""
    is_lossy: bool = False
    """True if lost packets can have taken a considerable part of the round trips."""
    window_share: float | None = None
    """Share of the time in which the windows or buffers of the TCP connections that moved the data were full."""
    connections: int = 0
    connections_used: int = 0
    """Those of them that moved data of the load."""
    calls_per_operation: float | None = None
    largest_call_bytes: int | None = None
    link_share: float | None = None
    """Use of the interface in its busier direction, over its speed."""


def remote_of(record: Record) -> Remote | None:
    """Evidence from the wire of a record; None of local storage and of transports without any."""
    sources: tuple[Callable[[Record], Remote | None], ...] = contributed("verdict", "REMOTE")
    return next((found for source in sources if (found := source(record)) is not None), None)
