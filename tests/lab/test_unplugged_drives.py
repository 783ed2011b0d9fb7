"""Drives that are unplugged while they are measured, in the lab's machine: an error, a failed record, no write elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

KINDS = ("raw", "file system")


@pytest.fixture(scope="module")
def unplugged(guest_report: Report) -> dict[str, Any]:
    """What `guest_unplug.py` reports."""
    said = guest_report.step("unplug")
    for each in said.values():
        assert "broken" not in each, each["broken"]
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_the_study_stops_with_an_error_and_the_run_is_a_failed_record(unplugged: dict[str, Any], kind: str) -> None:
    said = unplugged[kind]
    assert said["error"] and "Traceback" not in said["error"], said["error"]
    [(outcome, failure)] = said["records"]
    assert outcome == "failed" and failure
    assert said["mounted"] == []


def test_the_record_states_that_the_device_is_gone(unplugged: dict[str, Any]) -> None:
    """The engine sees only that a device of size 0 has no space. The kernel removes the node, and may reuse it, at any time."""
    [(_, failure)] = unplugged["raw"]["records"]
    reasons = ("it was removed", "no longer leads to a block device", "now leads to the block device")
    assert any(reason in failure.partition(" (")[0] for reason in reasons), failure


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_to_the_drive_that_takes_the_free_number(unplugged: dict[str, Any], kind: str) -> None:
    said = unplugged[kind]
    assert said["neighbour_is_intact"]
    assert (said["written_to_neighbour"], said["written_to_neighbour_by_resume"]) == (0, 0)
