"""NFS of a server in a namespace of its own, with a delay, a rate limit and a throttled drive (`guest_network.py`)."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

from iosonde.metrics.metrics import run_metrics
from iosonde.results.schema import Record


def values(guest_report: Report, name: str) -> list[tuple[Record, dict[str, float]]]:
    """The records of a result set with their metrics, in the order of the runs."""
    results = guest_report.result_set(name)
    table = run_metrics(results).filter(operation="all")
    records = sorted(results.records(), key=lambda each: each.order)
    return [(each, dict(table.filter(run_id=each.run_id).select("metric", "value").iter_rows())) for each in records]


def value(guest_report: Report, condition: str) -> tuple[Record, dict[str, float]]:
    name = "drive" if condition == "drive" else "memory"
    return [each for each in values(guest_report, name) if each[0].case_id.endswith(f"={condition}")][-1]


def counted(guest_report: Report) -> list[tuple[dict[str, int], dict[str, int]]]:
    found = guest_report.step("network")
    return [(before, after) for name in ("memory", "drive") for before, after in found[name].values()]


def test_the_transport_of_a_mount_is_described(guest_report: Report) -> None:
    found: dict[str, Any] = guest_report.step("network")["transport"]
    assert (found["transport"], found["version"], found["server"]) == ("nfs", "4.2", "10.77.0.2")
    assert {"nconnect": 2, "acregmax": 5, "proto": "tcp"}.items() <= found["options"].items()
    assert found["connections"] == 2
    assert (found["path"]["interface"], found["path"]["mtu_bytes"]) == ("veth0", 1500)
    assert found["path"]["server_is_local"] is False


def test_client_and_server_count_the_same_bytes(guest_report: Report) -> None:
    for before, after in counted(guest_report):
        for operation in ("read", "write"):
            wire, server = (
                after[f"{end}_{operation}_bytes"] - before[f"{end}_{operation}_bytes"] for end in ("server", "nfsd")
            )
            assert wire == server


@pytest.mark.parametrize("condition", ["delay 0", "delay 10", "rate", "drive"])
def test_direct_reads_go_over_the_wire_one_call_each(guest_report: Report, condition: str) -> None:
    """At the time of a reading, the operations of the load are interpolated: a few may be missing or too many."""
    record, found = value(guest_report, condition)
    assert record.outcome == "complete", record.failure
    assert found["wire_read_ratio"] == pytest.approx(1, abs=0.25)
    assert found["rpc_round_trip_ns_mean"] < found["rpc_execute_ns_mean"]
    assert found["wire_bytes_per_operation"] > 3 * 1024


def test_a_delay_is_time_of_the_network(guest_report: Report) -> None:
    """A busy machine can make each round trip longer, and none shorter."""
    _, local = value(guest_report, "delay 0")
    _, far = value(guest_report, "delay 10")
    assert far["network_probe_ns_p50"] >= 10_000_000 > local["network_probe_ns_p50"]
    assert far["rpc_round_trip_ns_mean"] >= 10_000_000


@pytest.mark.parametrize(
    ("condition", "kinds"),
    [
        ("cached", {"cache-served"}),
        ("drive", {"server-limited"}),
    ],
)
def test_a_cache_and_a_slow_drive_of_the_server_are_not_mistaken(
    guest_report: Report, condition: str, kinds: set[str]
) -> None:
    """A busy machine disturbs the load, or makes the client slow: then the run is not limited by what is remote."""
    record, found = value(guest_report, condition)
    assert record.verdict
    disturbed = {"undetermined", "harness-limited"} if condition != "cached" else set()
    assert record.verdict.kind in kinds | disturbed, record.verdict.because
    if condition == "cached":
        assert found["wire_read_ratio"] < 0.1
