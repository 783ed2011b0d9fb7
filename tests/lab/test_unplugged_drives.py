"""Drives that are unplugged while they are measured, in the lab's machine: an error, a failed record, no write elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

KINDS = ("raw", "file system")


@pytest.fixture(scope="module")
def unplugged(guest_report: Report) -> dict[str, Any]:
    """Reports of `guest_unplug.py`."""
    reported = guest_report.step("unplug")
    for each in reported.values():
        assert "broken" not in each, each["broken"]
    return reported


@pytest.mark.parametrize("kind", KINDS)
def test_the_study_stops_with_an_error_and_the_run_is_a_failed_record(unplugged: dict[str, Any], kind: str) -> None:
    reported = unplugged[kind]
    assert reported["error"] and "Traceback" not in reported["error"], reported["error"]
    [(outcome, failure)] = reported["records"]
    assert outcome == "failed" and failure
    assert reported["mounted"] == []


def test_the_record_states_that_the_device_is_gone(unplugged: dict[str, Any]) -> None:
    """The engine sees only that a device of size 0 has no space. The kernel removes the node, and may reuse it, at any time."""
    [(_, failure)] = unplugged["raw"]["records"]
    reasons = ("it was removed", "no longer leads to a block device", "now leads to the block device")
    assert any(reason in failure.partition(" (")[0] for reason in reasons), failure


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_to_the_drive_that_takes_the_free_number(unplugged: dict[str, Any], kind: str) -> None:
    reported = unplugged[kind]
    assert reported["neighbour_is_intact"]
    assert (reported["written_to_neighbour"], reported["written_to_neighbour_by_resume"]) == (0, 0)
