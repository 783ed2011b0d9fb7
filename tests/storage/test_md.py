"""Linux md: the commands, the state that the kernel reports, and reasons to refuse. Real arrays are created in the lab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.plan import Setup
from iosonde.storage import journal, tools
from iosonde.storage.arrays import announce, md, mdstat, members

KIB, MIB = 1 << 10, 1 << 20

DEGRADED = """\
Personalities : [raid6] [raid5] [raid4] [raid1]
md126 : active raid1 sdb1[1] sda1[0]
      1046528 blocks super 1.2 [2/2] [UU]

md127 : active raid5 nvme3n1[4] nvme2n1[2](F) nvme1n1[1] nvme0n1[0]
      3139584 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/3] [UU_U]
      [=====>...............]  recovery = 27.4% (287232/1046528) finish=0.6min speed=20516K/sec

md0 : inactive sdc[0](S)
      1048576 blocks super 1.2

unused devices: <none>
"""


def test_mdstat_is_read_array_by_array() -> None:
    arrays = mdstat.parse(DEGRADED)
    assert arrays["md126"] == {
        "is_active": True,
        "level": "raid1",
        "members": {"sdb1": "", "sda1": ""},
        "status": "[2/2] [UU]",
    }
    degraded = arrays["md127"]
    assert degraded["members"] == {"nvme3n1": "", "nvme2n1": "(F)", "nvme1n1": "", "nvme0n1": ""}
    assert (degraded["status"], degraded["action"]) == ("[4/3] [UU_U]", "recovery")
    assert degraded["share_done"] == pytest.approx(0.274)
    assert degraded["bytes_per_second"] == 20516 * 1024
    assert not arrays["md0"]["is_active"]
    assert list(arrays) == ["md126", "md127", "md0"]


RECORDED = """\
Personalities : [raid0] [raid1] [raid10] [raid6] [raid5] [raid4]
md127 : active raid5 nvme3n1[4] nvme2n1[2] nvme1n1[1] nvme0n1[0]
      291840 blocks super 1.2 level 5, 64k chunk, algorithm 2 [4/3] [UUU_]
      [>....................]  recovery =  1.0% (1360/97280) finish=1.1min speed=1360K/sec

unused devices: <none>
"""
"""Linux 6.1, while a member of four is rebuilt."""


def test_a_recorded_rebuild_is_read() -> None:
    assert mdstat.parse(RECORDED) == {
        "md127": {
            "is_active": True,
            "level": "raid5",
            "members": {f"nvme{number}n1": "" for number in (3, 2, 1, 0)},
            "status": "[4/3] [UUU_]",
            "action": "recovery",
            "share_done": 0.01,
            "bytes_per_second": 1360 * 1024,
        }
    }


def test_nothing_is_read_from_an_mdstat_without_arrays() -> None:
    assert mdstat.parse("Personalities : \nunused devices: <none>\n") == {}


def sysfs(folder: Path, **files: str) -> Path:
    """A directory as the kernel shows an array in."""
    folder.mkdir()
    usual = {"level": "raid5", "raid_disks": "4", "chunk_size": "65536", "array_state": "active", "degraded": "0"}
    for name, text in {**usual, "sync_action": "idle", "sync_completed": "none", "sync_speed": "none", **files}.items():
        (folder / name).write_text(text + "\n")
    for number, state in enumerate(("in_sync", "in_sync", "in_sync", "in_sync")):
        member = folder / f"dev-nvme{number}n1"
        member.mkdir()
        (member / "state").write_text(state + "\n")
    return folder


def test_the_state_of_an_array_is_read_as_the_kernel_shows_it(tmp_path: Path) -> None:
    state = mdstat.state_of(sysfs(tmp_path / "md"))
    assert state == {
        "level": "raid5",
        "raid_disks": 4,
        "chunk_bytes": 64 * KIB,
        "array_state": "active",
        "degraded": 0,
        "sync_action": "idle",
        "members": {f"nvme{number}n1": "in_sync" for number in range(4)},
    }
    assert not mdstat.is_synchronising(state)


def test_a_rebuild_reports_progress(tmp_path: Path) -> None:
    folder = sysfs(
        tmp_path / "md", degraded="1", sync_action="recover", sync_completed="524288 / 2097152", sync_speed="20480"
    )
    state = mdstat.state_of(folder)
    assert (state["degraded"], state["sync_done"], state["sync_bytes_per_second"]) == (1, 0.25, 20 * MIB)
    assert mdstat.is_synchronising(state)


def test_an_array_that_is_gone_has_no_state(tmp_path: Path) -> None:
    assert mdstat.state_of(tmp_path / "nothing") == {}


DEVICES = [Path(f"/dev/nvme{number}n1") for number in range(4)]


def command(**setup: Any) -> str:
    asked = Setup(devices=4, chunk=64 * KIB, **setup)
    return " ".join(md.create_command(Path("/dev/md/iosonde-12345678"), DEVICES, asked))


def test_the_command_names_level_chunk_and_devices() -> None:
    assert command(array="raid5") == (
        "mdadm --create /dev/md/iosonde-12345678 --run --name=iosonde-12345678 --homehost=any --metadata=1.2 --level=5 "
        "--raid-devices=4 --chunk=64K --bitmap=none /dev/nvme0n1 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1"
    )


def test_mirrors_have_no_chunk_and_stripes_no_bitmap() -> None:
    assert "--chunk" not in command(array="raid1")
    assert "--bitmap" not in command(array="raid0")


def test_only_what_is_assumed_clean_is_not_synchronised() -> None:
    assert "--assume-clean" in command(array="raid6", array_state="clean")
    for state in ("synced", "degraded", "rebuilding"):
        assert "--assume-clean" not in command(array="raid6", array_state=state, failed_members=1)
    assert "--assume-clean" not in command(array="raid0", array_state="clean")


@pytest.mark.parametrize(
    ("level", "count", "expected"),
    [("raid5", 1, [3]), ("raid6", 2, [3, 2]), ("raid1", 3, [3, 2, 1]), ("raid10", 2, [3, 1])],
)
def test_members_fail_so_that_the_array_survives(level: str, count: int, expected: list[int]) -> None:
    setup = Setup(devices=4, array=level, array_state="degraded", failed_members=count)  # type: ignore[arg-type]
    assert members.failing(DEVICES, setup) == [DEVICES[number] for number in expected]


def test_without_mdadm_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools, "find", lambda tool: None)
    with pytest.raises(TargetError) as caught:
        md.check_possible()
    assert "`mdadm` is not installed" in caught.value.what
    assert "apt install mdadm" in caught.value.hint


def test_an_array_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TargetError) as caught:
        md.check_possible()
    assert "only root can make an array (md)" in caught.value.what


def test_an_array_of_that_name_is_never_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "iosonde-12345678"
    (tmp_path / "md").mkdir()
    (tmp_path / "md" / name).symlink_to(tmp_path / "md127")
    (tmp_path / "md127").touch()
    (tmp_path / "sys" / "md127").mkdir(parents=True)
    sysfs(tmp_path / "sys" / "md127" / "md")
    monkeypatch.setattr(md, "check_possible", lambda: None)
    monkeypatch.setattr(md, "NODES", tmp_path / "md")
    monkeypatch.setattr(md, "SYS", tmp_path / "sys")
    with pytest.raises(TargetError) as caught:
        md.build(DEVICES, Setup(devices=4, array="raid5"), name)
    assert f"there is an array `{tmp_path / 'md' / name}` already" in caught.value.what
    assert "mdadm --stop" in caught.value.hint
    assert journal.entries() == []


def test_a_superblock_of_another_name_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill the device may be somebody else's by now."""
    called: list[tuple[Any, ...]] = []
    device = tmp_path / "device"
    device.touch()
    announce(Path("/dev/md/iosonde-12345678"), "md", [device], name="iosonde-12345678")
    monkeypatch.setattr(md, "name_on", lambda member: "data")
    monkeypatch.setattr(md, "call", lambda *command: called.append(command))
    [entry] = journal.entries()
    journal.undo(Path(entry.path))
    assert called == []
    assert journal.entries() == []


def test_the_name_on_a_member_is_read_without_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "device"
    device.touch()
    monkeypatch.setattr(md, "find", lambda tool: "/sbin/mdadm")
    answer = {"output": "MD_LEVEL=raid5\nMD_DEVICES=4\nMD_NAME=any:iosonde-12345678\nMD_UUID=1:2:3:4"}
    assert md.name_on(device, run=lambda *command: answer) == "iosonde-12345678"

    def fails(*command: Any) -> dict[str, Any]:
        raise TargetError("no superblock")

    assert md.name_on(device, run=fails) == ""
