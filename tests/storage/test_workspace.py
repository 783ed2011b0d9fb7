"""Files and directories of a plan: created, found again, checked before each run, and removed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from loop_stacks import Loops

from iosonde.errors import TargetError
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.storage import open_target, prepare, restore
from iosonde.storage.safety import journal
from iosonde.storage.targets.workspace import provision, purge

STUDY = """
name = "x"
title = "X"
question = "?"
measurement = { span = "1MiB", jobs = 2, block_size = "4KiB" }
[[parts]]
factors.queue_depth = [1, 2]
[profiles.standard]
"""


def plan_on(target: Path, **options: object) -> Plan:
    return expand(parse(STUDY), open_target(str(target)), **options)  # type: ignore[arg-type]


def test_a_directory_is_created_for_its_user_alone_and_removed_with_the_files_in_it(tmp_path: Path) -> None:
    """D9, with any umask."""
    before = os.umask(0)
    try:
        plan = plan_on(tmp_path, settings={"files": "per_job"})
        prepare(plan)
        provision(plan.runs[0].spec)
    finally:
        os.umask(before)
    (own,) = tmp_path.iterdir()
    assert str(own) == plan.runs[0].spec["workload"]["target"]["directory"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own, own / "main.0")] == [0o700, 0o600]
    (own / "main.0").write_text("x")
    restore(plan)
    assert list(tmp_path.iterdir()) == []
    assert journal.entries() == []


def test_preparing_and_putting_back_may_be_repeated(tmp_path: Path) -> None:
    plan = plan_on(tmp_path)
    prepare(plan)
    (own,) = tmp_path.iterdir()
    provision(plan.runs[0].spec)
    (own / "data").write_text("laid out")
    prepare(plan)
    provision(plan.runs[0].spec)
    assert (own / "data").read_text() == "laid out"
    (own / "data").unlink()
    provision(plan.runs[0].spec)
    assert (own / "data").exists(), "what vanished is created again"
    restore(plan)
    restore(plan)
    assert list(tmp_path.iterdir()) == []
    prepare(plan)
    own.rmdir()
    restore(plan)
    assert journal.entries() == [], "a directory that vanished is forgotten"


def test_kept_files_remain_and_can_be_used_again(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    plan = plan_on(target, keep=True)
    prepare(plan)
    assert target.stat().st_size == 0
    target.write_bytes(b"x" * 4096)
    restore(plan)
    assert target.stat().st_size == 4096
    again = plan_on(target)
    prepare(again)
    assert target.stat().st_size == 4096
    restore(again)
    assert list(tmp_path.iterdir()) == [], "not kept this time"


def test_a_file_that_appeared_meanwhile_is_neither_used_nor_removed(tmp_path: Path) -> None:
    plan = plan_on(tmp_path / "new")
    (tmp_path / "new").write_text("precious")
    with pytest.raises(TargetError, match="iosonde did not create it"):
        prepare(plan)
    restore(plan)
    assert (tmp_path / "new").read_text() == "precious"


@pytest.mark.parametrize("kind", ["symlink", "hard link", "file", "second name", "directory"])
def test_files_that_changed_between_runs_are_refused_and_what_replaced_them_is_unchanged(
    tmp_path: Path, kind: str
) -> None:
    """D9: the engine overwrites, and a purge truncates, only what iosonde created."""
    target, victim = tmp_path / "target", tmp_path / "victim"
    target.mkdir()
    victim.mkdir()
    (victim / "data").write_text("precious")
    plan = plan_on(target)
    prepare(plan)
    spec = plan.runs[0].spec
    identities = provision(spec)
    (own,) = target.iterdir()
    data = own / "data"
    data.rename(own / "aside") if kind in ("symlink", "hard link", "file") else None
    match kind:
        case "symlink":
            data.symlink_to(victim / "data")
        case "hard link":
            data.hardlink_to(victim / "data")
        case "file":
            data.write_text("another")
        case "second name":
            (tmp_path / "link").hardlink_to(data)
            victim = own
        case "directory":
            own.rename(target / "aside")
            own.symlink_to(victim)
    with pytest.raises(TargetError, match=r"is not what iosonde created there|cannot use"):
        provision(spec)
    (own / "data").resolve().write_text("precious") if kind in ("file", "second name") else None
    with pytest.raises(OSError):
        purge(spec["workload"]["target"], "trim", identities=identities, report=print)
    assert (own / "data").read_text() == (victim / "data").read_text() == "precious"


def test_a_file_that_somebody_put_in_the_place_of_ours_is_neither_used_nor_removed(tmp_path: Path) -> None:
    plan = plan_on(tmp_path)
    prepare(plan)
    (own,) = tmp_path.iterdir()
    (own / "data").write_text("precious")
    with pytest.raises(TargetError, match="is not what iosonde created there"):
        provision(plan.runs[0].spec)
    with pytest.raises(TargetError, match="contains files that iosonde did not create and did not remove: `data`"):
        restore(plan)
    assert (own / "data").read_text() == "precious"


def test_a_run_gets_the_identity_of_all_that_it_opens_and_a_purge_frees_the_files_of_all_jobs_and_no_other(
    tmp_path: Path,
) -> None:
    plan = plan_on(tmp_path, settings={"files": "per_job"})
    prepare(plan)
    spec = plan.runs[0].spec
    identities = provision(spec)
    (own,) = tmp_path.iterdir()
    found = {str(path): path.lstat() for path in (own, own / "main.0", own / "main.1")}
    assert identities == {
        path: f"{os.major(each.st_dev)}:{os.minor(each.st_dev)}:{each.st_ino}" for path, each in found.items()
    }
    for name in ("main.0", "main.1", "theirs"):
        (own / name).write_text("data")
    purge(spec["workload"]["target"], "trim", identities=identities, report=print)
    assert [(own / name).stat().st_size for name in ("main.0", "main.1", "theirs")] == [0, 0, 4]


@pytest.mark.system
@pytest.mark.needs("loop devices")
def test_a_file_of_ours_that_somebody_attached_to_a_loop_device_is_refused(loops: Loops, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    plan = plan_on(tmp_path / "target")
    prepare(plan)
    provision(plan.runs[0].spec)
    (data,) = tmp_path.glob("target/*/data")
    os.truncate(data, 16 << 20)
    device = loops.attach(data)
    with pytest.raises(TargetError, match=f"is the backing file of the loop device `{device}`"):
        provision(plan.runs[0].spec)
    loops.close()
    restore(plan)
