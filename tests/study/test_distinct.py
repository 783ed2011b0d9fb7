"""Cases that a simulated target cannot tell apart are measured once; a study that compares nothing else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.errors import TargetError
from iosonde.planning import Against, expand, load, parse
from iosonde.storage import open_target

DRIVE = "sim:p4800x,capacity=4GiB"
STUDY = """
name = "some"
title = "Some"
question = "?"
repeats = 1

[measurement]
span = "1MiB"
duration = "100ms"
interval = "100ms"

[[parts]]
name = "main"

[parts.factors]
io_mode = ["buffered", "direct"]
queue_depth = [1, 8]

[[analysis]]
kind = "asymmetry"
over = "io_mode"

{more}

[profiles.standard]
"""
SATURATION = """
[[analysis]]
kind = "saturation"
over = "queue_depth"
metric = "iops"
"""


@pytest.mark.parametrize("target", [DRIVE, "simulated:size=1GiB"])
@pytest.mark.parametrize("study", ["jo2024-driver", "kernel-tax"])
def test_a_comparison_of_backends_is_refused_where_none_is_used(study: str, target: str) -> None:
    with pytest.raises(TargetError, match=f"the study `{study}` compares levels of `interface`, which have no effect"):
        expand(load(study), open_target(target), profile="quick")


def test_cases_that_differ_in_the_hosts_path_only_are_measured_once_with_its_defaults() -> None:
    plan = expand(parse(STUDY.format(more=SATURATION)), open_target(DRIVE))
    direct = [f"main/io_mode=direct/queue_depth={depth}" for depth in (1, 8)]
    assert [case.case_id for case in plan.cases] == direct
    assert {run.case_id for run in plan.runs} == set(direct)
    assert [each.case_id for each in plan.left_out] == [each.replace("direct", "buffered") for each in direct]
    [note] = [each for each in plan.notes if "left out" in each]
    assert note == (
        f"`main/io_mode=buffered/queue_depth=1` and 1 other case are left out: `io_mode` has no effect on `{DRIVE}`: "
        "it is a model without the host's I/O path"
    )


def test_on_a_directory_they_all_are(tmp_path: Path) -> None:
    plan = expand(parse(STUDY.format(more="")), open_target(str(tmp_path)))
    assert (len(plan.cases), plan.left_out) == (4, [])


def test_a_study_whose_only_question_is_lost_is_refused() -> None:
    with pytest.raises(TargetError, match="compares levels of `io_mode`, which have no effect"):
        expand(parse(STUDY.format(more="")), open_target(DRIVE))


def test_one_level_of_such_a_factor_is_measured() -> None:
    plan = expand(parse(STUDY.format(more="")), open_target(DRIVE), settings={"io_mode": "buffered"})
    assert (len(plan.cases), plan.left_out) == (2, [])


def test_arms_that_differ_in_nothing_else_are_refused() -> None:
    study = parse(STUDY.format(more=SATURATION))
    settings = {"io_mode": "direct", "queue_depth": "1"}
    with pytest.raises(TargetError, match="`io_mode` has no effect"):
        expand(study, open_target(DRIVE), settings=settings, against=Against(settings={"io_mode": "buffered"}))
    plan = expand(study, open_target(DRIVE), settings=settings, against=Against(settings={"queue_depth": "8"}))
    assert len(plan.arms) == 2


def test_shipped_studies_with_other_questions_keep_them() -> None:
    plan = expand(load("han2021-raid"), open_target("sim:p900*8"), profile="quick")
    assert {case.parameters["io_mode"] for case in plan.cases} == {"direct"}
    assert plan.left_out
