"""An NVMe drive for real: what it reports, a purge with its own commands, and I/O through every backend."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

from iosonde.execution.instruments.kernel_trace import NO_INTERVAL

NO_SUCH_LOG = "has no log page with media writes"
"""What QEMU's drive is: it has the SMART log, and none that counts its media."""


@pytest.fixture(scope="module")
def drive(studies_said: dict[str, Any]) -> dict[str, Any]:
    """What was seen of a drive of the lab's machine."""
    said: dict[str, Any] = studies_said["drive"]
    return said


def test_the_strongest_purge_of_a_namespace_is_its_format(drive: dict[str, Any]) -> None:
    assert drive["can_format"]
    assert drive["failures"] == [None] * len(drive["failures"])
    assert "format" in drive["purges"]


def test_the_purge_covers_the_namespace_and_the_plan_lists_it(drive: dict[str, Any]) -> None:
    assert drive["before"] == "ab" * 8
    assert drive["after"] == "00" * 8, "behind everything that the study writes"
    [what] = drive["destroys"]
    assert what.endswith("(all of it)")


def test_a_sanitize_that_the_drive_does_not_offer_is_refused_before_anything_is_written(drive: dict[str, Any]) -> None:
    assert drive["can_sanitize"] is False
    assert drive["refused"]["what"] == "the target offers no purge by `sanitize`"
    assert "`format`" in drive["refused"]["hint"]


def test_without_an_iommu_no_controller_is_handed_over(drive: dict[str, Any]) -> None:
    assert drive["handover"][0] == "no IOMMU limits which memory the device may access"


def test_the_health_log_of_a_drive_is_read(drive: dict[str, Any]) -> None:
    assert 0 <= drive["now"]["temperature_celsius"] < 100
    assert drive["now"]["percentage_used"] == 0
    assert drive["now"]["media_errors"] == 0


def test_it_counts_what_the_host_wrote_as_the_kernel_does(studies_said: dict[str, Any]) -> None:
    [drive] = studies_said["limits"]["read"]["record"]["drives"]
    units = drive["end"]["data_units_written"] - drive["start"]["data_units_written"]
    assert drive["write_bytes"] > 60_000_000
    assert units * 512_000 == pytest.approx(drive["write_bytes"], rel=0.05)


def test_a_drive_without_a_log_of_its_media_is_no_number_but_a_reason(
    drive: dict[str, Any], guest_report: Report
) -> None:
    for [reported] in drive["drives"]:
        assert NO_SUCH_LOG in reported["start"]["not_reported"]
        assert "media" not in reported["end"]
    [evidence] = [
        finding.evidence
        for finding in guest_report.findings("purged")
        if finding.sentence == "Device write amplification is not known"
    ]
    assert NO_SUCH_LOG in evidence


BACKENDS = {
    "sync": set(),
    "libaio": set(),
    "uring": set(),
    "uring iopoll": {"completion_polling"},
    "uring_nvme": set(),
    "uring_nvme iopoll": {"completion_polling"},
}
"""I/O backends that ran on a namespace, and what each must have in effect."""


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_reads_back_what_it_wrote_to_a_namespace(studies_said: dict[str, Any], name: str) -> None:
    run = studies_said["backends"][name]
    assert run["failure"] is None
    assert run["in_effect"]["kind"] == name.split()[0]
    assert run["in_effect"]["fallbacks"] == []
    assert BACKENDS[name] <= set(run["in_effect"]["features"])
    assert set(run["verification"]["faults"].values()) == {0}


def test_stages_of_an_nvme_drive_are_traced_and_polled_io_has_no_interrupt(studies_said: dict[str, Any]) -> None:
    traces = {name: run["trace"] for name, run in studies_said["backends"].items()}
    assert {trace["reason"] for trace in traces.values()} <= {"", NO_INTERVAL}
    # A busy machine may report the intervals of a run too late to trace any of its I/Os.
    interrupts = {name: trace.get("stages", {}).get("interrupt", []) for name, trace in traces.items()}
    for name, times in interrupts.items():
        assert not times or (max(times) > 0) == ("iopoll" not in name), name
