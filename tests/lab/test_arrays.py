"""Linux md on throttled drives, in the lab's machine: an array does what its closed form says.

Everything is measured in one start of the machine (`guest_rates.py`), and judged here, figure by figure.
"""

from __future__ import annotations

import pytest
from guest_rates import CLOSED_FORM, PARITY
from lab_guest import Report


def judge(guest_report: Report, name: str, tolerance: float) -> None:
    """Drives never exceed their limits by more than the burst; a starved guest reaches less."""
    said = guest_report.of(name)
    last = said["measured"]
    assert (1 - tolerance) * said["expected"] < last < 1.03 * said["expected"], said


@pytest.mark.parametrize("what", ["reads", "writes"])
@pytest.mark.parametrize("name", [f"{level}x{count}" for level, count, _, _ in CLOSED_FORM])
def test_raid_0_1_and_10_match_the_closed_form(guest_report: Report, name: str, what: str) -> None:
    judge(guest_report, f"{name} {what}", 0.1)


@pytest.mark.parametrize("name", [f"{level}x{count}" for level, count, _, _ in PARITY])
def test_raid_5_and_6_read_from_all_drives(guest_report: Report, name: str) -> None:
    judge(guest_report, f"{name} reads", 0.1)


def test_the_more_parity_the_slower_full_stripes_are_written(guest_report: Report) -> None:
    names = ["raid0x4 writes", "raid5x4 writes", "raid6x4 writes"]
    none, one, two = (guest_report.of(name)["measured"] for name in names)
    assert none > one > two > 0


def test_a_mirror_continues_without_a_failed_member(guest_report: Report) -> None:
    said = guest_report.of("raid1 with a member that fails")
    assert said["failure"] is None
    assert said["missing"] == 1
    assert said["iops"] > 0


def test_a_failed_member_of_a_stripe_fails_the_run_with_the_reason(guest_report: Report) -> None:
    said = guest_report.of("raid0 with a member that fails")
    assert said["failure"] is not None
    assert "Input/output error" in str(said["failure"]) or "EIO" in str(said["failure"])
