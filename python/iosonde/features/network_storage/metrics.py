"""Metrics of network storage: calls, bytes on the wire, and latency divided among client, network and server."""

from __future__ import annotations

from typing import Literal

import polars as pl

from iosonde.features.network_storage import server_metrics
from iosonde.metrics.metric import Metric, over

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


def part_of(name: str) -> str:
    """Return the name of the metric of a part of the latency."""
    return f"network_path_{name}_ns_mean"


def _metric(
    name: str,
    title: str,
    formula: str,
    expression: pl.Expr,
    *,
    unit: str = "",
    better: Literal["higher", "lower", "neither"] = "lower",
    kind: Literal["time", "count", "device"] = "time",
) -> Metric:
    return Metric(name=name, title=title, unit=unit, formula=formula, better=better, kind=kind, expression=expression)


METRICS = (
    _metric(
        DIVIDED,
        "Latency of network storage",
        "mean completion latency, where it is divided into client, network and server",
        pl.when(_IS_DIVIDED).then(_LATENCY),
        unit="ns",
    ),
    _metric(
        part_of("client"),
        "Client",
        "mean completion latency - mean round trip of a call",
        pl.when(_IS_DIVIDED).then((_LATENCY - _ROUND_TRIP).clip(lower_bound=0)),
        unit="ns",
    ),
    _metric(
        part_of("network"),
        "Network",
        "median round trip of probes of the network + time of the payload on it, at most the round trip of a call",
        pl.when(_IS_DIVIDED).then(_NETWORK),
        unit="ns",
    ),
    _metric(
        part_of("server"),
        "Server",
        "mean round trip of a call - network",
        pl.when(_IS_DIVIDED).then(_SERVER),
        unit="ns",
    ),
    _metric(
        "rpc_round_trip_ns_mean",
        "Round trip of a call",
        "sum of (reply - sending) / calls, of reads and writes",
        _ROUND_TRIP,
        unit="ns",
    ),
    _metric(
        "rpc_queue_ns_mean",
        "Queue of a call in the client",
        "sum of (sending - start) / calls, of reads and writes",
        over(_MS * pl.col("network_queue_ms"), _CALLS),
        unit="ns",
    ),
    _metric(
        "rpc_execute_ns_mean",
        "Execution of a call",
        "sum of (end - start) / calls, of reads and writes",
        over(_MS * pl.col("network_execute_ms"), _CALLS),
        unit="ns",
    ),
    _metric(
        "rpc_retransmits",
        "Retransmitted calls",
        "transmissions - calls, of all calls",
        pl.col("network_retransmits"),
        kind="count",
    ),
    _metric(
        "network_probe_ns_p50",
        "Round trip of the network",
        "median time from SYN to SYN-ACK of probes during the measurement",
        pl.col("network_probe_ns"),
        unit="ns",
    ),
    _metric(
        "network_payload_ns_mean",
        "Payload on the network",
        "reads: padded echo - echo - (padded call - empty call); writes: padded call - empty call; of each pair the "
        "median of all differences",
        pl.col("network_payload_ns"),
        unit="ns",
    ),
    _metric(
        "empty_call_ns_p50",
        "Round trip of an empty call",
        "median round trip of the procedure NULL during the measurement",
        pl.col("network_empty_call_ns"),
        unit="ns",
    ),
    _metric(
        "daemon_cpu_ns_per_operation",
        "CPU time of the FUSE daemon per operation",
        "CPU time of the daemon / operations of the load in the same time",
        pl.col("network_daemon_cpu_ns"),
        unit="ns",
    ),
    _metric(
        "wire_bytes_per_operation",
        "Bytes on the wire per operation",
        "bytes of all calls and replies / operations of the load in the same time",
        over("network_wire_bytes", "network_load_operations"),
        unit="B",
        kind="device",
    ),
    _metric(
        "wire_read_ratio",
        "Bytes read over the wire",
        "payload of reads / bytes that the load read in the same time",
        over("network_read_bytes", "network_load_read_bytes"),
        better="neither",
        kind="device",
    ),
    _metric(
        "wire_write_ratio",
        "Bytes written over the wire",
        "payload of writes / bytes that the load wrote in the same time",
        over("network_write_bytes", "network_load_write_bytes"),
        better="neither",
        kind="device",
    ),
    *server_metrics.metrics(_SERVER, _IS_DIVIDED),
    _metric(
        "outage_length_ns",
        "Outage",
        "time from stopping the server or cutting its link to its return",
        pl.col("outage_ns"),
        unit="ns",
        better="neither",
    ),
    _metric(
        "unavailable_ns",
        "Unavailable time",
        "longest time without a completed I/O during an outage; each end is known to half an interval",
        pl.col("outage_unavailable_ns"),
        unit="ns",
    ),
    _metric(
        "outage_backlog_max",
        "Backlog of an outage",
        "most I/Os that were due and not started, from the start of the unavailable time",
        pl.col("outage_backlog"),
        kind="count",
    ),
    _metric(
        "outage_caught_up_ns",
        "Time to work off the backlog",
        "time from the end of the unavailable time until the backlog was as before it",
        pl.col("outage_caught_up_ns"),
        unit="ns",
    ),
)
"""Metrics of network storage, in the order of docs/metrics.md."""
