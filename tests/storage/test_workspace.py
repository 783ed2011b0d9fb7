"""What a plan needs on disk is made, found again, and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.errors import TargetError
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.storage import journal, open_target, prepare, put_back

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


def test_a_directory_is_made_for_the_runs_and_removed_with_their_files(tmp_path: Path) -> None:
    plan = plan_on(tmp_path, settings={"files": "per_job"})
    prepare(plan)
    (own,) = tmp_path.iterdir()
    assert str(own) == plan.runs[0].spec["workload"]["target"]["directory"]
    (own / "main.0").write_text("x")
    put_back(plan)
    assert list(tmp_path.iterdir()) == []
    assert journal.entries() == []


def test_a_file_target_is_made_empty_and_removed(tmp_path: Path) -> None:
    plan = plan_on(tmp_path / "new")
    prepare(plan)
    assert (tmp_path / "new").stat().st_size == 0
    put_back(plan)
    assert list(tmp_path.iterdir()) == []


def test_preparing_and_putting_back_may_be_repeated(tmp_path: Path) -> None:
    plan = plan_on(tmp_path)
    prepare(plan)
    (own,) = tmp_path.iterdir()
    (own / "data").write_text("laid out")
    prepare(plan)
    assert (own / "data").read_text() == "laid out"
    put_back(plan)
    put_back(plan)
    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_kept_stays_and_can_be_used_again(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    plan = plan_on(target, keep=True)
    prepare(plan)
    target.write_bytes(b"x" * 4096)
    put_back(plan)
    assert target.stat().st_size == 4096
    again = plan_on(target, keep=True)
    prepare(again)
    assert target.stat().st_size == 4096


def test_a_file_that_appeared_meanwhile_is_neither_used_nor_removed(tmp_path: Path) -> None:
    plan = plan_on(tmp_path / "new")
    (tmp_path / "new").write_text("precious")
    with pytest.raises(TargetError, match="iosonde did not make it"):
        prepare(plan)
    put_back(plan)
    assert (tmp_path / "new").read_text() == "precious"


def test_a_directory_that_vanished_is_forgotten(tmp_path: Path) -> None:
    plan = plan_on(tmp_path)
    prepare(plan)
    next(tmp_path.iterdir()).rmdir()
    put_back(plan)
    assert journal.entries() == []


def test_a_virtual_target_needs_nothing() -> None:
    plan = expand(parse(STUDY), open_target("null:1GiB"))
    prepare(plan)
    put_back(plan)
    assert journal.entries() == []
