"""Plans of A/B comparisons within one session."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.errors import StudyError, TargetError
from iosonde.plan import Plan
from iosonde.planning import Against, expand, load
from iosonde.storage import open_target


def pair(first: str, second: str | None = None, *, study: str = "quick", **settings: str) -> Plan:
    against = Against(target=open_target(second) if second else None, settings=settings)
    return expand(load(study), open_target(first), profile="quick", repeats=4, against=against)


def test_every_pair_is_adjacent_and_its_order_is_random_and_follows_from_the_seed() -> None:
    plan, again = pair("sim:p900", "sim:sp900"), pair("sim:p900", "sim:sp900")
    pairs = [(first, second) for first, second in zip(plan.runs[::2], plan.runs[1::2], strict=True)]
    assert all(first.case_id[2:] == second.case_id[2:] and first.repeat == second.repeat for first, second in pairs)
    assert all({first.case_id[0], second.case_id[0]} == {"a", "b"} for first, second in pairs)
    measured = [first.case_id[0] for first, _ in pairs if not first.case_id.endswith("control")]
    assert 0.25 < measured.count("a") / len(measured) < 0.75
    assert [run.run_id for run in plan.runs] == [run.run_id for run in again.runs]
    runs = [run for run in plan.runs if "control" not in run.case_id]
    first, second = ([run.case_id[2:] for run in runs if run.repeat == repeat] for repeat in (1, 2))
    assert first != second


def test_an_arm_by_itself_is_an_ordinary_plan() -> None:
    plan = pair("sim:p900", "sim:sp900")
    alone = expand(load("quick"), open_target("sim:sp900"), profile="quick", repeats=4)
    arm = plan.of_arm("b")
    assert [case.case_id for case in arm.cases] == [case.case_id for case in alone.cases]
    assert [case.parameters for case in arm.cases] == [case.parameters for case in alone.cases]
    assert (arm.target, arm.arms, len(arm.runs)) == ("sim:sp900", [], len(plan.runs) // 2)


def test_two_settings_of_one_directory_share_its_files(tmp_path: Path) -> None:
    plan = pair(str(tmp_path), io_mode="buffered")
    assert len(plan.by_target()) == 1
    assert len({run.spec["workload"]["target"]["path"] for run in plan.runs}) == 1
    modes = {run.case_id[0]: run.spec["workload"]["streams"][0]["io_mode"] for run in plan.runs}
    assert modes == {"a": "direct", "b": "buffered"}
    assert [arm.label for arm in plan.arms] == ["a: io_mode=direct", "b: io_mode=buffered"]


def test_two_file_systems_on_one_directory_are_created_for_every_run(tmp_path: Path) -> None:
    ours, theirs = {"file_system": "ext4", "setup_size": "600MiB"}, Against(settings={"file_system": "xfs"})
    plan = expand(load("quick"), open_target(str(tmp_path)), profile="quick", repeats=1, settings=ours, against=theirs)
    setups = {case.arm: case.setup for case in plan.cases if case.setup}
    assert (setups["a"].file_system, setups["b"].file_system) == ("ext4", "xfs")
    assert {setup.fresh for setup in setups.values()} == {"run"}


def test_a_factor_takes_one_level_in_each_arm(tmp_path: Path) -> None:
    ours, theirs = {"queue_depth": "4"}, Against(settings={"queue_depth": "16"})
    plan = expand(load("quick"), open_target(str(tmp_path)), profile="quick", settings=ours, against=theirs)
    first, second = plan.of_arm("a").cases, plan.of_arm("b").cases
    assert [case.case_id for case in first] == [case.case_id for case in second]
    assert {case.parameters["queue_depth"] for case in second if case.part == "random"} == {16}


def test_arms_that_cannot_be_interleaved_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="must have the same cases"):
        pair("sim:p900", queue_depth="8")
    with pytest.raises(TargetError, match="one is simulated"):
        pair(str(tmp_path), "sim:p900")
    with pytest.raises(StudyError, match="cannot be interleaved"):
        pair("sim:p900", "sim:sp900", study="snia-iops")
