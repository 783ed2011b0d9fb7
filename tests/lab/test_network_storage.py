"""NFS, iSCSI and FUSE under injected bottlenecks, in User Mode Linux (`network_guest.py`, `transports_guest.py`).

With those of NVMe/TCP (`test_nvme_tcp.py`) they are the table in docs/network.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from network_conditions import BY_NAME, DISTURBED, TRANSPORTS, named
from tiers import skip_for_busy_machine

from iosonde.features.network_storage.facts import NetworkFacts
from iosonde.features.network_storage.record import NetworkReading
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.schema import Record

READS = ("delay 0", "delay 10", "rate", "drive")


@dataclass
class Tried:
    """Result sets of the runs under each condition."""

    directory: Path

    def results(self, condition: str) -> ResultSet:
        return ResultSet.open(self.directory / condition.replace(" ", "-"))

    def record(self, condition: str) -> Record:
        [record] = self.results(condition).records()
        assert record.outcome == "complete", record.failure
        return record

    def values(self, condition: str) -> dict[str, float]:
        table = run_metrics(self.results(condition)).filter(operation="all")
        return dict(table.select("metric", "value").iter_rows())

    def file(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())


@pytest.fixture(scope="module")
def bottlenecks(user_mode_linux: Callable[..., Path]) -> Tried:
    return Tried(user_mode_linux("transports_guest.py", *BY_NAME, *TRANSPORTS))


def is_counted(record: Record) -> bool:
    """Return True if counters were read twice in the measurement: after a long pause of the machine it has one interval."""
    if NetworkFacts(record).grown("clock_ns"):
        return True
    assert DISTURBED & {each.code for each in record.warnings}
    return False


def require_counted(*records: Record) -> None:
    if not all(map(is_counted, records)):
        skip_for_busy_machine("counters were read once in the measurement")


def test_the_transport_of_a_mount_is_described(bottlenecks: Tried) -> None:
    found = bottlenecks.file("transport.json")
    assert {"transport": "nfs", "version": "4.2", "server": "10.77.0.2", "connections": 1}.items() <= found.items()
    assert {"nconnect": 1, "acregmax": 5, "proto": "tcp"}.items() <= found["options"].items()
    assert {"interface": "veth0", "mtu_bytes": 1500, "server_is_local": False}.items() <= found["path"].items()


def test_client_and_server_count_the_same_bytes(bottlenecks: Tried) -> None:
    """From the mount on, with the layout; a call that was transmitted again may be counted twice by the server."""
    for condition, (before, after) in bottlenecks.file("counts.json").items():
        grown = {name: after[name] - before.get(name, 0) for name in after}
        for operation in ("read", "write"):
            wire, server = (grown[f"{end}_{operation}_bytes"] for end in ("server", "nfsd"))
            assert wire == server, condition


@pytest.mark.parametrize("condition", READS)
def test_load_wire_and_connection_count_the_same_bytes(bottlenecks: Tried, condition: str) -> None:
    """Calls in flight while counters are read, the load's queue depth and a few of others, are in one count and not in another."""
    record = bottlenecks.record(condition)
    require_counted(record)
    net = NetworkFacts(record)
    calls, wire, load = (net.grown(name) for name in ("read_operations", "server_read_bytes", "direct_read_bytes"))
    replies, received = net.every("bytes_received"), net.grown("tcp_received_bytes")
    assert calls and load and replies and received
    assert wire == 4096 * calls
    assert load == pytest.approx(wire, abs=4 * 4096)
    marks = 4 * (calls + (net.grown("other_operations") or 0))
    # Connections are read after the mount; the load continues meanwhile.
    apart = max(net.reading.at_start["read_ns"], net.reading.at_end["read_ns"]) / (net.grown("clock_ns") or 1)
    assert received == pytest.approx(replies + marks, rel=0.01, abs=16 * 4200 + 2 * apart * replies), (
        "without the connections of probes"
    )
    values = bottlenecks.values(condition)
    assert values["rpc_round_trip_ns_mean"] < values["rpc_execute_ns_mean"]
    assert values["wire_bytes_per_operation"] > 3 * 1024, "direct reads go over the wire one call each"


def test_delay_rate_and_window_are_in_the_probes_and_counters_of_the_network(bottlenecks: Tried) -> None:
    """A busy machine can make each round trip longer, and none shorter.

    4 KiB at 4 Mbit/s take 8.2 ms, of which a burst of 3,000 bytes may pass at once.
    """
    names = ("delay 0", "delay 10", "rate", "connection")
    records = [bottlenecks.record(each) for each in names]
    require_counted(*records)
    none, delay, rate, window = map(NetworkFacts, records)
    assert min(delay.reading.connect_ns) >= 10_000_000 > min(none.reading.connect_ns)
    assert bottlenecks.values("delay 10")["network_probe_ns_p50"] >= min(delay.reading.connect_ns)
    assert bottlenecks.values("rate")["rpc_round_trip_ns_mean"] > 2_000_000
    assert median(rate.reading.padded_echo_ns) > 2_000_000
    assert (window.window_share or 0) > (delay.window_share or 0)


@pytest.mark.parametrize("condition", BY_NAME)
def test_no_other_bottleneck_is_named(bottlenecks: Tried, condition: str) -> None:
    """On a busy machine the load is disturbed, or the client is slow as well: then nothing remote is named."""
    record = bottlenecks.record(condition)
    expected: set[str] = {BY_NAME[condition].bottleneck, "not separable", "client"}
    expected |= {"server"} if BY_NAME[condition].bottleneck.startswith("server") else set()
    if condition == "cached" and not DISTURBED & {each.code for each in record.warnings}:
        expected = {"cache"}
    if condition == "cached" and is_counted(record):
        assert bottlenecks.values(condition)["wire_read_ratio"] < 0.1
    assert named(record) in expected, record.verdict


@pytest.mark.parametrize("condition", TRANSPORTS)
def test_the_injected_bottleneck_of_a_transport_is_named(bottlenecks: Tried, condition: str) -> None:
    """A machine so busy that the engine lacked CPU may have no part named, or the client; never another one."""
    found, expected = bottlenecks.record(condition), TRANSPORTS[condition].bottleneck
    disturbed = DISTURBED & {each.code for each in found.warnings}
    assert named(found) in ({expected, "not separable", "client"} if disturbed else {expected}), found.verdict


@pytest.mark.parametrize(
    ("transport", "server"),
    [("bindfs", (None, None)), ("sshfs", ("10.77.0.2", 2022)), ("iscsi", ("10.77.0.2", 3260))],
)
def test_the_server_of_a_transport_is_described(
    bottlenecks: Tried, transport: str, server: tuple[str | None, int | None]
) -> None:
    """A passthrough has none, so no verdict on it names a network."""
    part = bottlenecks.record(f"{transport} client").of(NetworkReading)
    assert part
    assert part.transport["transport"] == ("iscsi" if transport == "iscsi" else "fuse")
    assert (part.transport.get("server"), part.transport.get("port")) == server
    assert part.transport.get("daemon") == (None if transport == "iscsi" else transport)
