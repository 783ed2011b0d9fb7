"""Block caches on real drives of the lab's machine: measured, taken down after a kill, and nothing else written."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

NOTHING = {"registered": [], "superblocks": [False, False], "mapped": [], "journal": [], "free": [True, True]}


@pytest.fixture(scope="module")
def said(guest_report: Report) -> dict[str, Any]:
    """What the guest saw."""
    return guest_report.file("caches.json")


def test_the_kernel_has_bcache(said: dict[str, Any]) -> None:
    assert said["support"]["bcache"] == "loaded"


def test_runs_with_and_without_a_cache_are_measured(said: dict[str, Any]) -> None:
    runs = said["runs"]
    assert {name: (run["outcome"], run["failure"]) for name, run in runs.items()} == dict.fromkeys(
        ("none", "bcache"), ("complete", "")
    )
    assert runs["none"]["cache"] is None
    cache = runs["bcache"]["cache"]
    assert (cache["kind"], cache["mode"]) == ("bcache", "writeback")
    assert cache["at_end"]["read_bytes"] > cache["at_start"]["read_bytes"]
    assert 0 <= runs["bcache"]["hit_ratio"] <= 1


def test_after_a_kill_in_a_run_cleanup_unregisters_both_devices(said: dict[str, Any]) -> None:
    killed = said["killed"]
    assert killed["was_measuring"]
    assert "bcache0" in killed["at_kill"]["registered"]
    assert killed["at_kill"]["superblocks"] == [True, True]
    assert "block cache" in killed["at_kill"]["journal"]
    assert "the block cache was removed" in killed["cleaned"]
    assert killed["left"] == NOTHING


def test_nothing_is_left_and_no_other_drive_was_written(said: dict[str, Any]) -> None:
    assert said["left"] == NOTHING
    assert said["written_to_neighbours"] == 0
