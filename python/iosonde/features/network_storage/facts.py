"""Facts and metrics of network storage: calls, probes, and latency divided among client, network and server.

Counters of a server that is a host of the study (`--hosts`, role `server`) divide its part of the latency further, for
loads of reads with at most one I/O of its drives per call: then the time of these I/Os is part of the time of the
calls. Writes may reach the drives after their calls have ended.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import polars as pl

from iosonde.features.network_storage.record import NetworkReading, OutageReading
from iosonde.features.network_storage.tcp import BYTES, CONNECTION, LIMITED
from iosonde.metrics.metric import Metric, over
from iosonde.results.column import NUMBER, TEXT, U64, facts, grown
from iosonde.results.schema import Record, ServerCounters, ServerReading
from iosonde.units import format_bytes

MOST_PER_CALL = 1.05
"""I/Os of the drives for each call above which their times may overlap."""
MOST_OTHER = 0.1
"""Writes of the drives over their reads above which other processes may have used them."""


class ServerFacts:
    """Increases over the measurement of the one server of a run; empty without one."""

    def __init__(self, record: Record) -> None:
        reading = record.of(ServerReading)
        servers = [each for each in reading.servers if each.at_end] if reading else []
        self.server: ServerCounters | None = servers[0] if len(servers) == 1 else None
        self.count = len(servers)

    def grown(self, name: str) -> int | None:
        """Increase of a counter; None if it is not known."""
        return self.server.grown(name) if self.server else None

    @property
    def cpu_share(self) -> float | None:
        """CPU time over that of all CPUs."""
        used, time = self.grown("cpu_ns"), self.grown("time_ns")
        return used / (time * self.server.cpus) if self.server and used is not None and time else None

    @property
    def busy_share(self) -> float | None:
        """Utilization of the busiest drive."""
        time = self.grown("time_ns")
        names = [name for name in self.server.at_end if name.startswith("busy_ms.")] if self.server else []
        busy = [found for name in names if (found := self.grown(name)) is not None]
        return min(1.0, 1e6 * max(busy) / time) if busy and time else None

    @property
    def device_ns(self) -> float | None:
        """Time of the reads of the drives for each operation; None if the server's part is not divided."""
        operations, milliseconds = self.grown("load_operations"), self.grown("disk_read_ms")
        return None if self.unseparated or not operations or milliseconds is None else 1e6 * milliseconds / operations

    @property
    def thread_wait_share(self) -> float | None:
        """Calls for which no thread of the NFS server was idle, over all."""
        arrived, waited = self.grown("nfsd_arrived"), self.grown("nfsd_without_thread")
        return min(1.0, waited / arrived) if arrived and waited is not None else None

    @property
    def unseparated(self) -> str:
        """Reason why the server's part is not divided; empty if it can be."""
        if self.server is None:
            return "the server is not a host of the study" if not self.count else f"{self.count} servers"
        operations, reads, writes = (self.grown(name) for name in ("load_operations", "disk_reads", "disk_writes"))
        if not operations or reads is None or writes is None:
            return "the server has no counters of drives"
        if self.grown("load_write_bytes"):
            return "writes may reach the drives after their calls"
        if reads > MOST_PER_CALL * operations:
            return f"{reads / operations:.2f} reads of the drives for each operation"
        if writes > MOST_OTHER * operations:
            return "the drives were written to during a load of reads"
        return ""


_OF_SERVER = facts(
    lambda record: found if (found := ServerFacts(record)).server else None,
    ("host", TEXT, "its name", lambda facts: facts.server.host if facts.server else None),
    ("calls", U64, "calls that its NFS server counted", lambda facts: facts.grown("nfsd_calls")),
    ("thread_wait_share", NUMBER, "calls that found no idle thread of its NFS server, over all"),
    ("nfs_read_bytes", U64, "bytes that its NFS server read", lambda facts: facts.grown("nfsd_read_bytes")),
    ("nfs_write_bytes", U64, "bytes that its NFS server wrote", lambda facts: facts.grown("nfsd_write_bytes")),
    ("host_cpu_share", NUMBER, "CPU time over that of all CPUs", "cpu_share"),
    ("disk_busy_share", NUMBER, "utilization of its busiest drive", "busy_share"),
    ("disk_read_bytes", U64, "bytes read from its drives", lambda facts: facts.grown("disk_read_bytes")),
    ("disk_write_bytes", U64, "bytes written to its drives", lambda facts: facts.grown("disk_write_bytes")),
    ("disk_read_ms", U64, "time of the reads of its drives, ms", lambda facts: facts.grown("disk_read_ms")),
    ("load_operations", U64, "operations of the load in that time", lambda facts: facts.grown("load_operations")),
    ("load_read_bytes", U64, "bytes that the load read in it", lambda facts: facts.grown("load_read_bytes")),
    ("load_write_bytes", U64, "bytes that the load wrote in it", lambda facts: facts.grown("load_write_bytes")),
    ("unseparated", TEXT, "why its part of the latency is not divided", lambda facts: facts.unseparated or None),
    ("is_divided", U64, "1 if it can be divided, else null", lambda facts: None if facts.unseparated else 1),
    prefix="server_", words="Server among the hosts: ",
)  # fmt: skip
"""Columns of `runs` about the server."""


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
        return grown(self.reading.at_start, self.reading.at_end, *names)

    def data(self, counter: str) -> int | None:
        """Increase of a counter of the calls that move data."""
        return self.grown(*(f"{operation}_{counter}" for operation in DATA))

    def every(self, *counters: str) -> int | None:
        """Increase of counters of all calls."""
        return self.grown(*(f"{operation}_{each}" for operation in (*DATA, "commit", "other") for each in counters))

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
            return "calls were not counted at both ends" if self.data("operations") is None else "no calls"
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


COLUMNS = (
    *facts(
        lambda record: record.of(OutageReading),
        ("ns", U64, "its length as carried out, ns", "length_ns"),
        ("unavailable_ns", U64, "longest time without a completed I/O, ns"),
        ("resolution_ns", U64, "uncertainty of that time: an interval, ns"),
        ("backlog", U64, "most I/Os that were due and not started", "backlog_max"),
        ("caught_up_ns", U64, "time from the next completed I/O until the backlog was as before, ns"),
        prefix="outage_", words="Outage: ",
    ),
    *facts(
        lambda record: found if (found := NetworkFacts(record)).is_known else None,
        ("transport", TEXT, 
            "`nfs`, `smb`, `fuse`, `nvme-tcp` and other fabrics, `iscsi` or `rbd`; null of local storage",
            "reading.transport.transport"),
        ("server", TEXT, "address of the server", lambda net: net.reading.transport.get("server") or None),
        ("counted_ns", U64, "time between the readings of the counters, ns", lambda net: net.grown("clock_ns")),
        ("calls", U64, "calls that read or write data", lambda net: net.data("operations")),
        ("other_calls", U64, "other calls, such as metadata", lambda net: net.grown("other_operations")),
        ("queue_ms", U64, "time of the data calls before they were sent, ms", lambda net: net.data("queue_ms")),
        ("round_trip_ms", U64, "time between their sending and the replies, ms", lambda net: net.data("round_trip_ms")),
        ("execute_ms", U64, "time from their start to their end, ms", lambda net: net.data("execute_ms")),
        ("retransmits", U64, "calls that were transmitted again"),
        ("timeouts", U64, "calls that timed out", lambda net: net.every("timeouts")),
        ("tcp_retransmits", U64, "segments that TCP sent again", lambda net: net.grown("tcp_retransmits")),
        ("dropped", U64, "packets that the interface dropped",
            lambda net: net.grown("nic_rx_dropped", "nic_tx_dropped")),
        ("wire_bytes", U64, "bytes of all calls and replies", lambda net: net.every("bytes_sent", "bytes_received")),
        ("load_operations", U64, "operations of the load in the same time",
            lambda net: None if net.load_operations is None else round(net.load_operations)),
        ("load_read_bytes", U64, "bytes that the load read in it", lambda net: net.load_bytes("read")),
        ("load_write_bytes", U64, "bytes that the load wrote in it", lambda net: net.load_bytes("write")),
        ("read_bytes", U64, "payload of the replies to reads, bytes", lambda net: net.grown("server_read_bytes")),
        ("write_bytes", U64, "payload of writes, bytes", lambda net: net.grown("server_write_bytes")),
        ("server_read_bytes", U64, "bytes that the server counted as read, if it is this machine",
            lambda net: net.grown("nfsd_read_bytes")),
        ("server_write_bytes", U64, "bytes that the server counted as written, if it is this machine",
            lambda net: net.grown("nfsd_write_bytes")),
        ("calls_per_operation", NUMBER, "data calls for each operation"),
        ("probe_ns", NUMBER, "median round trip of probes of the network during the measurement, ns",
            lambda net: median(net.reading.connect_ns)),
        ("payload_ns", NUMBER, "time of the payload of a call on the way, by probes with the same payload, ns"),
        ("shortest_round_trip_ns", NUMBER, "shortest round trip of the TCP connections, by the kernel, ns"),
        ("daemon_cpu_ns", NUMBER, "CPU time of the FUSE daemon for each operation, ns"),
        ("lost_probes", U64, "probes that were lost", "reading.lost_probes"),
        ("out_of_order", U64, "segments that arrived before earlier ones: those were lost, or overtaken",
            lambda net: net.grown("tcp_out_of_order")),
        ("connections_used", U64, "TCP connections that moved data of the load"),
        ("window_share", NUMBER,
            "share of the time in which a full window or buffer of the TCP connections kept data from being sent"),
        ("idle_probe_ns", NUMBER, "the same before the engine started",
            lambda net: median(net.reading.idle_connect_ns)),
        ("empty_call_ns", NUMBER, "median round trip of empty calls during the measurement, ns",
            lambda net: median(net.reading.call_ns)),
        ("unseparated", TEXT, "why latency is not divided between network and server; null if it is",
            lambda net: net.unseparated or None),
        ("is_divided", U64, "1 if latency can be divided, else null", lambda net: None if net.unseparated else 1),
        ("is_one_call", U64, "1 if each operation was one call, else null", lambda net: 1 if net.is_one_call else None),
        prefix="network_", words="Network storage: ",
    ),
    *_OF_SERVER,
)  # fmt: skip
"""Columns of `runs` about network storage and outages."""


PARTS = ("client", "network", "server")
SERVER_PARTS = ("server_queue", "server_device")
"""Parts of the server, where it is a host of the study."""
DIVIDED = "network_path_ns_mean"
"""The latency that the parts add up to."""

_MS = 1_000_000
_CALLS = pl.col("network_calls")
_LATENCY = over("completion_sum_ns", "count")
_ROUND_TRIP = over(_MS * pl.col("network_round_trip_ms"), _CALLS)
_IS_DIVIDED = pl.col("network_is_divided") == 1
_ON_NETWORK = pl.col("network_probe_ns") + pl.col("network_payload_ns")
_SERVER = (_ROUND_TRIP - _ON_NETWORK).clip(lower_bound=0)
_NETWORK = pl.min_horizontal(_ON_NETWORK, _ROUND_TRIP)
_SERVER_IS_DIVIDED = _IS_DIVIDED & (pl.col("server_is_divided") == 1)
_SERVER_DEVICE = pl.min_horizontal(over(_MS * pl.col("server_disk_read_ms"), "server_load_operations"), _SERVER)


def part_of(name: str) -> str:
    """Return the name of the metric of a part of the latency."""
    return f"network_path_{name}_ns_mean"


METRICS = (
    Metric(DIVIDED, "Latency of network storage", "ns", "lower", "time",
        "mean completion latency, where it is divided into client, network and server",
        pl.when(_IS_DIVIDED).then(_LATENCY)),
    Metric(part_of("client"), "Client", "ns", "lower", "time",
        "mean completion latency - mean round trip of a call",
        pl.when(_IS_DIVIDED).then((_LATENCY - _ROUND_TRIP).clip(lower_bound=0))),
    Metric(part_of("network"), "Network", "ns", "lower", "time",
        "median round trip of probes of the network + time of the payload on it, at most the round trip of a call",
        pl.when(_IS_DIVIDED).then(_NETWORK)),
    Metric(part_of("server"), "Server", "ns", "lower", "time",
        "mean round trip of a call - network", pl.when(_IS_DIVIDED).then(_SERVER)),
    Metric("rpc_round_trip_ns_mean", "Round trip of a call", "ns", "lower", "time",
        "sum of (reply - sending) / calls, of reads and writes", _ROUND_TRIP),
    Metric("rpc_queue_ns_mean", "Queue of a call in the client", "ns", "lower", "time",
        "sum of (sending - start) / calls, of reads and writes", over(_MS * pl.col("network_queue_ms"), _CALLS)),
    Metric("rpc_execute_ns_mean", "Execution of a call", "ns", "lower", "time",
        "sum of (end - start) / calls, of reads and writes", over(_MS * pl.col("network_execute_ms"), _CALLS)),
    Metric("rpc_retransmits", "Retransmitted calls", "", "lower", "count",
        "transmissions - calls, of all calls", "network_retransmits"),
    Metric("network_probe_ns_p50", "Round trip of the network", "ns", "lower", "time",
        "median time from SYN to SYN-ACK of probes during the measurement", "network_probe_ns"),
    Metric("network_payload_ns_mean", "Payload on the network", "ns", "lower", "time",
        "reads: padded echo - echo - (padded call - empty call); writes: padded call - empty call; of each pair the "
        "median of all differences", "network_payload_ns"),
    Metric("empty_call_ns_p50", "Round trip of an empty call", "ns", "lower", "time",
        "median round trip of the procedure NULL during the measurement", "network_empty_call_ns"),
    Metric("daemon_cpu_ns_per_operation", "CPU time of the FUSE daemon per operation", "ns", "lower", "time",
        "CPU time of the daemon / operations of the load in the same time", "network_daemon_cpu_ns"),
    Metric("wire_bytes_per_operation", "Bytes on the wire per operation", "B", "lower", "device",
        "bytes of all calls and replies / operations of the load in the same time",
        "network_wire_bytes / network_load_operations"),
    Metric("wire_read_ratio", "Bytes read over the wire", "", "neither", "device",
        "payload of reads / bytes that the load read in the same time", "network_read_bytes / network_load_read_bytes"),
    Metric("wire_write_ratio", "Bytes written over the wire", "", "neither", "device",
        "payload of writes / bytes that the load wrote in the same time",
        "network_write_bytes / network_load_write_bytes"),
    Metric("network_path_server_device_ns_mean", "Server's device", "ns", "lower", "time",
        "time of the reads of the server's drives / operations, at most the part of the server",
        pl.when(_SERVER_IS_DIVIDED).then(_SERVER_DEVICE)),
    Metric("network_path_server_queue_ns_mean", "Server's CPU and queue", "ns", "lower", "time",
        "part of the server - that of its device", pl.when(_SERVER_IS_DIVIDED).then(_SERVER - _SERVER_DEVICE)),
    Metric("network_path_server_whole_ns_mean", "Server, not divided", "ns", "lower", "time",
        "part of the server, where it is not divided into its device and the rest",
        pl.when(_IS_DIVIDED & (pl.col("server_is_divided").fill_null(0) == 0)).then(_SERVER)),
    Metric("server_host_cpu_share", "CPU of the server", "", "lower", "device",
        "CPU time of the server / (time × its CPUs)", "server_host_cpu_share"),
    Metric("server_thread_wait_share", "Calls that found no idle thread of the server", "", "lower", "device",
        "calls for which no thread of nfsd was idle / calls that arrived", "server_thread_wait_share"),
    Metric("server_disk_busy_share", "Utilization of the server's busiest drive", "", "neither", "device",
        "time with I/O in flight / time", "server_disk_busy_share"),
    Metric("server_disk_read_ratio", "Bytes read from the server's drives", "", "neither", "device",
        "bytes read from the server's drives / bytes that the load read in the same time",
        "server_disk_read_bytes / server_load_read_bytes"),
    Metric("server_disk_write_ratio", "Bytes written to the server's drives", "", "neither", "device",
        "bytes written to the server's drives / bytes that the load wrote in the same time",
        "server_disk_write_bytes / server_load_write_bytes"),
    Metric("outage_length_ns", "Outage", "ns", "neither", "time",
        "time from stopping the server or cutting its link to its return", "outage_ns"),
    Metric("unavailable_ns", "Unavailable time", "ns", "lower", "time",
        "longest time without a completed I/O during an outage; each end is known to half an interval",
        "outage_unavailable_ns"),
    Metric("outage_backlog_max", "Backlog of an outage", "", "lower", "count",
        "most I/Os that were due and not started, from the start of the unavailable time", "outage_backlog"),
    Metric("outage_caught_up_ns", "Time to work off the backlog", "ns", "lower", "time",
        "time from the end of the unavailable time until the backlog was as before it", "outage_caught_up_ns"),
)  # fmt: skip
"""Metrics of network storage, in the order of docs/metrics.md."""
