"""Linux md: the commands, the state that the kernel reports, and reasons to refuse. Real arrays are created in the lab."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_stacks import loop_devices
from plans import a_record, hand_plan

from iosonde.features.arrays import md
from iosonde.features.arrays.facts import from_evidence
from iosonde.features.arrays.run import thread_warnings
from iosonde.features.arrays.setup import ArraySetup, announce, erase_superblocks, failing_members
from iosonde.plan import Setup
from iosonde.results.run_facts import RUNS, values
from iosonde.storage import tools
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import MOUNTS

KIB, MIB = 1 << 10, 1 << 20


def sysfs(folder: Path, **files: str) -> Path:
    """A directory as the kernel shows an array in."""
    folder.mkdir()
    usual = {"level": "raid5", "raid_disks": "4", "chunk_size": "65536", "array_state": "active", "degraded": "0"}
    for name, text in {**usual, "sync_action": "idle", "sync_completed": "none", "sync_speed": "none", **files}.items():
        (folder / name).write_text(text + "\n")
    for number in range(4):
        member = folder / f"dev-nvme{number}n1"
        member.mkdir()
        (member / "state").write_text("in_sync\n")
    return folder


def test_the_state_of_an_array_is_read_as_the_kernel_shows_it(tmp_path: Path) -> None:
    state = md.state_of(sysfs(tmp_path / "md"))
    assert state == {
        "level": "raid5",
        "raid_disks": 4,
        "chunk_bytes": 64 * KIB,
        "array_state": "active",
        "degraded": 0,
        "sync_action": "idle",
        "members": {f"nvme{number}n1": "in_sync" for number in range(4)},
    }
    assert not md.is_synchronising(state)
    progress = {"sync_action": "recover", "sync_completed": "524288 / 2097152", "sync_speed": "20480"}
    state = md.state_of(sysfs(tmp_path / "rebuilding", degraded="1", **progress))
    assert (state["degraded"], state["sync_done"], state["sync_bytes_per_second"]) == (1, 0.25, 20 * MIB)
    assert md.is_synchronising(state)
    assert md.state_of(tmp_path / "gone") == {}


DEVICES = [Path(f"/dev/nvme{number}n1") for number in range(4)]


def command(**setup: Any) -> str:
    asked = ArraySetup(chunk=64 * KIB, **setup)
    return " ".join(md.create_command(Path("/dev/md/iosonde-12345678"), DEVICES, asked))


def test_the_command_names_level_chunk_and_devices() -> None:
    assert command(level="raid5") == (
        "mdadm --create /dev/md/iosonde-12345678 --run --name=iosonde-12345678 --homehost=any --metadata=1.2 --level=5 "
        "--raid-devices=4 --chunk=64K --bitmap=none /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1"
    )
    assert "--chunk" not in command(level="raid1")
    assert "--bitmap" not in command(level="raid0")
    assert "--assume-clean" in command(level="raid6", state="clean")
    for state in ("synced", "degraded", "rebuilding"):
        assert "--assume-clean" not in command(level="raid6", state=state, failed_members=1)
    assert "--assume-clean" not in command(level="raid0", state="clean")


@pytest.mark.parametrize(
    ("level", "count", "expected"),
    [("raid5", 1, [3]), ("raid6", 2, [3, 2]), ("raid1", 3, [3, 2, 1]), ("raid10", 2, [3, 1])],
)
def test_members_fail_so_that_the_array_survives(level: str, count: int, expected: list[int]) -> None:
    setup = ArraySetup(level=level, state="degraded", failed_members=count)  # type: ignore[arg-type]
    assert failing_members(DEVICES, setup) == [DEVICES[number] for number in expected]


NAME = "iosonde-12345678"


def md_superblock(name: str) -> bytes:
    """Version 1.2 of an array of one member (kernel `include/uapi/linux/raid/md_p.h`)."""
    fields = struct.pack("<4I16s32sQ4I", 0xA92B4EFC, 1, 0, 0, bytes(range(16)), name.encode(), 0, 1, 0, 8 << 11, 0)
    fields = (fields + struct.pack("<I", 2)).ljust(128, b"\0")
    fields += struct.pack("<4Q2I16s", 2048, 8 << 11, 8, 0, 0, 0, bytes(range(16))).ljust(88, b"\0")
    checked = fields.ljust(220, b"\0") + struct.pack("<I", 2)
    data = checked.ljust(256, b"\0") + struct.pack("<2H", 0, 1)
    total = sum(struct.unpack(f"<{len(data) // 4}I", data))
    checksum = ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF
    return data[:216] + struct.pack("<I", checksum) + data[220:]


def btrfs_superblock(place: int, label: str) -> bytes:
    return bytes(48) + struct.pack("<Q8x8s", place, b"_BHRfS_M") + bytes(227) + label.encode().ljust(256, b"\0")


def write(device: Path, place: int, data: bytes) -> None:
    with device.open("r+b") as file:
        file.seek(place)
        file.write(data)


def content(device: Path, place: int) -> bytes:
    with device.open("rb") as file:
        file.seek(place)
        return file.read(1024)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[Path]]:
    with loop_devices(tmp_path, 96 * MIB, 96 * MIB) as found:
        yield found


on_loop_devices = pytest.mark.needs("root", "loop devices")


def announced(kind: str, found: list[Path]) -> None:
    announce(Path("/dev/md", NAME) if kind == "md" else MOUNTS / NAME / "array", kind, found, name=NAME)


def removed() -> list[tuple[bool, str]]:
    """Result of `cleanup` after the process that announced an array was killed."""
    (file,) = journal._directory().glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "owner": ""}))
    return [(each.failed, each.reason) for each in journal.cleanup()]


@pytest.mark.system
@on_loop_devices
@pytest.mark.parametrize(("kind", "places"), [("md", [4096]), ("btrfs", [64 << 10, 64 << 20])])
def test_cleanup_erases_every_superblock_with_the_name_of_the_study_only(
    devices: list[Path], kind: str, places: list[int]
) -> None:
    """After a kill a device may be somebody else's by now."""
    blocks = {
        (device, place): md_superblock(f"any:{name}") if kind == "md" else btrfs_superblock(place, name)
        for device, name in zip(devices, (NAME, "precious"), strict=True)
        for place in places
    }
    for (device, place), block in blocks.items():
        write(device, place, block)
    announced(kind, devices)
    assert removed() == [(False, "the array was removed")]
    for (device, place), block in blocks.items():
        assert content(device, place).startswith(block if device == devices[1] else bytes(1024))


@pytest.mark.system
@on_loop_devices
def test_a_name_that_leads_elsewhere_between_check_and_erasure_changes_nothing_else(
    devices: list[Path], tmp_path: Path
) -> None:
    ours, theirs = devices
    for device in devices:
        write(device, 4096, md_superblock(f"any:{NAME}"))
    name = tmp_path / "name"
    name.symlink_to(ours)

    def checked(descriptor: int) -> list[int]:
        name.unlink()
        name.symlink_to(theirs)
        return [4096] if os.pread(descriptor, 4, 4096) else []

    erase_superblocks(name, checked)
    assert content(ours, 4096) == bytes(1024)
    assert content(theirs, 4096).startswith(md_superblock(f"any:{NAME}"))


@pytest.mark.parametrize("kind", ["md", "btrfs"])
def test_members_that_are_gone_do_not_prevent_a_removal(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    announced(kind, [Path("/dev/none"), tmp_path / "file", Path("relative")])
    assert removed() == [(False, "the array was removed")]


@pytest.mark.system
@on_loop_devices
def test_a_member_that_another_program_claims_is_reported_and_not_erased(
    devices: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "BUSY_S", 0.2)
    write(devices[0], 4096, md_superblock(f"any:{NAME}"))
    announced("md", devices)
    claim = os.open(devices[0], os.O_RDWR | os.O_EXCL)
    try:
        problem = f"could not be removed: `{devices[0]}` is claimed exclusively by another program"
        assert removed() == [(True, problem)]
        assert md.name_on(devices[0]) == NAME
    finally:
        os.close(claim)
    assert removed() == [(False, "the array was removed")]
    assert md.name_on(devices[0]) == ""


REBUILDING = ArraySetup(level="raid5", state="rebuilding", failed_members=1)
DEGRADED = ArraySetup(level="raid5", state="degraded", failed_members=1)
STARTED = {"at": 100.0, "sync_action": "recover", "sync_done": 0.25}


@pytest.mark.parametrize(
    ("array", "before", "after", "expected"),
    [
        (REBUILDING, STARTED, {"at": 110.0, "sync_action": "recover", "sync_done": 0.75}, (0.5, 10.0)),
        (REBUILDING, STARTED, {"at": 140.0, "sync_action": "idle"}, (0.75, 40.0)),
        (REBUILDING, {"at": 100.0, "sync_action": "idle"}, {"at": 110.0, "sync_action": "idle"}, (None, None)),
        (REBUILDING, STARTED, {}, (None, None)),
        (DEGRADED, STARTED, {"at": 110.0, "sync_action": "recover", "sync_done": 0.75}, (None, None)),
    ],
)
def test_the_rebuilt_share_is_that_of_a_requested_rebuild(
    array: ArraySetup, before: dict[str, Any], after: dict[str, Any], expected: tuple[float | None, float | None]
) -> None:
    plan = hand_plan()
    requested = Setup(devices=3, parts={"array": array.model_dump()}).model_dump()
    record = a_record(plan, plan.runs[0]).model_copy(
        update={"setup": {"requested": requested}, "parts": {"array": {"before": before, "after": after}}}
    )
    found = values(record, RUNS.columns)
    assert (found["rebuild_share"], found["rebuild_share_seconds"]) == expected


RAID_5 = {"devices": [{"name": "md127", "kind": "md", "md_level": "raid5", "under": ["nvme0n1"]}]}


def evidence(**percent: int) -> dict[str, Any]:
    """CPU time of kernel threads as percent of one core."""
    threads = [{"name": name, "threads": 1, "cpu_ns": cpu, "busiest_cpu_ns": cpu} for name, cpu in percent.items()]
    return {"kernel": {"wall_ns": 100, "threads": threads}}


STALLED = evidence(**{"md127_raid5": 97, "kworker-raid5wq": 150, "md126_raid1": 99, "kworker-kblockd": 1})


def test_the_threads_of_an_array_are_named_and_those_of_others_are_not() -> None:
    found = from_evidence(RAID_5, STALLED)
    assert found == {"array_thread": "md127_raid5", "array_thread_share": 0.97, "array_cpu_ns": 247}
    [warning] = thread_warnings(RAID_5, STALLED)
    assert (warning.code, warning.message) == ("array_thread_saturated", "`md127_raid5` used 97 % of one core")
    for target, given in (
        (RAID_5, evidence(md127_raid5=94)),
        ({"devices": [{"name": "nvme0n1"}]}, STALLED),
        (RAID_5, {}),
    ):
        assert list(thread_warnings(target, given)) == []
    threads = evidence(**{"kworker-btrfs-endio": 40, "btrfs-transaction": 10, "kworker-events": 90})
    found = from_evidence({"file_system": {"kind": "btrfs"}}, threads)
    assert (found["array_thread"], found["array_thread_share"], found["array_cpu_ns"]) == ("btrfs-transaction", 0.1, 50)
