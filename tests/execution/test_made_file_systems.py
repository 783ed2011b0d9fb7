"""File systems and raw devices created in a directory: what is created and recorded, and that it is removed.

They are real: loop devices, mkfs, mounts.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from leftovers import clean, leftovers, nothing_left, resumed_and_killed
from needs import BTRFS, XFS

from iosonde.errors import IosondeError, TargetError
from iosonde.execution import execute, resume
from iosonde.execution.observer import Silent
from iosonde.lab.bound_process import end, start_bound
from iosonde.plan import Plan
from iosonde.planning import Against, expand, parse
from iosonde.report.content import comparison
from iosonde.report.material.result_sets import gather
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target, tools
from iosonde.storage.safety import journal, journal_entry
from iosonde.storage.setups import file_systems

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


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with nothing_left(tmp_path / "data") as place:
        yield place


def planned(directory: Path, *, size: str = "64MiB", **settings: str) -> Plan:
    return expand(parse(STUDY.replace("{size}", size)), open_target(str(directory)), settings=settings)


def refusal(directory: Path, **settings: str) -> str:
    with pytest.raises(IosondeError) as caught:
        planned(directory, **settings)
    return str(caught.value)


def in_order(result_set: ResultSet) -> list[Record]:
    return sorted(result_set.records(), key=lambda record: record.order)


@pytest.mark.parametrize(
    ("settings", "size", "commands"),
    [
        ({"file_system": "ext4"}, "64MiB", [["mkfs.ext4", "/dev/loop"], ["mount", "/mounted"]]),
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
    ids=["ext4", "ext4 without journal", "ext4 with its journal apart", "xfs", "btrfs"],
)
def test_a_file_system_is_created_mounted_measured_and_removed(
    directory: Path, tmp_path: Path, settings: dict[str, str], size: str, commands: list[list[str]]
) -> None:
    result_set = execute(planned(directory, size=size, **settings), tmp_path / "set")
    records = result_set.records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 4
    for record in records:
        assert record.target["file_system"]["kind"] == settings["file_system"]
        assert record.setup["requested"]["file_system"] == settings["file_system"]
        assert record.setup["target"]["name"] == str(directory)
        assert record.setup["seconds"] > 0
        done = [step["command"] for step in record.setup["steps"]]
        assert len(done) == len(commands)
        for words, expected in zip(done, commands, strict=True):
            assert expected[0] in words and expected[1] in words[-1]
        if "mount_options" in settings:
            assert "noatime" in record.target["file_system"]["options"]
    assert len({record.setup["created_at"] for record in records}) == 1


def test_nothing_is_written_below_a_mount_point_whose_file_system_was_unmounted(
    directory: Path, tmp_path: Path
) -> None:
    plan = planned(directory, file_system="ext4")
    point = journal_entry.MOUNTS / plan.created_name / "mounted"

    class Unmounts(Silent):
        def run_ended(self, run: Any, record: Record) -> None:
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
            if run.run_id.endswith("r2") and point.is_dir():  # Without its directory, too.
                point.rmdir()

    result_set = execute(plan, tmp_path / "set", observer=Unmounts())
    first, *others = in_order(result_set)
    assert first.outcome == "complete"
    for record in others:
        assert record.failure and "is not mounted there any more" in record.failure.message
    assert not point.exists()


def test_the_observed_devices_are_those_that_were_created(directory: Path, tmp_path: Path) -> None:
    result_set = execute(planned(directory, file_system="ext4", journal="external"), tmp_path / "set")
    record = result_set.records()[0]
    numbers = [device["device"].removeprefix("/dev/loop") for device in record.setup["devices"]]
    watched = record.spec["observe"]["block_devices"]
    assert {f"7:{number}" for number in numbers} <= set(watched)
    assert watched[0] == f"7:{numbers[0]}"
    usage = result_set.sql("SELECT DISTINCT device FROM usage WHERE device <> 'process'")["device"].to_list()
    assert set(usage) == set(watched)


def test_a_file_system_has_a_journal_only_on_request(directory: Path, tmp_path: Path) -> None:
    for kind in ("on", "off"):
        looks = LooksAtFeatures()
        plan = planned(directory, file_system="ext4", journal=kind, read_fraction="1.0")
        execute(plan, tmp_path / kind, observer=looks)
        assert [("has_journal" in text) for text in looks.features] == [kind == "on"] * 2


class LooksAtFeatures:
    """Records the features of each file system while it is mounted."""

    def __init__(self) -> None:
        self.features: list[str] = []

    def run_started(self, *_: Any) -> None: ...

    def event(self, *_: Any) -> None: ...

    def note(self, text: str) -> None: ...

    def run_ended(self, run: Any, record: Record) -> None:
        tool = tools.require("dumpe2fs", "look at a file system")
        asked = [tool, "-h", record.setup["devices"][0]["device"]]
        self.features.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def test_without_a_file_system_the_device_is_measured_raw(directory: Path, tmp_path: Path) -> None:
    result_set = execute(planned(directory), tmp_path / "set")
    records = in_order(result_set)
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 4
    for record in records:
        assert record.spec["workload"]["target"]["kind"] == "device"
        assert record.target["devices"][0]["kind"] == "loop"
        assert record.target["size_bytes"] == 64 * MIB
    # A device has no holes to ask for: what the first run has written is not written again.
    written = [record.result["layout"]["written_bytes"] for record in records if record.result]
    assert written == [8 * MIB, 0, 0, 0]


@pytest.mark.parametrize(("kind", "means"), [("none", "overwrite"), ("ext4", "trim")])
def test_a_created_file_system_can_be_purged_for_rounds(directory: Path, tmp_path: Path, kind: str, means: str) -> None:
    text = STUDY.replace("{size}", "64MiB").replace(
        "[profiles", '[parts.rounds]\nmax_rounds = 2\nwindow = 2\nmin_length = "0"\n[profiles'
    )
    settings = {"purge": "strongest", "read_fraction": "0.0", "file_system": kind}
    plan = expand(parse(text), open_target(str(directory)), settings=settings, repeats=1)
    records = execute(plan, tmp_path / "set").records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 3
    assert {record.parameters["purge"] for record in records if record.part == "preparation"} == {means}


@pytest.mark.parametrize(("fresh", "made"), [("study", 1), ("case", 2), ("run", 4)])
def test_a_file_system_is_created_as_often_as_the_study_requires(
    directory: Path, tmp_path: Path, fresh: str, made: int
) -> None:
    records = execute(planned(directory, fresh=fresh), tmp_path / "set").records()
    assert len({record.setup["created_for"] for record in records}) == made


def test_raw_and_file_systems_follow_each_other_in_one_study(directory: Path, tmp_path: Path) -> None:
    text = STUDY.replace("{size}", "64MiB").replace(
        "read_fraction =", 'file_system = ["none", "ext4"]\nread_fraction ='
    )
    result_set = execute(expand(parse(text), open_target(str(directory))), tmp_path / "set")
    kinds = [record.spec["workload"]["target"]["kind"] for record in in_order(result_set)]
    assert sorted(kinds[:4]) == [kinds[0]] * 4 and sorted(kinds[4:]) == [kinds[4]] * 4 and kinds[0] != kinds[4]
    assert {record.outcome for record in result_set.records()} == {"complete"}


def test_the_planned_space_is_usable_on_the_file_system(directory: Path, tmp_path: Path) -> None:
    for kind, size in (("ext4", "64MiB"), ("xfs", "320MiB"), ("btrfs", "256MiB")):
        plan = planned(directory, size=size, file_system=kind, span="100%", limit_bytes="1MiB", read_fraction="0.0")
        records = execute(plan, tmp_path / kind).records()
        assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2


def test_refused_mount_options_give_a_failed_record_with_the_kernel_message(directory: Path, tmp_path: Path) -> None:
    records = execute(planned(directory, file_system="ext4", mount_options="nosuchoption"), tmp_path / "set").records()
    assert {record.outcome for record in records} == {"failed"}
    failure = records[0].failure
    assert failure and failure.code == "setup" and "nosuchoption" in failure.message


def test_an_image_that_does_not_fit_is_refused_before_anything_is_written(directory: Path) -> None:
    assert "no room in" in refusal(directory, file_system="ext4", setup_size="500TiB")
    assert "there will be" in refusal(directory, file_system="ext4", span="63MiB")


def test_an_array_on_files_requires_their_size(directory: Path) -> None:
    text = STUDY.replace('setup_size = "{size}"\n', "")
    with pytest.raises(TargetError, match="needs devices"):
        expand(parse(text), open_target(str(directory)), settings={"array": "raid0", "devices": "2"})


def test_a_missing_program_is_an_error_before_anything_is_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "find", lambda tool: None)
    with pytest.raises(TargetError) as caught:
        planned_anyway(directory)
    assert "`mkfs.ext4` is not installed" in str(caught.value)
    assert "apt install e2fsprogs" in str(caught.value)


def test_only_root_can_create_file_systems(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.chmod(0o777)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TargetError, match="only root can"):
        planned_anyway(directory)


def planned_anyway(directory: Path) -> Plan:
    study = parse(STUDY.replace("{size}", "64MiB"))
    return expand(study, open_target(str(directory)), settings={"file_system": "ext4"})


def test_a_kernel_without_the_file_system_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "is_known_to_kernel", lambda kind: False)
    with pytest.raises(TargetError, match="this kernel does not support ext4"):
        planned_anyway(directory)


def test_files_on_a_temporary_file_system_cannot_be_kept(directory: Path) -> None:
    study = parse(STUDY.replace("{size}", "64MiB"))
    with pytest.raises(TargetError, match="cannot be kept"):
        expand(study, open_target(str(directory)), settings={"file_system": "ext4"}, keep=True)


def test_the_plan_lists_what_is_created(directory: Path) -> None:
    plan = planned(directory, file_system="ext4", journal="external")
    (made,) = plan.destroys
    assert made.path == f"{directory}/{plan.created_name}-setup"
    assert made.what == (
        "creates a directory with a file of 64 MiB and one of 8 MiB for the journal, on loop devices, and removes it at "
        "the end"
    )
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("settings", [{"file_system": "ext4", "journal": "external"}, {}], ids=["ext4", "raw"])
def test_after_a_kill_at_any_moment_cleanup_removes_everything(
    directory: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    plan = planned(directory, fresh="run", **settings).model_copy(update={"repeats": 8})
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    result_set = ResultSet.create(tmp_path / "set", plan)
    for attempt in range(4):
        resumed_and_killed(result_set.directory, directory, after_s=chance.uniform(0, 0.25))
        if attempt % 2 == 0:  # Otherwise the next session finds it, and must get along with it.
            clean(directory)
    ended = resume(result_set.directory, retry_failed=True)
    assert {record.outcome for record in ended.records()} == {"complete"}
    # Control groups of killed sessions stay until `iosonde cleanup`; everything else is gone.
    assert [path for path in leftovers(directory) if not path.startswith("/sys/fs/cgroup/")] == []
    clean(directory)


def test_files_of_others_in_the_directory_of_images_prevent_its_removal(directory: Path, tmp_path: Path) -> None:
    """A foreign file in the directory of images stops the removal, and the file stays."""
    plan = planned(directory, file_system="ext4")

    class PutsAFile(Silent):
        def run_ended(self, run: Any, record: Record) -> None:
            (directory / f"{plan.created_name}-setup" / "mine").mkdir(exist_ok=True)

    with pytest.raises(TargetError, match="cannot remove one device, ext4"):
        execute(plan, tmp_path / "set", observer=PutsAFile())
    (mine,) = directory.glob("*/mine")
    mine.rmdir()
    journal.clear(plan.created_name)


def test_a_mount_in_another_namespace_is_named_as_the_reason(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container started during a run keeps a copy of the mount; after it has ended, cleanup succeeds."""
    monkeypatch.setattr(file_systems, "BUSY_S", 0.2)
    plan = planned(directory, file_system="ext4")
    copies: list[subprocess.Popen[bytes]] = []

    class StartsAContainer(Silent):
        def event(self, *_: Any) -> None:
            if not copies:
                copies.append(
                    subprocess.Popen(
                        ["unshare", "--mount", "sh", "-c", "echo && read line"],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                    )
                )
                assert copies[0].stdout and copies[0].stdout.readline() == b"\n"

    try:
        with pytest.raises(
            TargetError, match=r"mounted at `/run/iosonde/.*` in the mount namespace of process"
        ) as caught:
            execute(plan, tmp_path / "set", observer=StartsAContainer())
        assert f"process {copies[0].pid}" in str(caught.value)
    finally:
        copies[0].communicate(b"\n")
    journal.clear(plan.created_name)


def test_a_process_of_the_lab_keeps_no_copy_of_a_mount_of_a_study(directory: Path, tmp_path: Path) -> None:
    bound: list[subprocess.Popen[bytes]] = []

    class StartsIt(Silent):
        def event(self, *_: Any) -> None:
            if not bound:
                bound.append(start_bound("echo && exec cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE))
                assert bound[0].stdout and bound[0].stdout.readline() == b"\n"

    try:
        result_set = execute(planned(directory, file_system="ext4"), tmp_path / "set", observer=StartsIt())
        assert bound[0].poll() is None
    finally:
        end(bound[0])
    assert {(record.outcome, record.failure) for record in result_set.records()} == {("complete", None)}


def test_the_records_survive_as_json(directory: Path, tmp_path: Path) -> None:
    execute(planned(directory, file_system="ext4"), tmp_path / "set")
    (first, *_) = sorted((tmp_path / "set" / "records").glob("*/record.json"))
    assert json.loads(first.read_text())["setup"]["steps"][0]["command"][0] == "mkfs.ext4"
    shutil.rmtree(tmp_path / "set")


def test_two_file_systems_of_one_target_are_compared_in_one_session(directory: Path, tmp_path: Path) -> None:
    """ext4 and XFS, each created for every run, on loop devices over files of one directory."""
    against = Against(settings={"file_system": "xfs"})
    plan = expand(
        parse(STUDY.replace("{size}", "320MiB")),
        open_target(str(directory)),
        settings={"file_system": "ext4", "read_fraction": "1.0", "duration": "300ms"},
        against=against,
    )
    results = execute(plan, tmp_path / "set")
    assert [arm.label for arm in results.arms()] == ["a: file_system=ext4", "b: file_system=xfs"]
    records = in_order(results)
    kinds = [(record.arm, record.target["file_system"]["kind"]) for record in records]
    assert sorted(kinds) == [("a", "ext4")] * 2 + [("b", "xfs")] * 2, kinds
    assert {(record.outcome, record.failure) for record in records} == {("complete", None)}
    assert sorted(record.arm or "" for record in records[:2]) == ["a", "b"], "a pair is measured before the next"
    [material] = gather([results])
    assert comparison.pairs(material, metrics=("iops",))["repeats_baseline"].to_list() == [2]
