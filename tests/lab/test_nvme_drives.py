"""An NVMe drive for real: what it reports, a purge with its own commands, and I/O through every backend."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

from iosonde.features.kernel_trace.questions import PathStages


@pytest.fixture(scope="module")
def drive(guest_report: Report) -> dict[str, Any]:
    """Observations of a drive of the lab's machine."""
    return guest_report.step("drive")


def test_the_strongest_purge_of_a_namespace_is_its_format_and_covers_all_of_it(drive: dict[str, Any]) -> None:
    assert (drive["can_format"], drive["can_sanitize"]) == (True, False)
    assert drive["failures"] == [None] * len(drive["failures"])
    assert "format" in drive["purges"]
    assert drive["before"] == "ab" * 8
    assert drive["after"] == "00" * 8, "behind everything that the study writes"
    [what] = drive["destroys"]
    assert what.endswith("(all of it)")


def test_the_health_log_is_read_and_without_the_module_no_controller_is_handed_over(drive: dict[str, Any]) -> None:
    assert 0 <= drive["now"]["temperature_celsius"] < 100
    assert (drive["now"]["percentage_used"], drive["now"]["media_errors"]) == (0, 0)
    assert drive["handover"] == ["the driver `vfio-pci` is not loaded (`modprobe vfio-pci`)"]


def test_the_kernel_takes_exported_costs_which_are_then_read(guest_report: Report) -> None:
    costs = guest_report.step("costs")
    assert costs["read"] == costs["exported"]
    assert [each.partition(" ")[0] for each in costs["read"]] == ["io.cost.model", "io.cost.qos"]


BACKENDS = {
    "sync": set(),
    "preadv2": set(),
    "libaio": set(),
    "uring": set(),
    "uring sqpoll": {"submission_polling"},
    "uring iopoll": {"completion_polling"},
    "uring_nvme": set(),
    "uring_nvme iopoll": {"completion_polling"},
}
"""I/O backends that ran on a namespace, and what each must have in effect."""
NOT_IN_THIS_KERNEL = {"preadv2": ["completion_polling"]}


ALWAYS = ("submission", "device", "return")
"""Stages between the four events that every I/O has: system call, request issued, request completed, return."""
INTERRUPT = ("interrupt", "wake_up")
LEAST_SHARE = 0.9


@pytest.mark.parametrize("name", BACKENDS)
def test_the_events_of_traced_ios_are_related(guest_report: Report, name: str) -> None:
    run = guest_report.step("backends")[name]
    assert (run["failure"], run["in_effect"]["kind"]) == (None, name.split()[0])
    assert [each["feature"] for each in run["in_effect"]["fallbacks"]] == NOT_IN_THIS_KERNEL.get(name, [])
    assert BACKENDS[name] <= set(run["in_effect"]["features"])
    trace = run["trace"]
    assert (trace["reason"], trace["unseen"]) == ("", {})
    assert trace["related"] >= 50
    assert trace["related"] >= LEAST_SHARE * (trace["related"] + trace["incomplete"])
    # Passthrough does not go through the block layer, and a polled I/O has no interrupt.
    expected = [*ALWAYS, *(() if "uring_nvme" in name else ("block_layer",)), *(() if "iopoll" in name else INTERRUPT)]
    for stage, times in trace["stages"].items():
        share = sum(time > 0 for time in times) / len(times)
        # A thread that is not asleep yet when its I/O completes is not made runnable: a matter of speed.
        least = 0.05 if stage in INTERRUPT else LEAST_SHARE
        assert share >= least if stage in expected else share == 0, (stage, share)


def test_the_study_reports_the_share_of_each_stage(guest_report: Report) -> None:
    found = [finding for finding in guest_report.findings("kernel-tax") if isinstance(finding, PathStages)]
    assert len(found) == len(BACKENDS)
