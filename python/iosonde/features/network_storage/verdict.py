"""Evidence of the verdict from the counters of a mount (`verdict/remote.py`)."""

from __future__ import annotations

from iosonde.features.network_storage.facts import FEWEST_PROBES, SMALL_BYTES, NetworkFacts, median
from iosonde.results.schema import Record
from iosonde.verdict.remote import Remote


def remote(record: Record) -> Remote | None:
    """Bytes and times of calls over the measurement."""
    net = NetworkFacts(record)
    calls, wire = net.data("operations"), [net.grown(f"server_{each}_bytes") for each in ("read", "write")]
    load = [net.grown(f"load_{each}_bytes") for each in ("read", "write")]
    if calls is None or wire[0] is None or wire[1] is None or load[0] is None or load[1] is None:
        return None
    probes = net.reading.connect_ns
    return Remote(
        load_read_bytes=load[0],
        load_write_bytes=load[1],
        read_bytes=wire[0],
        write_bytes=wire[1],
        queue_ns=_mean_ns(net.data("queue_ms"), calls),
        round_trip_ns=_mean_ns(net.data("round_trip_ms"), calls),
        is_one_call=net.is_one_call,
        network_ns=median(probes) if len(probes) >= FEWEST_PROBES else None,
        is_probe_alike=wire[0] + wire[1] <= SMALL_BYTES * calls,
        link_share=_link_share(net),
    )


REMOTE = (remote,)


def _mean_ns(total_ms: int | None, calls: int) -> float | None:
    return 1e6 * total_ms / calls if calls and total_ms is not None else None


def _link_share(net: NetworkFacts) -> float | None:
    speed = (net.reading.transport.get("path") or {}).get("speed_bits_per_second")
    moved = [net.grown(f"nic_{direction}_bytes") or 0 for direction in ("rx", "tx")]
    counted_ns = net.grown("clock_ns")
    return 8e9 * max(moved) / (speed * counted_ns) if speed and counted_ns else None
