"""NVMe/TCP on a real kernel: options of the study, outages with verified writes, and nothing left (`guest_nvme_tcp.py`)."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report
from network_conditions import ON_DEVICE, Condition, check_outage, named

from iosonde.metrics.metrics import run_metrics

NOTHING: dict[str, Any] = {
    **{name: [] for name in ("mounted", "subsystems", "ports", "connected", "journal")},
    "hosts": 0,
    "free": True,
}
OPTIONS = {
    "polled queues": {"nr_io_queues=2", "nr_poll_queues=2"},
    "both digests": {"nr_io_queues=2", "hdr_digest", "data_digest"},
}


def test_each_option_reaches_the_kernel_and_measures(guest_report: Report) -> None:
    results = guest_report.result_set("nvme-tcp")
    levels = {case.case_id: case.levels for case in results.plan.cases}
    found = {}
    for record in results.records():
        assert record.outcome == "complete", record.failure
        assert record.setup
        given = set(record.setup["fabric"]["options"].split(","))
        option = levels[record.case_id]["option"]
        assert not any(each.startswith("host") for each in given)
        found[option] = {each for each in given if each.startswith("nr_") or each.endswith("_digest")}
    assert found == OPTIONS
    counts = run_metrics(results).filter(metric="iops", operation="all")
    assert len(counts) == len(results.records()) == len(OPTIONS)
    assert counts["value"].min() > 0  # type: ignore[operator]


def test_the_target_refuses_other_hosts_and_hides_the_name_of_its_own(guest_report: Report) -> None:
    found = guest_report.step("nvme-tcp")["strangers"]
    assert (found["another host"], found["host without a name"]) == ("EIO", "EIO")
    assert found["readable"] == []
    assert found["readable address"], "only the name is closed to other users"


def test_the_target_listens_on_the_loopback_interface(guest_report: Report) -> None:
    [address] = guest_report.step("nvme-tcp")["strangers"]["listening"]
    host, _, port = address.partition(":")
    assert host == "0100007F" and int(port, 16) < 1024, "no other user can take the port during an outage"


@pytest.mark.parametrize("name", ["nvme-tcp-server", "nvme-tcp-link"])
def test_an_outage_is_seen_and_no_acknowledged_write_is_lost(guest_report: Report, name: str) -> None:
    check_outage(guest_report.result_set(name))


@pytest.mark.parametrize("condition", ON_DEVICE, ids=lambda each: each.name)
def test_no_other_bottleneck_is_named(guest_report: Report, condition: Condition) -> None:
    """On a busy machine the load is disturbed, or the client is slow as well: then nothing remote is named."""
    results = guest_report.result_set("nvme-tcp-limits")
    [record] = [each for each in results.records() if each.levels["condition"] == condition.name]
    assert record.outcome == "complete", record.failure
    disturbed = {"cache"} if condition.bottleneck == "cache" else {condition.bottleneck, "not separable", "client"}
    assert named(record) in disturbed, record.verdict


def test_setups_leave_nothing(guest_report: Report) -> None:
    found = guest_report.step("nvme-tcp")
    assert found["setups"] == NOTHING
    assert found["link"] == NOTHING
    assert found["routes"] == []


def test_failover_cuts_the_route_to_a_device_that_the_user_has_connected(guest_report: Report) -> None:
    assert guest_report.step("nvme-tcp")["failover"] == ["as connected"]


def test_cleanup_disconnects_and_removes_what_a_killed_session_leaves(guest_report: Report) -> None:
    killed = guest_report.step("nvme-tcp")["killed"]
    assert killed["was_measuring"]
    at_kill = killed["at_kill"]
    assert all(at_kill[kind] for kind in ("mounted", "subsystems", "ports", "hosts", "connected", "journal"))
    assert killed["left"] == NOTHING, killed["cleaned"]
