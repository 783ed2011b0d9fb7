"""The guard against the real thing: drives that md, LVM, device mapper, bcache and others use, in the lab's machine."""

from __future__ import annotations

import pytest
from guest_guard import USES, VOLUMES
from lab_guest import Report

REFUSED = {
    "member of an md array": "is part of `md",
    "md array that is mounted": "is mounted at `/mnt`",
    "member of an md array that is not assembled": "linux_raid_member",
    "LVM volume": "is part of `dm-",
    "LVM group without a volume": "LVM2_member",
    "device mapper": "is part of `dm-",
    "volume that is mounted": "is mounted at `/mnt`",
    "volume through a node of another name": "is mounted at `/mnt`",
    "encrypted volume that is mounted": "is mounted at `/mnt`",
    "origin of a snapshot": "is part of `dm-",
    "store of a snapshot": "is mounted at `/mnt`",
    "bcache": "is part of `bcache",
    "bcache that is not registered": "is a member of an array or pool (bcache)",
    "mounted partition": "`nvme0n1p1` is mounted at `/mnt`",
    "swap": "is active swap",
    "btrfs of two devices": "btrfs over several devices",
    "second device of a mounted btrfs": "is a member of the mounted btrfs",
    "loop device on it that is mounted": "is mounted at `/mnt`",
    "held by another program": "is claimed exclusively by another program",
}


def test_a_drive_that_nothing_uses_may_be_written(guest_report: Report) -> None:
    assert guest_report.result("guard: nothing")["refusals"] == []


@pytest.mark.parametrize("use", REFUSED)
def test_a_drive_in_use_is_refused_by_any_name_and_nothing_is_written(guest_report: Report, use: str) -> None:
    reported = guest_report.result(f"guard: {use}")
    assert "error" not in reported, reported["error"]
    drive = guest_report.result("guard: nothing")["drive"]
    assert REFUSED[use].replace("nvme0n1", drive) in " and ".join(reported["refusals"])
    assert reported["by_alias"] == reported["refusals"]
    assert reported["writes"] == 0


def test_every_use_is_tried() -> None:
    assert set(USES) == {"nothing", *REFUSED}
    assert set(VOLUMES) == {FREE_VOLUME, *REFUSED_VOLUMES}


FREE_VOLUME = "volume beside a mounted one"
REFUSED_VOLUMES = {
    "volume on sectors of a mounted one": "shares data with `dm-",
    "encrypted volume on sectors of a mounted one": "shares data with `dm-",
    "volume with a mounted snapshot": "shares data with `dm-",
    "volume under a mounted loop device": "is attached to `dm-",
}


def test_a_volume_that_maps_sectors_of_its_own_may_be_written(guest_report: Report) -> None:
    assert guest_report.result(f"guard: {FREE_VOLUME}")["refusals"] == []


@pytest.mark.parametrize("volume", REFUSED_VOLUMES)
def test_a_volume_that_maps_sectors_in_use_is_refused_by_any_name(guest_report: Report, volume: str) -> None:
    reported = guest_report.result(f"guard: {volume}")
    assert "error" not in reported, reported["error"]
    refusals = " and ".join(reported["refusals"])
    assert REFUSED_VOLUMES[volume] in refusals and "is mounted at `/mnt`" in refusals
    assert reported["by_alias"] == reported["refusals"]
