"""Evidence of the verdict from the counters of a mount (`verdict/remote.py`)."""

from __future__ import annotations

from dataclasses import replace

from iosonde.features.network_storage.facts import ALIKE, DATA, FEW, FEWEST_PROBES, WIRE, NetworkFacts, median
from iosonde.features.network_storage.load import block_bytes
from iosonde.features.network_storage.server_side import ServerFacts
from iosonde.results.schema import Record
from iosonde.verdict.remote import Remote
from iosonde.workload import streams_of


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
    return Remote(
        load_read_bytes=0,
        load_write_bytes=0,
        read_bytes=0,
        write_bytes=0,
        is_one_call=True,
        network_ns=_network_of_daemon(net),
        daemon_ns=net.daemon_ns,
    )


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
    found = Remote(
        load_read_bytes=bytes_moved.get("load_read_bytes", 0),
        load_write_bytes=bytes_moved.get("load_write_bytes", 0),
        read_bytes=bytes_moved.get("read_bytes", 0),
        write_bytes=bytes_moved.get("write_bytes", 0),
        is_one_call=is_direct,
        network_ns=net.shortest_round_trip_ns,
        window_share=net.window_share,
        connections=net.reading.at_end.get("tcp_connections", 0),
        connections_used=net.connections_used,
        link_share=_link_share(net),
    )
    return _of_device(record, net, found) if is_direct else found


def _bytes(net: NetworkFacts) -> dict[str, int]:
    """Bytes of the load and of its block device; empty if they are not known."""
    values = {
        **{f"load_{each}_bytes": net.load_bytes(each) for each in DATA},
        **{f"{each}_bytes": net.grown(f"device_{each}_bytes") for each in DATA},
    }
    return {} if None in values.values() else {name: value or 0 for name, value in values.items()}


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


REMOTE = (remote,)


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
