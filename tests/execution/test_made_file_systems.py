"""File systems and raw devices created in a directory: what is created and recorded, and that it is removed.

They are real: loop devices, mkfs, mounts.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leftovers import clean, leftovers, nothing_left, resumed_and_killed
from needs import BTRFS, XFS

from iosonde.errors import IosondeError, TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.lab.bound_process import end, start_bound
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target, tools
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal

MIB = 1 << 20

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices"), XFS, BTRFS]

STUDY = """
name = "made"
title = "On what is made"
question = "?"
repeats = 2
[measurement]
span = "8MiB"
block_size = "64KiB"
access = "sequential"
queue_depth = 4
ramp = 0
duration = "20ms"
interval = "100ms"
setup_size = "{size}"
[[parts]]
[parts.factors]
read_fraction = [1.0, 0.0]
[profiles.standard]
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with nothing_left(tmp_path / "data") as place:
        yield place


def planned(directory: Path, *, size: str = "64MiB", **settings: str) -> Plan:
    return expand(parse(STUDY.replace("{size}", size)), open_target(str(directory)), settings=settings)


def in_order(result_set: ResultSet) -> list[Record]:
    return sorted(result_set.records(), key=lambda record: record.order)


@pytest.mark.parametrize(
    ("settings", "size", "commands"),
    [
        ({"file_system": "none"}, "64MiB", []),
        (
            {"file_system": "ext4", "journal": "off", "mount_options": "noatime"},
            "64MiB",
            [["^has_journal", "/dev/loop"], ["noatime", "/mounted"]],
        ),
        (
            {"file_system": "ext4", "journal": "external"},
            "64MiB",
            [["journal_dev", "/dev/loop"], ["-J", "/dev/loop"], ["mount", "/mounted"]],
        ),
        ({"file_system": "xfs"}, "320MiB", [["mkfs.xfs", "/dev/loop"], ["mount", "/mounted"]]),
        ({"file_system": "btrfs"}, "256MiB", [["mkfs.btrfs", "/dev/loop"], ["mount", "/mounted"]]),
    ],
    ids=["raw", "ext4 without journal", "ext4 with its journal apart", "xfs", "btrfs"],
)
def test_a_file_system_is_created_mounted_measured_and_removed(
    directory: Path, tmp_path: Path, settings: dict[str, str], size: str, commands: list[list[str]]
) -> None:
    features: list[str] = []

    class LooksAtFeatures(Observer):
        def run_ended(self, run: Any, record: Record) -> None:
            if settings["file_system"] == "ext4":
                tool = tools.require("dumpe2fs", "look at a file system")
                asked = [tool, "-h", record.setup["devices"][0]["device"]]
                features.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)

    plan = planned(directory, size=size, span="100%", limit_bytes="1MiB", **settings)
    result_set = execute(plan, tmp_path / "set", observer=LooksAtFeatures())
    records = in_order(result_set)
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 4
    for record in records:
        assert record.setup["requested"]["file_system"] == settings["file_system"]
        assert record.setup["target"]["name"] == str(directory)
        if settings["file_system"] == "none":
            assert record.spec["workload"]["target"]["kind"] == "device"
            assert (record.target["devices"][0]["kind"], record.target["size_bytes"]) == ("loop", 64 * MIB)
        else:
            assert record.target["file_system"]["kind"] == settings["file_system"]
        done = [step["command"] for step in record.setup["steps"]]
        assert len(done) == len(commands)
        for words, expected in zip(done, commands, strict=True):
            assert expected[0] in words and expected[1] in words[-1]
        if "mount_options" in settings:
            assert "noatime" in record.target["file_system"]["options"]
    if settings["file_system"] == "none":
        # A device has no holes to ask for: what the first run has written is not written again.
        written = [record.result["layout"]["written_bytes"] for record in records if record.result]
        assert written == [64 * MIB, 0, 0, 0]
    assert len({record.setup["created_at"] for record in records}) == 1
    assert [("has_journal" in text) for text in features] == ["external" in settings.values()] * len(features)
    numbers = [device["device"].removeprefix("/dev/loop") for device in records[0].setup["devices"]]
    watched = records[0].spec["observe"]["block_devices"]
    assert {f"7:{number}" for number in numbers} <= set(watched) and watched[0] == f"7:{numbers[0]}"
    usage = result_set.sql("SELECT DISTINCT device FROM usage WHERE device <> 'process'")["device"].to_list()
    assert set(usage) == set(watched)


def test_nothing_is_written_below_a_mount_point_whose_file_system_was_unmounted(
    directory: Path, tmp_path: Path
) -> None:
    plan = planned(directory, file_system="ext4")
    point = journal.MOUNTS / plan.created_name / "mounted"

    class Unmounts(Observer):
        def run_ended(self, run: Any, record: Record) -> None:
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
            if run.run_id.endswith("r2") and point.is_dir():  # Without its directory, too.
                point.rmdir()

    first, *others = in_order(execute(plan, tmp_path / "set", observer=Unmounts()))
    assert first.outcome == "complete"
    for record in others:
        assert record.failure and "is not mounted there any more" in record.failure.message
    assert not point.exists()


@pytest.mark.parametrize(("fresh", "made"), [("case", 2), ("run", 4)])
def test_a_file_system_is_created_as_often_as_the_study_requires(
    directory: Path, tmp_path: Path, fresh: str, made: int
) -> None:
    records = execute(planned(directory, fresh=fresh), tmp_path / "set").records()
    assert len({record.setup["created_for"] for record in records}) == made


def test_raw_and_file_systems_follow_each_other_in_one_study(directory: Path, tmp_path: Path) -> None:
    """A process that the lab starts in between keeps no copy of the mount, which is unmounted."""
    text = STUDY.replace("{size}", "64MiB").replace(
        "read_fraction =", 'file_system = ["ext4", "none"]\nread_fraction ='
    )
    bound: list[subprocess.Popen[bytes]] = []

    class StartsAProcessOfTheLab(Observer):
        def event(self, *_: Any) -> None:
            if not bound:
                bound.append(start_bound("echo && exec cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                assert bound[0].stdout and bound[0].stdout.readline() == b"\n"

    plan = expand(parse(text), open_target(str(directory)))
    try:
        records = in_order(execute(plan, tmp_path / "set", observer=StartsAProcessOfTheLab()))
        assert bound[0].poll() is None
    finally:
        end(bound[0])
    kinds = [record.spec["workload"]["target"]["kind"] for record in records]
    assert sorted(kinds[:4]) == [kinds[0]] * 4 and sorted(kinds[4:]) == [kinds[4]] * 4 and kinds[0] != kinds[4]
    assert {record.outcome for record in records} == {"complete"}


def test_refused_mount_options_give_a_failed_record_with_the_kernel_message(directory: Path, tmp_path: Path) -> None:
    records = execute(planned(directory, file_system="ext4", mount_options="nosuchoption"), tmp_path / "set").records()
    assert {record.outcome for record in records} == {"failed"}
    failure = records[0].failure
    assert failure and failure.code == "setup" and "nosuchoption" in failure.message


def test_the_plan_lists_what_is_created_and_refuses_what_does_not_fit(directory: Path) -> None:
    plan = planned(directory, file_system="ext4", journal="external")
    (made,) = plan.destroys
    assert made.path == f"{directory}/{plan.created_name}-setup"
    assert made.what == (
        "creates a directory with a file of 64 MiB and one of 8 MiB for the journal, on loop devices, and removes it at "
        "the end"
    )
    for settings, message in (({"setup_size": "500TiB"}, "no room in"), ({"span": "63MiB"}, "there will be")):
        with pytest.raises(IosondeError, match=message):
            planned(directory, file_system="ext4", **settings)
    with pytest.raises(TargetError, match="cannot be kept"):
        study = parse(STUDY.replace("{size}", "64MiB"))
        expand(study, open_target(str(directory)), settings={"file_system": "ext4"}, keep=True)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 20))])
def test_after_a_kill_at_any_moment_cleanup_removes_everything(directory: Path, tmp_path: Path, seed: int) -> None:
    plan = planned(directory, fresh="run", file_system="ext4", journal="external")
    chance = random.Random(seed)
    result_set = ResultSet.create(tmp_path / "set", plan)
    for attempt in range(2):
        resumed_and_killed(result_set.directory, directory, after_s=chance.uniform(0, 0.25))
        if attempt == 0:  # Otherwise the next session finds it, and must get along with it.
            clean(directory)
    ended = resume(result_set.directory, retry_failed=True)
    assert {record.outcome for record in ended.records()} == {"complete"}
    # Control groups of killed sessions stay until `iosonde cleanup`; everything else is gone.
    assert [path for path in leftovers(directory) if not path.startswith("/sys/fs/cgroup/")] == []
    clean(directory)


def test_files_of_others_in_the_directory_of_images_prevent_its_removal(directory: Path, tmp_path: Path) -> None:
    plan = planned(directory, file_system="ext4")

    class PutsAFile(Observer):
        def run_ended(self, run: Any, record: Record) -> None:
            (directory / f"{plan.created_name}-setup" / "mine").mkdir(exist_ok=True)

    with pytest.raises(TargetError, match="cannot remove one device, ext4"):
        execute(plan, tmp_path / "set", observer=PutsAFile())
    (mine,) = directory.glob("*/mine")
    mine.rmdir()
    journal.clear(plan.created_name)


@contextlib.contextmanager
def container(plan: Plan, script: str) -> Iterator[tuple[Observer, list[subprocess.Popen[bytes]]]]:
    """An observer that starts a shell in a mount namespace of its own during the first run; it ends with the block.

    The namespace has a copy of the mount, `$1`.
    """
    started: list[subprocess.Popen[bytes]] = []

    class StartsIt(Observer):
        def event(self, *_: Any) -> None:
            if not started:
                [point] = [each.point for each in mounts() if f"/{plan.created_name}/" in each.point]
                command = ["unshare", "--mount", "sh", "-c", f"{script}; echo && read line", "sh", point]
                started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                assert started[0].stdout and started[0].stdout.readline() == b"\n"

    try:
        yield StartsIt(), started
    finally:
        started[0].communicate(b"\n")


@pytest.mark.parametrize(
    ("file_system", "script"),
    [
        ("ext4", "true"),
        ("btrfs", "true"),
        ("ext4", 'mount --rbind / /mnt && umount "$1" && exec chroot /mnt sh -c "echo && read line"'),
    ],
    ids=["ext4", "btrfs", "in another root"],
)
def test_the_copy_of_a_mount_in_another_namespace_is_unmounted_too(
    directory: Path, tmp_path: Path, file_system: str, script: str
) -> None:
    """A container or service started during a run has one: the next cases failed because their device was in use."""
    plan = planned(directory, size="256MiB", file_system=file_system)
    with container(plan, script) as (starts_it, _):
        records = execute(plan, tmp_path / "set", observer=starts_it).records()
    assert {record.outcome for record in records} == {"complete"}
    assert leftovers(directory) == []


def test_a_mount_in_use_in_another_namespace_is_named_as_the_reason(directory: Path, tmp_path: Path) -> None:
    """Once the namespace has ended, cleanup succeeds."""
    plan = planned(directory, size="256MiB", file_system="btrfs")
    where = r"mounted at `/run/iosonde/.*` in the mount namespace of process"
    with container(plan, 'cd "$1"') as (starts_it, started):
        with pytest.raises(TargetError, match=where) as caught:
            execute(plan, tmp_path / "set", observer=starts_it)
        assert f"process {started[0].pid}" in str(caught.value)
    journal.clear(plan.created_name)
