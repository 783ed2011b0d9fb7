"""Facts about network storage in a record: time and bytes of calls, retransmits, and round trips of probes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from iosonde.features.network_storage import server_side
from iosonde.features.network_storage.record import NetworkReading, OutageReading
from iosonde.features.network_storage.tcp import BYTES, CONNECTION, LIMITED
from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.schema import Record
from iosonde.units import format_bytes

FEWEST_PROBES = 6
"""Probes whose smallest and largest are a 95 % confidence interval of the median."""
REPEAT_NS, REPEATED_SHARE = 200_000_000, 0.1
"""Least timeout before TCP sends a segment again (kernel `include/net/tcp.h`: `TCP_RTO_MIN`), which losses cost at most
as a mean; and the share of a round trip up to which they are not regarded."""
AGREEING = 0.25
"""Largest difference of the load's bytes by interpolation and by the mount that different times of reading explain."""
FEW_COUNTED = 0.02
"""Share of the load's bytes below which the mount has not counted them: those of mapped files are in no counter."""
NEGLIGIBLE = 0.05
"""Share of a round trip up to which the way of a payload, forth and back, need not be divided."""
USED = 0.1
"""Share of the busiest connection's bytes from which a connection is in use."""
ALIKE, FEW = 0.03, 4
"""Largest difference of calls and operations, as a share and as a number, at which each operation is one call."""
DATA = ("read", "write")
WIRE = {"read": "received", "write": "acknowledged"}
"""Counter of TCP with the bytes of an operation."""
_ENOUGH = 300
"""Round trips of each kind of which all differences are taken."""
LEAST_NS_PER_BYTE = 1 / 40
"""CPU time of a FUSE daemon for a byte at least: 100 ns for a page that it moves with splice(2)."""
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class NetworkFacts:
    """Counters over the measurement; empty of local storage."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.reading = record.of(NetworkReading) or NetworkReading(transport={})
        self.is_known = bool(self.reading.transport)

    def grown(self, *names: str) -> int | None:
        """Increase of counters over the measurement; None if one is missing or was reset."""
        start, end = self.reading.at_start, self.reading.at_end
        if any(name not in start or name not in end or end[name] < start[name] for name in names):
            return None
        return sum(end[name] - start[name] for name in names)

    def data(self, counter: str) -> int | None:
        """Increase of a counter of the calls that move data."""
        return self.grown(*(f"{operation}_{counter}" for operation in DATA))

    def every(self, counter: str) -> int | None:
        """Increase of a counter of all calls."""
        return self.grown(*(f"{operation}_{counter}" for operation in (*DATA, "commit", "other")))

    @property
    def every_bytes(self) -> int | None:
        """Bytes of all calls and replies, with their headers."""
        sent, received = self.every("bytes_sent"), self.every("bytes_received")
        return None if sent is None or received is None else sent + received

    @cached_property
    def retransmits(self) -> int | None:
        """Calls that were transmitted again."""
        sent, calls = self.every("transmissions"), self.every("operations")
        return None if sent is None or calls is None else max(0, sent - calls)

    @cached_property
    def load_operations(self) -> float | None:
        """Operations of the load until the counters were read, as `load_bytes` has their bytes."""
        interpolated, bytes_moved = self.grown("load_operations"), self.grown("load_read_bytes", "load_write_bytes")
        found = (self.load_bytes("read") or 0) + (self.load_bytes("write") or 0)
        return interpolated * found / bytes_moved if interpolated and bytes_moved else interpolated

    @cached_property
    def calls_per_operation(self) -> float | None:
        """Calls that move data for each operation that the load completed in the same time."""
        calls, operations = self.data("operations"), self.load_operations
        return None if calls is None or not operations else calls / operations

    @property
    def is_one_call(self) -> bool:
        """True if each operation of the load was one call."""
        calls, operations = self.data("operations"), self.load_operations
        if not calls or not operations:
            return False
        return abs(calls - operations) <= max(FEW, ALIKE * operations)

    @cached_property
    def unseparated(self) -> str:
        """Reason why latency cannot be divided between network and server; empty if it can."""
        if not self.data("operations"):
            return "the transport has no counters of calls" if self.data("operations") is None else "no calls"
        if not self.is_one_call:
            return f"{self.calls_per_operation or 0:.2f} calls for each operation, not one"
        probes = len(self.reading.connect_ns)
        if probes < FEWEST_PROBES:
            return f"{probes} probes of the network; {FEWEST_PROBES} are required"
        if self.payload_bytes > self.reading.payload_bytes > 0:
            moved, probed = map(format_bytes, (self.payload_bytes, self.reading.payload_bytes))
            return f"a call moves {moved}; probes have {probed} at most"
        if self.payload_ns is None:
            echoes = len(self.reading.padded_echo_ns)
            return f"{echoes} echoes with the payload of a call; {FEWEST_PROBES} are required"
        if self.is_lossy:
            return "packets were lost, and the time until they were sent again is not known"
        return ""

    @cached_property
    def payload_bytes(self) -> float:
        """Mean payload of a call."""
        return (self.grown("server_read_bytes", "server_write_bytes") or 0) / (self.data("operations") or 1)

    @cached_property
    def payload_ns(self) -> float | None:
        """Time of the payload of a call on the way: to the server for writes, from the server for reads.

        A call and an echo without payload are subtracted, with all delays of the processes that make them.
        """
        found = self.reading
        pairs = [found.call_ns, found.padded_call_ns, found.echo_ns, found.padded_echo_ns]
        calls, few = self.data("operations"), [len(each) < FEWEST_PROBES for each in pairs]
        if not calls or self.payload_bytes > found.payload_bytes or any(few[2:]):
            return None
        both = longer_by(found.padded_echo_ns, found.echo_ns)
        if any(few[:2]):  # A server that is so busy that it replies to few calls.
            return both if both <= NEGLIGIBLE * 1e6 * (self.data("round_trip_ms") or 0) / calls else None
        # A thread of the server may be late, but is not in the echoes.
        forth = min(both, longer_by(found.padded_call_ns, found.call_ns))
        written = (self.grown("write_operations") or 0) / calls
        return written * forth + (1 - written) * (both - forth)

    @cached_property
    def network_ns(self) -> float | None:
        """Time of a call on the network; None if that of its payload is not known."""
        empty = median(self.reading.connect_ns)
        return None if empty is None or self.payload_ns is None else empty + self.payload_ns

    @cached_property
    def longest_network_ns(self) -> float | None:
        """Time of a call on the network at most: an echo takes the payload both ways."""
        return median(self.reading.padded_echo_ns)

    @cached_property
    def is_lossy(self) -> bool:
        """True if lost packets can have taken a considerable part of the round trips."""
        calls, round_trip_ms = self.data("operations"), self.data("round_trip_ms")
        return bool(calls and round_trip_ms) and self.lost_considerably(calls or 0, 1e6 * (round_trip_ms or 0))

    def lost_considerably(self, calls: float, round_trips_ns: float) -> bool:
        """Return True if lost packets can have taken a considerable part of the time of all round trips."""
        again = (self.grown("tcp_retransmits") or 0) - (self.grown("tcp_needless_retransmits") or 0)
        seen = max(0, again) + (self.grown("tcp_out_of_order") or 0)
        probes = len(self.reading.connect_ns) + len(self.reading.padded_echo_ns)
        lost = max(seen, calls * self.reading.lost_probes / max(1, probes))
        return lost * REPEAT_NS > REPEATED_SHARE * round_trips_ns

    @cached_property
    def connections(self) -> list[tuple[int, int]]:
        """Bytes of each TCP connection in both directions, and time in which it had data and could not send it, us."""
        names = [name.removesuffix(BYTES) for name in self.reading.at_end if name.startswith(CONNECTION)]
        grown = ((self.grown(name + BYTES), self.grown(name + LIMITED)) for name in names if not name.endswith(LIMITED))
        return [(moved, limited) for moved, limited in grown if moved is not None and limited is not None]

    @property
    def connections_used(self) -> int:
        """Connections that moved a tenth of the bytes of the busiest one or more."""
        busiest = max((moved for moved, _ in self.connections), default=0)
        return sum(moved > 0 and moved >= USED * busiest for moved, _ in self.connections)

    @cached_property
    def window_share(self) -> float | None:
        """Share of the time in which a full window or buffer kept connections with data from sending.

        Each connection counts by its bytes: a queue of a controller that nothing uses is never limited.
        """
        counted_ns, moved = self.grown("clock_ns"), sum(each for each, _ in self.connections)
        if not counted_ns or not moved:
            return None
        return sum(each * min(1.0, 1e3 * limited / counted_ns) for each, limited in self.connections) / moved

    @cached_property
    def shortest_round_trip_ns(self) -> float | None:
        """Shortest round trip that the kernel saw of the connections; None if it is not known."""
        found = self.reading.at_end.get("tcp_min_round_trip_us")
        return 1e3 * found if found else None

    @cached_property
    def daemon_cpu_ns(self) -> float | None:
        """CPU time of the FUSE daemon for each operation."""
        used, operations = self._daemon_cpu_ns, self.load_operations
        return None if used is None or not operations else used / operations

    @cached_property
    def daemon_ns(self) -> float | None:
        """The same with the time in which its threads were ready to run and had no CPU."""
        waited, operations = self.grown("daemon_waiting_ns") or 0, self.load_operations
        return None if self.daemon_cpu_ns is None or not operations else self.daemon_cpu_ns + waited / operations

    @cached_property
    def daemon_bytes_most(self) -> int | None:
        """Bytes that the FUSE daemon can have served in its CPU time, which is known to a tick; None if it is not."""
        return None if self._daemon_cpu_ns is None else int((self._daemon_cpu_ns + _NS_PER_TICK) / LEAST_NS_PER_BYTE)

    def daemon_moved_most(self, operation: str) -> int | None:
        """Bytes of the load that a FUSE daemon with a server can have moved to it or from it; None if not known.

        A daemon may use splice(2) or recv(2), which are not in its own counters; or ssh(1) compresses, and the
        connections carry less: the largest of the counters is taken. Connections must be the same all the time.
        """
        start, end = (
            {name for name in each if name.startswith(CONNECTION)}
            for each in (self.reading.at_start, self.reading.at_end)
        )
        names = "daemon_read_bytes", "daemon_written_bytes", f"tcp_{WIRE[operation]}_bytes"
        moved = [each for name in names if (each := self.grown(name)) is not None]
        return max(moved) if len(moved) == len(names) and start == end else None

    @property
    def _daemon_cpu_ns(self) -> int | None:
        ticks = self.grown("daemon_cpu_ticks")
        return None if ticks is None else max(ticks * _NS_PER_TICK, self.grown("daemon_running_ns") or 0)

    def load_bytes(self, operation: str) -> int | None:
        """Bytes that the load read or wrote until the counters were read.

        What the load completed until then is interpolated. The mount counts the bytes of applications as well, at the
        very same time: its number is used unless it is larger, so that another process used the mount, or far smaller,
        so that files were mapped.
        """
        load = self.grown(f"load_{operation}_bytes")
        mount = self.grown(f"normal_{operation}_bytes", f"direct_{operation}_bytes")
        if load is None or mount is None or mount > load / (1 - AGREEING) or mount < FEW_COUNTED * load:
            return load
        return mount


def median(values: Sequence[int]) -> float | None:
    """The middle value."""
    return float(sorted(values)[len(values) // 2]) if values else None


def longer_by(padded: Sequence[int], empty: Sequence[int]) -> float:
    """Time of a payload from round trips with and without it: the median of all their differences (Hodges-Lehmann).

    On a full link some of both wait behind the load: their medians may be the same, or too far apart.
    """
    few = [np.sort(each)[:: max(1, len(each) // _ENOUGH)] for each in (padded, empty)]
    return max(0.0, float(np.median(np.subtract.outer(*few))))


def median_ends(values: Sequence[int]) -> tuple[float, float] | None:
    """The 95 % confidence interval of the median, by order statistics (normal approximation of the binomial)."""
    if len(values) < FEWEST_PROBES:
        return None
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    low, high = int(len(values) / 2 - half), int(len(values) / 2 + half)
    return float(ordered[max(0, low)]), float(ordered[min(len(values) - 1, high)])


def _row(name: str, dtype: DType, text: str, value: Callable[[NetworkFacts], Any]) -> Column:
    return Column(
        f"network_{name}",
        dtype,
        f"Network storage: {text}",
        lambda run: value(facts) if (facts := run.of(NetworkFacts)).is_known else None,
    )


def _outage_row(name: str, text: str, value: Callable[[OutageReading], int | None]) -> Column:
    return Column(
        f"outage_{name}",
        U64,
        f"Outage: {text}",
        lambda run: value(found) if (found := run.record.of(OutageReading)) else None,
    )


COLUMNS = (
    _outage_row("ns", "its length as carried out, ns", lambda outage: outage.length_ns),
    _outage_row("unavailable_ns", "longest time without a completed I/O, ns", lambda outage: outage.unavailable_ns),
    _outage_row("resolution_ns", "uncertainty of that time: an interval, ns", lambda outage: outage.resolution_ns),
    _outage_row("backlog", "most I/Os that were due and not started", lambda outage: outage.backlog_max),
    _outage_row(
        "caught_up_ns", "time from the next completed I/O until the backlog was as before, ns", lambda o: o.caught_up_ns
    ),
    _row(
        "transport",
        TEXT,
        "`nfs`, `smb`, `fuse`, `nvme-tcp` and other fabrics, `iscsi` or `rbd`; null of local storage",
        lambda net: net.reading.transport.get("transport"),
    ),
    _row("server", TEXT, "address of the server", lambda net: net.reading.transport.get("server") or None),
    _row("counted_ns", U64, "time between the readings of the counters, ns", lambda net: net.grown("clock_ns")),
    _row("calls", U64, "calls that read or write data", lambda net: net.data("operations")),
    _row("other_calls", U64, "other calls, such as metadata", lambda net: net.grown("other_operations")),
    _row("queue_ms", U64, "time of the data calls before they were sent, ms", lambda net: net.data("queue_ms")),
    _row("round_trip_ms", U64, "time between their sending and the replies, ms", lambda net: net.data("round_trip_ms")),
    _row("execute_ms", U64, "time from their start to their end, ms", lambda net: net.data("execute_ms")),
    _row("retransmits", U64, "calls that were transmitted again", lambda net: net.retransmits),
    _row("timeouts", U64, "calls that timed out", lambda net: net.every("timeouts")),
    _row("tcp_retransmits", U64, "segments that TCP sent again", lambda net: net.grown("tcp_retransmits")),
    _row(
        "dropped", U64, "packets that the interface dropped", lambda net: net.grown("nic_rx_dropped", "nic_tx_dropped")
    ),
    _row("wire_bytes", U64, "bytes of all calls and replies", lambda net: net.every_bytes),
    _row(
        "load_operations",
        U64,
        "operations of the load in the same time",
        lambda net: None if net.load_operations is None else round(net.load_operations),
    ),
    _row("load_read_bytes", U64, "bytes that the load read in it", lambda net: net.load_bytes("read")),
    _row("load_write_bytes", U64, "bytes that the load wrote in it", lambda net: net.load_bytes("write")),
    _row("read_bytes", U64, "payload of the replies to reads, bytes", lambda net: net.grown("server_read_bytes")),
    _row("write_bytes", U64, "payload of writes, bytes", lambda net: net.grown("server_write_bytes")),
    _row(
        "server_read_bytes",
        U64,
        "bytes that the server counted as read, if it is this machine",
        lambda net: net.grown("nfsd_read_bytes"),
    ),
    _row(
        "server_write_bytes",
        U64,
        "bytes that the server counted as written, if it is this machine",
        lambda net: net.grown("nfsd_write_bytes"),
    ),
    _row("calls_per_operation", NUMBER, "data calls for each operation", lambda net: net.calls_per_operation),
    _row(
        "probe_ns",
        NUMBER,
        "median round trip of probes of the network during the measurement, ns",
        lambda net: median(net.reading.connect_ns),
    ),
    _row(
        "payload_ns",
        NUMBER,
        "time of the payload of a call on the way, by probes with the same payload, ns",
        lambda net: net.payload_ns,
    ),
    _row(
        "shortest_round_trip_ns",
        NUMBER,
        "shortest round trip of the TCP connections, by the kernel, ns",
        lambda net: net.shortest_round_trip_ns,
    ),
    _row("daemon_cpu_ns", NUMBER, "CPU time of the FUSE daemon for each operation, ns", lambda net: net.daemon_cpu_ns),
    _row("lost_probes", U64, "probes that were lost", lambda net: net.reading.lost_probes),
    _row(
        "out_of_order",
        U64,
        "segments that arrived before earlier ones: those were lost, or overtaken",
        lambda net: net.grown("tcp_out_of_order"),
    ),
    _row("connections_used", U64, "TCP connections that moved data of the load", lambda net: net.connections_used),
    _row(
        "window_share",
        NUMBER,
        "share of the time in which a full window or buffer of the TCP connections kept data from being sent",
        lambda net: net.window_share,
    ),
    _row(
        "idle_probe_ns",
        NUMBER,
        "the same before the engine started",
        lambda net: median(net.reading.idle_connect_ns),
    ),
    _row(
        "empty_call_ns",
        NUMBER,
        "median round trip of empty calls during the measurement, ns",
        lambda net: median(net.reading.call_ns),
    ),
    _row(
        "unseparated",
        TEXT,
        "why latency is not divided between network and server; null if it is",
        lambda net: net.unseparated or None,
    ),
    _row("is_divided", U64, "1 if latency can be divided, else null", lambda net: None if net.unseparated else 1),
    _row("is_one_call", U64, "1 if each operation was one call, else null", lambda net: 1 if net.is_one_call else None),
    *server_side.COLUMNS,
)
"""Columns of `runs` about network storage and outages."""
