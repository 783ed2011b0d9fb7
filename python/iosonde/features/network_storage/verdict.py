"""Evidence of the verdict from the way to a server: bytes over the wire, and parts of network, server and client."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from statistics import median as middle
from typing import Any

from iosonde.features.network_storage.facts import (
    ALIKE,
    DATA,
    FEW,
    FEWEST_PROBES,
    WIRE,
    NetworkFacts,
    ServerFacts,
    median,
)
from iosonde.features.network_storage.load import block_bytes
from iosonde.metrics.verdict.evidence import MOST, SATURATED, Evidence, StorageBytes, share_of
from iosonde.metrics.verdict.rules import Found, Result, Rule, percent
from iosonde.results.schema import Record
from iosonde.study.workload import streams_of
from iosonde.units import format_bytes, format_latency

FILE_SYSTEMS = (
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "afs", "lustre", "beegfs", "orangefs", "gpfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.ceph-fuse", "fuse.rclone", "fuse.s3fs", "fuse.juicefs"),
)
FEW_OF_SERVER = 0.2
"""Share of empty calls in the server's time up to which its threads and CPU are not the reason."""


@dataclass(frozen=True, kw_only=True)
class Remote(StorageBytes):
    """Bytes are payload over the wire; times are means of calls, None where not known."""

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


NOTHING = Remote(load_read_bytes=0, load_write_bytes=0, read_bytes=0, write_bytes=0)


class StoragePath:
    """Shares of the latency without the queue in the client, whose length follows from the others."""

    def __init__(self, run: Evidence) -> None:
        self.run = run
        self.is_known = isinstance(run.facts.storage, Remote)
        self.remote = run.facts.storage if isinstance(run.facts.storage, Remote) else NOTHING

    @cached_property
    def network_share(self) -> float | None:
        """Share of the latency that the network takes at least; unknown unless each operation is one call."""
        if not self.network_ns or (self.remote.daemon_ns is not None and self.network_ns > self._sent_ns):
            return None  # A FUSE daemon answered without its server.
        return share_of(min(self.network_ns, self.remote.round_trip_ns or self.network_ns), self._sent_ns)

    @cached_property
    def network_share_most(self) -> float | None:
        """Share that it takes at most, by an echo with the payload of an operation, both ways."""
        return share_of(self.remote.longest_network_ns or None, self._sent_ns)

    @cached_property
    def server_share(self) -> float | None:
        """Share that the server takes; unknown as well if that of the payload is, or if packets were lost."""
        is_known = self.remote.network_ns and self.remote.payload_ns is not None and not self.remote.is_lossy
        return self._round_trip_without(self.network_ns) if is_known else None

    @cached_property
    def server_share_least(self) -> float | None:
        """Share that the server takes even if the network takes the time of an echo with the payload, both ways."""
        if self.server_share is None:
            return None
        return self._round_trip_without(max(self.network_ns, self.remote.longest_network_ns or 0.0))

    @cached_property
    def server_thread_share(self) -> float | None:
        """Share of the server's time that the median empty call takes as well: in its threads, without its storage."""
        calls = self.remote.empty_calls_ns
        return self._share_of_server(middle(calls) - (self.remote.network_ns or 0.0)) if calls else None

    @cached_property
    def server_thread_share_mean(self) -> float | None:
        """The same of their mean, which is larger if threads of the server wait now and then."""
        calls = self.remote.empty_calls_ns
        return self._share_of_server(fmean(calls) - (self.remote.network_ns or 0.0)) if calls else None

    @cached_property
    def server_device_share(self) -> float | None:
        """Share of the server's time in which its drives worked, of a server that is a host of the study."""
        return self._share_of_server(self.remote.server_device_ns)

    @cached_property
    def client_share(self) -> float | None:
        """Share that the client takes outside its queue: iosonde, the file system, the processing of replies."""
        trip = self.remote.round_trip_ns
        return share_of(max(0.0, self._sent_ns - trip), self._sent_ns) if trip else None

    @cached_property
    def daemon_share(self) -> float | None:
        """Share in which a FUSE daemon used CPU for the operations, or waited for it."""
        return share_of(self.remote.daemon_ns, self._sent_ns)

    @cached_property
    def not_running_share(self) -> float | None:
        """Share of the latency, at most, by which it is longer because the engine or a job had no CPU."""
        run = self.run
        lost = (run.stalled_share or 0.0) + (run.cpu_wait_share or 0.0) + (run.steal_share or 0.0)
        return share_of(lost, run.in_flight_share or 0.0) if self.is_known else None

    @property
    def applies(self) -> bool:
        """True if rules about the parts of the way apply: also of a block device, whose I/O a store does not show."""
        if self.run.facts.target.get("devices"):
            return self.is_known and not self.run.has_own_cache
        return self.is_known and not self.run.is_in_memory and bool(self.run.lowest_file_system.get("kind"))

    @property
    def without_cpu_share(self) -> float:
        """Share of the time in which the engine or a job had no CPU; 0 where the use of cores is unknown."""
        if self.run.core_used is None:
            return 0.0
        return max(self.run.cpu_wait_share or 0.0, self.run.stalled_share or 0.0)

    def limits(self, message: str) -> Found:
        """A part that took most of the time, perhaps even without the time that had no CPU, and more than iosonde."""
        parts = (self.network_share, self.server_share_least, self.daemon_share, self.remote.window_share)
        most, lost = max(each or 0.0 for each in parts), self.not_running_share
        own = max(self.run.harness_share or 0.0, self.run.clock_share or 0.0)
        is_more = most * min(1.0, self.run.in_flight_share or 0.0) > own
        return Found(message, outweighs=lost is not None and most - lost >= MOST and is_more)

    @property
    def network_ns(self) -> float:
        """Least time of a call on the network, as far as it is known; 0 if it is not."""
        return self.remote.network_ns + (self.remote.payload_ns or 0.0) if self.remote.network_ns else 0.0

    @property
    def _sent_ns(self) -> float:
        """Mean latency without the queue in the client; 0 if operations and calls are not the same."""
        totals = self.run.facts.totals
        count, total_ns = sum(each.count for each in totals), sum(each.completion_latency_ns_sum for each in totals)
        if not self.remote.is_one_call or not count:
            return 0.0
        return max(0.0, total_ns / count - (self.remote.queue_ns or 0.0))

    def _round_trip_without(self, network_ns: float) -> float | None:
        trip = self.remote.round_trip_ns
        return share_of(max(0.0, trip - network_ns), self._sent_ns) if trip else None

    def _share_of_server(self, time_ns: float | None) -> float | None:
        if time_ns is None or not self.remote.network_ns or not self.server_share:
            return None
        return share_of(max(0.0, time_ns), (self.remote.round_trip_ns or 0.0) - self.network_ns)


@Rule(
    title="The network took most of the time of an operation",
    hint="compare the round trip of the network with that before the load: queues of a full link, or distance "
    "(docs/network.md)",
    points_to="network-limited",
    bias="none",
    is_about_path=True,
)
def network_limited(run: Evidence) -> Result:
    """Headers of the lower layers are not in the counters of an interface, so 90 % of its speed are all of it."""
    path = StoragePath(run)
    if not path.applies:
        return None
    if (path.remote.link_share or 0.0) >= 0.90:
        return path.limits(f"the interface carried {percent(path.remote.link_share)} of its speed")
    share = path.network_share or 0.0
    if share < MOST or _has_full_window(path):
        return None
    text = f"a round trip of the network took {format_latency(path.network_ns)}, {percent(share)} of the time"
    lost = "; packets were lost as well" if path.remote.is_lossy else ""
    return path.limits(f"{text} of an operation outside the client's queue{lost}")


@Rule(
    title="The TCP connections to the server were the limit",
    hint="compare with `nconnect`, or allow larger buffers (`net.ipv4.tcp_wmem` here, `tcp_rmem` on the server)",
    points_to="network-limited",
    bias="none",
    is_about_path=True,
)
def connection_limited(run: Evidence) -> Result:
    path = StoragePath(run)
    if not path.applies or not _has_full_window(path):
        return None
    count, used = path.remote.connections, path.remote.connections_used
    which = "the TCP connection" if count == 1 else f"each of {count} TCP connections"
    if 0 < used < count:
        which = f"of {count} TCP connections the load used {used}, which"
    share = percent(path.remote.window_share)
    return path.limits(f"{which} had data to send and a full window or buffer {share} of the time")


@Rule(
    title="The server took most of the time of an operation",
    hint="compare the round trips of empty calls and of the network: busy threads of the server, or its storage "
    "(docs/network.md)",
    points_to="server-limited",
    bias="none",
    is_about_path=True,
)
def server_limited(run: Evidence) -> Result:
    path = StoragePath(run)
    server, daemon = path.server_share_least or 0.0, path.daemon_share or 0.0
    if not path.applies:
        return None
    if server >= MOST:
        text = f"the server took {percent(server)} of the time of an operation outside the client's queue"
        return path.limits(text + _part_of_server(path))
    if daemon >= MOST and path.without_cpu_share < MOST:
        return path.limits(f"the FUSE daemon used CPU or waited for it {percent(daemon)} of the time of an operation")
    return None


@Rule(
    title="The client's kernel or CPU took most of the time of an operation",
    hint="look at the CPU time of the machine, at larger blocks, and at its load by other processes",
    points_to="harness-limited",
    bias="none",
    is_about_path=True,
)
def client_limited(run: Evidence) -> Result:
    path = StoragePath(run)
    if path.applies and path.without_cpu_share >= MOST:
        return path.limits(f"the engine or a job had no CPU {percent(path.without_cpu_share)} of the time")
    if path.applies and (path.client_share or 0.0) >= MOST:
        share = percent(path.client_share)
        return path.limits(f"the client took {share} of the time of an operation outside its queue")
    return None


@Rule(
    title="Packets to or from the server were lost",
    hint="look at drops and errors of the interfaces and switches on the path (docs/network.md)",
    bias="none",
    is_about_path=True,
)
def packets_lost(run: Evidence) -> Result:
    path = StoragePath(run)
    if not path.applies or not path.remote.is_lossy:
        return None
    return path.limits("packets were lost: the time until they were sent again is not known")


@Rule(
    title="Operations were divided into several calls",
    hint="mount with an `rsize` and `wsize` of the block size or more",
    bias="none",
    is_about_path=True,
)
def split_calls(run: Evidence) -> Result:
    path = StoragePath(run)
    calls, size = path.remote.calls_per_operation or 0.0, path.remote.largest_call_bytes
    moved = path.remote.load_read_bytes + path.remote.load_write_bytes
    if not path.applies or not size or calls < 2 or not moved:
        return None
    return path.limits(f"an operation was {calls:.1f} calls of {format_bytes(size)} at most")


@Rule(
    title="Network and server are not separable",
    hint="measure smaller blocks at queue depth 1, whose payload takes less of the time",
    bias="none",
    of=("own I/O",),
    is_about_path=True,
)
def network_or_server(run: Evidence) -> Result:
    path = StoragePath(run)
    if not path.applies or not run.facts.target.get("devices") or (path.network_share_most or 0.0) < MOST:
        return None
    return path.limits(
        f"the network took {percent(path.network_share)} of the time of an operation at least, and "
        f"{percent(path.network_share_most)} at most"
    )


@Rule(
    title="The target is on a network file system",
    hint="measure on the server to learn about its devices",
    bias="faster reads",
    is_about_path=True,
)
def network_file_system(run: Evidence) -> Result:
    kind, source = (str(run.lowest_file_system.get(each) or "") for each in ("kind", "source"))
    if run.facts.target.get("devices") or run.is_in_memory or not kind:
        return None
    is_of_server = kind in FILE_SYSTEMS or re.match(r"//|[^/]+:", source)
    return StoragePath(run).limits(f"the file system `{kind}` is that of a server") if is_of_server else None


RULES = (
    *(network_limited, connection_limited, server_limited, client_limited, packets_lost, split_calls),
    *(network_or_server, network_file_system),
)
EVIDENCE = (StoragePath,)


def _has_full_window(path: StoragePath) -> bool:
    return (path.remote.window_share or 0.0) >= MOST


def _part_of_server(path: StoragePath) -> str:
    """Clause about the part of the server that took the time; empty if neither counters nor empty calls decide it."""
    if found := _counted_part_of_server(path):
        return found
    median_share, mean = path.server_thread_share, path.server_thread_share_mean
    if median_share is None or mean is None or (median_share < MOST and mean > FEW_OF_SERVER):
        return ""
    part = "threads or CPU" if median_share >= MOST else "storage"
    return f"; an empty call took {format_latency(middle(path.remote.empty_calls_ns))}: its {part}"


def _counted_part_of_server(path: StoragePath) -> str:
    """The same by the counters of the server itself, where it is a host of the study."""
    remote, device = path.remote, path.server_device_share
    busy, cpu = remote.server_device_share or 0.0, remote.server_cpu_share or 0.0
    if device and device >= MOST:
        return f"; its drives took {format_latency(remote.server_device_ns or 0.0)} of an operation: its storage"
    if (busy >= SATURATED) != (cpu >= SATURATED):
        return (
            f"; its busiest drive was in use {percent(busy)} of the time: its storage"
            if busy > cpu
            else f"; its CPUs were busy {percent(cpu)} of the time: its CPU"
        )
    waited = remote.calls_without_thread_share or 0.0
    if device is not None and device <= FEW_OF_SERVER and waited >= MOST:
        return f"; {percent(waited)} of the calls found no idle thread: its threads or CPU"
    return ""


# Counters ------------------------------------------------------------------------------------------------------------


def remote(record: Record) -> Remote | None:
    """Bytes and times of calls over the measurement."""
    net = NetworkFacts(record)
    calls, wire = net.data("operations"), [net.grown(f"server_{each}_bytes") for each in ("read", "write")]
    load = [net.load_bytes(each) for each in ("read", "write")]
    if calls is None or wire[0] is None or wire[1] is None or load[0] is None or load[1] is None:
        return _of_daemon(record, net) if net.daemon_ns is not None else _without_calls(record, net)
    probes, server = net.reading.connect_ns, ServerFacts(record)
    return Remote(
        load_read_bytes=load[0],
        load_write_bytes=load[1],
        read_bytes=wire[0],
        write_bytes=wire[1],
        queue_ns=_mean_ns(net.data("queue_ms"), calls),
        round_trip_ns=_mean_ns(net.data("round_trip_ms"), calls),
        is_one_call=net.is_one_call,
        network_ns=median(probes) if len(probes) >= FEWEST_PROBES else None,
        payload_ns=net.payload_ns,
        longest_network_ns=net.longest_network_ns,
        empty_calls_ns=tuple(net.reading.call_ns) if len(net.reading.call_ns) >= FEWEST_PROBES else (),
        server_device_ns=server.device_ns,
        server_device_share=server.busy_share,
        server_cpu_share=server.cpu_share,
        calls_without_thread_share=server.thread_wait_share,
        is_lossy=net.is_lossy,
        window_share=net.window_share,
        connections=net.reading.at_end.get("tcp_connections", 0),
        connections_used=net.connections_used,
        calls_per_operation=net.calls_per_operation,
        largest_call_bytes=_largest_call(net),
        link_share=_link_share(net),
    )


def _of_daemon(record: Record, net: NetworkFacts) -> Remote | None:
    """FUSE: data that did not pass the daemon, else its part of direct I/O, and that of its network."""
    load = [net.load_bytes(each) or 0 for each in DATA]
    most = net.daemon_bytes_most or 0
    served = [most * each // max(1, sum(load)) for each in load]
    moved = [net.daemon_moved_most(each) for each in DATA]
    served = [min(each, known) if known is not None else each for each, known in zip(served, moved, strict=True)]
    if any(2 * each < wanted for each, wanted in zip(served, load, strict=True)):
        return Remote(load_read_bytes=load[0], load_write_bytes=load[1], read_bytes=served[0], write_bytes=served[1])
    if any(stream.get("io_mode") != "direct" for stream in streams_of(record.spec["workload"])):
        return None
    return replace(NOTHING, is_one_call=True, network_ns=_network_of_daemon(net), daemon_ns=net.daemon_ns)


def _network_of_daemon(net: NetworkFacts) -> float | None:
    """Shortest round trip to the server of a FUSE daemon; None unless all data can have gone over its connections."""
    if any((net.grown(f"tcp_{WIRE[each]}_bytes") or 0) < (1 - ALIKE) * (net.load_bytes(each) or 0) for each in DATA):
        return None
    echoes = net.reading.echo_ns
    # The kernel keeps the shortest round trip for minutes; the path may have become longer.
    least = float(min(echoes)) if len(echoes) >= FEWEST_PROBES else 0.0
    return max(least, net.shortest_round_trip_ns or 0.0) or None


def _without_calls(record: Record, net: NetworkFacts) -> Remote | None:
    """Transports without counters of calls: bytes of a block device; of direct I/O at least a round trip."""
    is_direct = all(stream.get("io_mode") == "direct" for stream in streams_of(record.spec["workload"]))
    bytes_moved = {} if is_direct else _bytes(net)
    if not bytes_moved and (not is_direct or net.shortest_round_trip_ns is None):
        return None
    found = replace(
        NOTHING,
        **bytes_moved,
        is_one_call=is_direct,
        network_ns=net.shortest_round_trip_ns,
        window_share=net.window_share,
        connections=net.reading.at_end.get("tcp_connections", 0),
        connections_used=net.connections_used,
        link_share=_link_share(net),
    )
    return _of_device(record, net, found) if is_direct else found


def _bytes(net: NetworkFacts) -> dict[str, Any]:
    """Bytes of the load and of its block device; empty if they are not known."""
    values = {
        **{f"load_{each}_bytes": net.load_bytes(each) for each in DATA},
        **{f"{each}_bytes": net.grown(f"device_{each}_bytes") for each in DATA},
    }
    return {} if None in values.values() else values


def _of_device(record: Record, net: NetworkFacts, found: Remote) -> Remote:
    """Add the time of the I/Os of a block device, and that of echoes.

    The shortest echo is the network at least: the kernel keeps the shortest round trip of a connection for minutes, and
    the path may have become longer. The median echo with the payload of an I/O, both ways, is the network at most.
    """
    echoes, padded, payload = net.reading.echo_ns, net.reading.padded_echo_ns, block_bytes(record.spec["workload"])
    moved = [each for each in DATA if net.load_bytes(each)]  # A file system writes its own while a load reads.
    count, waited_ms = (net.grown(*(f"device_{each}_{what}" for each in moved)) for what in ("operations", "wait_ms"))
    done = net.load_operations
    if not count or waited_ms is None or not done or min(len(echoes), len(padded)) < FEWEST_PROBES:
        return found
    if abs(count - done) > max(FEW, ALIKE * done):
        return found
    return replace(
        found,
        network_ns=max(min(echoes), found.network_ns or 0.0),
        round_trip_ns=1e6 * waited_ms / count,
        payload_ns=0.0 if payload <= net.reading.payload_bytes else None,
        longest_network_ns=net.longest_network_ns,
        is_lossy=net.lost_considerably(count, 1e6 * waited_ms),
    )


STORAGE = (remote,)


def _mean_ns(total_ms: int | None, calls: int) -> float | None:
    return 1e6 * total_ms / calls if calls and total_ms is not None else None


def _link_share(net: NetworkFacts) -> float | None:
    speed = (net.reading.transport.get("path") or {}).get("speed_bits_per_second")
    moved = [net.grown(f"nic_{direction}_bytes") or 0 for direction in ("rx", "tx")]
    counted_ns = net.grown("clock_ns")
    return 8e9 * max(moved) / (speed * counted_ns) if speed and counted_ns else None


def _largest_call(net: NetworkFacts) -> int | None:
    """Largest call by `rsize` or `wsize`; None if operations are no larger."""
    options = net.reading.transport.get("options") or {}
    operation = "w" if (net.grown("write_operations") or 0) > (net.grown("read_operations") or 0) else "r"
    size = options.get(f"{operation}size")
    bytes_each = (net.grown("load_read_bytes", "load_write_bytes") or 0) / (net.grown("load_operations") or 1)
    return size if isinstance(size, int) and bytes_each > size else None
