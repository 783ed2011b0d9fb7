"""Arrays over files in a directory: what is created, in which state, and that it is removed.

They are real btrfs arrays on loop devices, so they need root and btrfs-progs; arrays of md need a kernel that has them,
and are built in the lab (`tests/lab/test_md_for_real.py`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from leftovers import clean, nothing_left, resumed_and_killed
from loop_stacks import loop_devices
from needs import BTRFS

from iosonde.errors import TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.features.arrays import btrfs, setup
from iosonde.features.arrays import run as array_health
from iosonde.features.arrays.record import ArrayReading, MemberFailed
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target, tools
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.safety import journal

MIB = 1 << 20

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices"), BTRFS]

STUDY = """
name = "made"
title = "On what is made"
question = "?"
repeats = 1

[measurement]
span = "16MiB"
block_size = "64KiB"
access = "sequential"
read_fraction = 0.0
queue_depth = 4
ramp = 0
duration = "50ms"
interval = "100ms"
setup_size = "160MiB"
array_kind = "btrfs"

[[parts]]
[parts.factors]
array = [{levels}]

[profiles.standard]
"""


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with nothing_left(tmp_path / "data") as place:
        yield place


def planned(directory: Path, *levels: str, **settings: str) -> Plan:
    study = parse(STUDY.replace("{levels}", ", ".join(f'"{level}"' for level in levels)))
    return expand(study, open_target(str(directory)), settings=settings)


def records(plan: Plan, place: Path) -> dict[str, Record]:
    return {str(record.levels["array"]): record for record in execute(plan, place).records()}


def reading_of(record: Record) -> ArrayReading:
    found = record.of(ArrayReading)
    assert found
    return found


def test_every_level_is_created_measured_recorded_and_removed(directory: Path, tmp_path: Path) -> None:
    levels = ("raid0", "raid1", "raid10", "raid5", "raid6")
    found = records(planned(directory, *levels, devices="4"), tmp_path / "set")
    assert {level: record.outcome for level, record in found.items()} == dict.fromkeys(levels, "complete")
    for level, record in found.items():
        array = record.setup["array"]
        assert (array["kind"], array["profile"], len(array["members"])) == ("btrfs", level, 4)
        reading = reading_of(record)
        assert reading.before == reading.after | {"at": reading.before["at"]}
        assert reading.before["degraded"] == 0
        assert array["steps"][0]["command"][0] == "mkfs.btrfs"
        assert len(record.target["devices"]) >= 4
    assert ResultSet.open(tmp_path / "set").runs["members"].str.split(" ").list.len().to_list() == [4] * 5


def test_a_degraded_array_lacks_its_members_and_one_is_replaced_while_an_array_is_rebuilding(
    directory: Path, tmp_path: Path
) -> None:
    degraded = planned(directory, "raid1", "raid6", devices="4", array_state="degraded")
    for record in records(degraded, tmp_path / "degraded").values():
        assert record.outcome == "complete", record.failure
        assert len(record.setup["array"]["failed"]) == 1
        assert (reading_of(record).before["degraded"], reading_of(record).after["degraded"]) == (1, 1)
        assert array_health.MEMBER_FAILED not in [warning.code for warning in record.warnings]
    rebuilding = planned(directory, "raid5", devices="3", array_state="rebuilding", fresh="run")
    record = records(rebuilding, tmp_path / "rebuilding")["raid5"]
    assert record.outcome == "complete", record.failure
    assert record.setup["array"]["steps"][-1]["command"][:3] == ["btrfs", "replace", "start"]
    assert reading_of(record).after["sync_action"] in ("recover", "idle")


def test_unequal_devices_give_a_warning_and_the_smallest_counts(directory: Path) -> None:
    with loop_devices(directory, 160 * MIB, 192 * MIB) as devices:
        with pytest.raises(TargetError, match="a chunk of 160 MiB is too large for members of 160 MiB"):
            setup.check_members(devices, ArraySetup(level="raid0", chunk=160 * MIB))
        built = btrfs.build(devices, ArraySetup(level="raid0", kind="btrfs"), "iosonde-00000001")
        assert [btrfs.label_on(device) for device in devices] == ["iosonde-00000001"] * 2
        journal.undo(built.key)
        assert [tools.call("wipefs", device)["output"] for device in devices] == ["", ""]
        assert built.facts["unequal"] == {"smallest_bytes": 160 * MIB, "unused_bytes": 32 * MIB}
        reading = ArrayReading(before={}, after={})
        [warning] = array_health.warnings(reading, ArraySetup(level="raid0"), built.facts)
        assert warning.code == "unequal_members"
        assert "32 MiB of the others are unused" in warning.message


def test_a_device_that_carries_another_label_is_not_wiped(directory: Path) -> None:
    """A device of a killed iosonde may belong to another user when it is cleaned up."""
    with loop_devices(directory, 160 * MIB, 160 * MIB) as devices:
        built = btrfs.build(devices, ArraySetup(level="raid1", kind="btrfs"), "iosonde-00000002")
        tools.call("btrfs", "filesystem", "label", devices[0], "precious")
        journal.undo(built.key)
        assert tools.call("btrfs", "filesystem", "label", devices[0])["output"] == "precious"
        assert journal.entries() == []


def test_only_our_file_system_is_unmounted_where_the_user_has_mounted_it(directory: Path) -> None:
    """By hand, after a kill: over a file system of the user, then below another one."""
    point = directory / "point"
    point.mkdir()
    with loop_devices(directory, 160 * MIB, 160 * MIB) as devices:
        built = btrfs.build(devices, ArraySetup(level="raid1", kind="btrfs"), "iosonde-00000003")
        tools.call("mount", "-t", "tmpfs", "theirs", point)
        (point / "precious").touch()
        tools.call("mount", devices[0], point)
        tools.call("mount", "-t", "tmpfs", "theirs", point)
        with pytest.raises(OSError, match="`theirs` is mounted over it"):
            journal.undo(built.key)
        assert btrfs.label_on(devices[0]) == built.facts["name"]
        tools.call("umount", point)
        journal.undo(built.key)
        assert [tools.call("wipefs", device)["output"] for device in devices] == ["", ""]
        assert (point / "precious").exists()
        tools.call("umount", point)
    point.rmdir()


WHOLE, LOST = {"degraded": 0, "errors": 0, "raid_disks": 4}, {"degraded": 1, "errors": 0, "raid_disks": 4}
BEFORE = {"degraded": 0, "raid_disks": 2, "members": {"nvme0n1": "in_sync", "nvme1n1": "in_sync"}}
AFTER = {"degraded": 1, "raid_disks": 2, "members": {"nvme0n1": "in_sync", "nvme1n1": "faulty"}}
FAILED = "a member of the array failed during the run"
SEEN = MemberFailed(at=1.0, phase="measure", interval=4)


@pytest.mark.parametrize(
    ("before", "after", "seen", "code", "message"),
    [
        (WHOLE, LOST, None, "member_failed", f"{FAILED}: 1 of 4 are missing"),
        (WHOLE, {**WHOLE, "errors": 7}, None, "member_failed", "7 of its I/Os failed"),
        ({"sync_action": "recover"}, {"sync_action": "idle"}, None, "rebuild_ended", ""),
        (LOST, LOST, None, "member_missing", "before the run started: 1 of 4 members were missing"),
        ({**WHOLE, "errors": 9}, {**WHOLE, "errors": 9}, None, "member_missing", "9 I/Os of its members had"),
        (BEFORE, AFTER, SEEN, "member_failed", f"{FAILED}: `nvme1n1`; 1 of 2 are missing, first seen in interval 4"),
    ],
)
def test_failing_missing_and_failed_members_are_distinguished(
    before: dict[str, Any], after: dict[str, Any], seen: MemberFailed | None, code: str, message: str
) -> None:
    reading = ArrayReading(before=before, after=after, member_failed=seen)
    [warning] = array_health.warnings(reading, ArraySetup(level="raid6"), {})
    assert warning.code == code
    assert message in warning.message
    as_requested = ArraySetup(level="raid6", failed_members=1)
    assert list(array_health.warnings(ArrayReading(before=LOST, after=LOST), as_requested, {})) == []


class LosesAMember(Observer):
    """Fails a member's device when the first run measures: it shrinks to nothing, and every I/O is beyond its end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notes: list[str] = []

    def event(self, run: Any, event: dict[str, Any]) -> None:
        if event["event"] == "interval":
            for image in self.directory.glob("*-setup/device-1"):
                os.truncate(image, 0)
                for device in block_nodes.attached_to(image):
                    tools.call("losetup", "--set-capacity", device)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("question", ["continue", "stop"])
def test_a_member_that_fails_during_a_run_is_recorded_and_the_study_stops_or_continues(
    directory: Path, tmp_path: Path, question: str
) -> None:
    plan = planned(directory, "raid1", devices="2", duration="4s", durability="dsync")
    plan = plan.model_copy(update={"study": {**plan.study, "on_member_failure": question}})
    observer = LosesAMember(directory)
    if question == "stop":
        with pytest.raises(TargetError, match=r"a member of the array failed during the run.* stops on member failure"):
            execute(plan, tmp_path / "set", observer=observer)
    else:
        execute(plan, tmp_path / "set", observer=observer)
        assert any("the study continues" in note for note in observer.notes)
    [record] = ResultSet.open(tmp_path / "set").records()
    assert array_health.MEMBER_FAILED in [warning.code for warning in record.warnings]
    reading = reading_of(record)
    assert reading.after["errors"] > reading.before["errors"]
    assert reading.member_failed and reading.member_failed.phase == "measure"


def test_after_a_kill_at_any_moment_cleanup_removes_the_array_and_nothing_else(directory: Path, tmp_path: Path) -> None:
    plan = planned(directory, "raid1", "raid5", devices="3", fresh="run")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    result_set = ResultSet.create(tmp_path / "set", plan)
    bystander = tmp_path / "bystander"
    bystander.mkdir()
    with loop_devices(bystander, 160 * MIB) as [other]:
        tools.call("mkfs.btrfs", "-q", "-L", "precious", other)
        for attempt in range(3):
            resumed_and_killed(result_set.directory, directory, after_s=chance.uniform(0, 0.6))
            if attempt % 2 == 0:  # Otherwise the next session finds it, and must get along with it.
                clean(directory)
        assert tools.call("btrfs", "filesystem", "label", other)["output"] == "precious"
    ended = resume(result_set.directory, retry_failed=True)
    assert {record.outcome for record in ended.records()} == {"complete"}
