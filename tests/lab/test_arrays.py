"""Linux md on throttled drives, in the lab's machine: an array reaches its expected rates.

Everything is measured in one start of the machine (`guest_rates.py`), and judged here, figure by figure.
"""

from __future__ import annotations

import pytest
from guest_rates import CLOSED_FORM, PARITY, SECONDS
from lab_guest import Report

BURST_S = 0.1
"""After a pause the throttle lets pass what it would have let pass in this time (QEMU, `docs/throttle.txt`)."""
LATE = 1.1
"""Reads in flight when the measurement starts, which a guest without a CPU counts in it: 8 % of the largest number."""
LOWEST = 0.5
"""Of the expected rate, in the best second: while a guest waits for the host's CPUs it reaches less than the drives give."""


def judge(guest_report: Report, name: str) -> None:
    """Drives never exceed their limits by more than the burst, and I/O that completes late is counted late."""
    reported = guest_report.result(name)
    highest = (1 + BURST_S / SECONDS) * LATE
    assert reported["measured"] < highest * reported["expected"], reported
    assert LOWEST * reported["expected"] < reported["best"], reported


@pytest.mark.parametrize("what", ["reads", "writes"])
@pytest.mark.parametrize("name", [f"{level}x{count}" for level, count, _, _ in CLOSED_FORM])
def test_raid_0_1_and_10_match_the_closed_form(guest_report: Report, name: str, what: str) -> None:
    judge(guest_report, f"{name} {what}")


@pytest.mark.parametrize("name", [f"{level}x{count}" for level, count, _, _ in PARITY])
def test_raid_5_and_6_match_the_closed_form_of_reads(guest_report: Report, name: str) -> None:
    judge(guest_report, f"{name} reads")


@pytest.mark.parametrize("name", [f"{level}x{count}" for level, count, _, _ in [*CLOSED_FORM, *PARITY]])
def test_every_drive_is_read(guest_report: Report, name: str) -> None:
    by_drive = guest_report.result(f"{name} read bytes")["by_drive"]
    assert min(by_drive) > 0.5 * sum(by_drive) / len(by_drive) > 0


@pytest.mark.parametrize(("level", "written"), [("raid0", 1), ("raid5", 4 / 3), ("raid6", 2)])
def test_drives_get_data_and_parity_of_what_is_written(guest_report: Report, level: str, written: float) -> None:
    """Counted, not timed: a stripe that the guest's CPUs could not fill in time has its parity written again."""
    counted = guest_report.result(f"{level}x4 bytes")
    assert counted["by_array"] > 0
    amplification = counted["by_drives"] / counted["by_array"]
    assert amplification > 0.999 * written
    # Without a full stripe at once, every write of a chunk would write its parity too.
    assert amplification < {"raid0": 1.01, "raid5": 2, "raid6": 3}[level]


def test_a_mirror_continues_without_a_failed_member(guest_report: Report) -> None:
    reported = guest_report.result("raid1 with a member that fails")
    assert reported["failure"] is None
    assert reported["missing"] == 1
    assert reported["iops"] > 0


def test_a_failed_member_of_a_stripe_fails_the_run_with_the_reason(guest_report: Report) -> None:
    reported = guest_report.result("raid0 with a member that fails")
    assert reported["failure"] is not None
    assert "Input/output error" in str(reported["failure"]) or "EIO" in str(reported["failure"])
