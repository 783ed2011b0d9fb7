"""Outages of NFS with verified writes, and what a killed session leaves, in User Mode Linux (`failover_guest.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from network_conditions import check_outage

from iosonde.features.many_hosts.record import Hosts
from iosonde.results import ResultSet

NOTHING: dict[str, Any] = {name: [] for name in ("mounted", "exports", "routes", "journal", "files")}


@pytest.fixture(scope="module")
def outages(user_mode_linux: Callable[..., Path]) -> Path:
    return user_mode_linux("failover_guest.py", "1")


@pytest.fixture(scope="module")
def left(outages: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((outages / "left.json").read_text())
    return found


@pytest.mark.parametrize("name", ["link", "own"])
def test_an_outage_is_seen_and_no_acknowledged_write_is_lost(outages: Path, name: str) -> None:
    check_outage(ResultSet.open(outages / name))


def test_an_export_of_the_setup_refuses_other_users(left: dict[str, Any]) -> None:
    permission_denied = 1  # NFS4ERR_PERM
    assert left["strangers"] == {"any user": permission_denied, "root": 0, "modes": ["0o700", "0o700"]}


def test_each_host_mounts_the_export_with_the_options_of_each_case(outages: Path) -> None:
    results = ResultSet.open(outages / "hosts")
    assert [record.failure for record in results.records()] == [None, None]
    for host in results.plan.hosts:
        own = ResultSet.open(results.directory / "hosts" / host).records()
        assert sorted(each.setup["nfs"]["options"].split(",")[2] for each in own) == ["nconnect=1", "nconnect=2"]
    for record in results.records():
        part = record.of(Hosts)
        assert part
        assert all(share.bytes for share in part.shares)
        assert record.target["file_system"]["kind"] == "nfs4"


def test_setups_leave_nothing(left: dict[str, Any]) -> None:
    for name in ("hosts", "link", "own"):
        found = left[name]
        assert {each: found[each] for each in NOTHING} == NOTHING
    assert left["own"]["threads"] == "4"


def test_cleanup_removes_what_a_session_killed_during_an_outage_leaves(left: dict[str, Any]) -> None:
    killed, after = left["killed"], left["after"]
    assert killed["threads"] == "0"
    assert killed["mounted"]
    assert killed["exports"]
    assert after == NOTHING | {"threads": "4"}, left["cleaned"]
