"""Disks that are unplugged while they are measured, inside User Mode Linux: an error, a failed record, no write elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from guest_sessions import During, is_free, run, study, wait_for
from simulated_disks import COUNT, attached, consent_for, disks, wipe

from iosonde.errors import IosondeError
from iosonde.execution.session import execute, resume
from iosonde.features.block_caches import device_mapper
from iosonde.features.block_caches.setup import BlockCacheSetup
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

PATTERN = b"\xa5" * (1 << 20)
LOAD = {"span": "16MiB", "block_size": "16KiB", "access": "random", "read_fraction": 0.0, "queue_depth": 4}
SETUP = BlockCacheSetup(kind="dm-writecache", mode="writeback")
ENDLESS = {"ramp": 0, "duration": "10min", "interval": "100ms"}


class Disk:
    """A disk by its SCSI host, which stays when its name changes."""

    def __init__(self, path: Path) -> None:
        self.host = Path("/sys/block", path.name, "device").resolve().parents[1]

    @property
    def path(self) -> Path:
        [block] = self.host.glob("target*/*/block/sd*")
        return Path("/dev", block.name)

    def remove(self) -> None:
        before = len(attached())
        Path("/sys/block", self.path.name, "device/delete").write_text("1")
        wait_for(lambda: len(attached()) < before)

    def plug_in(self) -> None:
        """Its name is the lowest free one."""
        before = len(attached())
        Path("/sys/class/scsi_host", self.host.name, "scan").write_text("- - -")
        wait_for(lambda: len(attached()) > before and self.path.is_block_device())

    def written_sectors(self) -> int:
        """Since it has its name."""
        return int(Path("/sys/block", self.path.name, "stat").read_text().split()[6])


def fill(path: Path) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(PATTERN)
        os.fsync(file.fileno())


def is_filled(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read(len(PATTERN)) == PATTERN


@pytest.mark.parametrize("setup", [{}, {"file_system": "ext4"}], ids=["raw", "file system"])
def test_a_study_stops_with_an_error_and_the_disk_that_takes_the_name_is_not_written(
    setup: dict[str, str], tmp_path: Path
) -> None:
    drive, neighbour = Disk(disks()[2]), Disk(disks()[3])
    wipe(drive.path, neighbour.path)
    name = drive.path
    fill(neighbour.path)

    def swap_names() -> None:
        drive.remove()
        neighbour.remove()
        neighbour.plug_in()

    plan = expand(study({**LOAD, **ENDLESS, **setup}, repeats=3), open_target(str(name)))
    consent = consent_for(name)
    try:
        with pytest.raises(IosondeError):
            execute(plan, tmp_path / "set", observer=During(swap_names), consent=consent)
        [record] = ResultSet.open(tmp_path / "set").records()
        assert record.outcome == "failed"
        assert record.failure
        # The engine sees only that a device of size 0 has no space. The kernel removes the node, and may reuse it, at any time.
        reasons = ("it was removed", "no longer leads to a block device", "now leads to the block device")
        assert setup or any(each in record.failure.message.partition(" (")[0] for each in reasons)
        assert "iosonde" not in Path("/proc/mounts").read_text()
        drive.plug_in()
        with pytest.raises(IosondeError):  # It measures the disk where that has its name again.
            resume(tmp_path / "set", retry_failed=True, consent=consent, observer=During(drive.remove))
        assert is_filled(neighbour.path)
        assert neighbour.written_sectors() == 0
    finally:
        if len(attached()) < COUNT:
            drive.plug_in()
        for entry in journal.entries():
            journal.removed(Path(entry.path))


def test_a_cache_whose_member_was_unplugged_is_removed() -> None:
    backing, cache = disks()[0], Disk(disks()[3])
    built = device_mapper.build(backing, cache.path, SETUP, "iosonde-89abcdef")
    cache.remove()
    journal.undo(built.key)
    cache.plug_in()
    assert is_free(backing)
    assert run("dmsetup", "ls") == "No devices found"
    assert journal.entries() == []


def test_a_mapped_device_of_the_same_name_and_another_identity_stays() -> None:
    """It is somebody else's by now."""
    name, backing = "iosonde-89abcdef", disks()[0]
    built = device_mapper.build(backing, disks()[1], SETUP, name)
    run("dmsetup", "remove", "--noudevsync", f"{name}-cached")
    table = f"0 8 linear {backing} 0"
    run("dmsetup", "create", f"{name}-cached", "--noudevsync", "--uuid", "LVM-other", "--table", table)
    journal.undo(built.key)
    assert run("dmsetup", "ls").startswith(f"{name}-cached")
    run("dmsetup", "remove", "--noudevsync", f"{name}-cached")
    assert journal.entries() == []
