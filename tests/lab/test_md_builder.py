"""iosonde's own arrays of Linux md, built for real in the lab's machine: their states, and that nothing is left."""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

from iosonde.features.arrays import mdstat


@pytest.fixture(scope="module")
def states_by_level(guest_report: Report) -> dict[str, Any]:
    """Array states that the guest recorded for each level."""
    return guest_report.step("builder")


@pytest.mark.parametrize(
    ("level", "degraded", "status"),
    [("raid1", 0, "[4/4] [UUUU]"), ("raid10", 2, "[4/2] [U_U_]"), ("raid5", 1, "[4/3] [UUU_]")],
)
def test_an_array_is_in_the_requested_state(
    states_by_level: dict[str, Any], level: str, degraded: int, status: str
) -> None:
    state = states_by_level[level]["state"]
    assert (state["level"], state["raid_disks"], state["degraded"]) == (level, 4, degraded)
    mdstat = states_by_level[level]["mdstat"]
    assert f"active {level} " in mdstat and status in mdstat


def test_a_stripe_has_its_chunk(states_by_level: dict[str, Any]) -> None:
    assert states_by_level["raid0"]["state"]["chunk_bytes"] == 64 << 10


def test_a_rebuild_is_under_way(states_by_level: dict[str, Any]) -> None:
    assert mdstat.is_synchronising(states_by_level["raid5"]["state"])
    assert "recovery" in states_by_level["raid5"]["mdstat"]


def test_an_array_of_the_same_name_is_refused_while_one_exists(states_by_level: dict[str, Any]) -> None:
    for reported in states_by_level.values():
        assert "there is an array `/dev/md/iosonde-0a0b0c0d` already" in reported["refused"]


def test_nothing_is_left_of_an_array_neither_at_its_end_nor_after_cleanup(states_by_level: dict[str, Any]) -> None:
    for reported in states_by_level.values():
        assert (reported["left"], reported["running"], reported["journal"]) == ([""] * 4, [], [])
