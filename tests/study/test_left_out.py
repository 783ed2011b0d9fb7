"""Cases that are left out with the reason: impossible on this machine, or without a difference on a simulated target."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

from iosonde.errors import IosondeError, TargetError
from iosonde.plan import Plan
from iosonde.planning import Against, expand, load, parse
from iosonde.storage import open_target

STUDY = """
name = "some"
title = "Some"
question = "?"
repeats = 1

[measurement]
span = "1MiB"
duration = "100ms"
interval = "100ms"

{parts}

[profiles.standard]
"""

POSSIBLE = '[[parts]]\nname = "possible"\n'
LARGE = '[[parts]]\nname = "large"\noptional = true\nfactors.span = ["1MiB", "1PiB"]\n'
"""No target has room for one of its cases."""


def planned(parts: str, target: Path | str, **options: Any) -> Plan:
    return expand(parse(STUDY.format(parts=parts)), open_target(str(target)), **options)


def test_an_impossible_case_of_an_optional_part_is_left_out_with_its_reason(tmp_path: Path) -> None:
    plan = planned(POSSIBLE + LARGE, tmp_path)
    assert [case.case_id for case in plan.cases] == ["possible", "large/span=1MiB"]
    assert len(plan.runs) == 2
    [left_out] = plan.left_out
    assert (left_out.case_id, left_out.part) == ("large/span=1PiB", "large")
    assert left_out.reason.startswith(f"no room on `{tmp_path}`: 1 PiB are needed")
    assert left_out.hint.startswith("make the span smaller")
    assert any(note.startswith("`large/span=1PiB` is left out: no room") for note in plan.notes)


def test_without_it_the_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no room"):
        planned(POSSIBLE + LARGE.replace("true", "false"), tmp_path)
    with pytest.raises(IosondeError, match="span"):
        planned(POSSIBLE + LARGE, tmp_path, settings={"span": "nonsense"})


def test_each_reason_is_named_if_no_case_is_possible(tmp_path: Path) -> None:
    only = LARGE.replace('"1MiB", ', "")
    with pytest.raises(IosondeError, match="no room"):
        planned(only, tmp_path)
    with pytest.raises(TargetError, match="the study `some` has no case that is possible here") as caught:
        planned(only + only.replace("large", "larger").replace("1PiB", "2PiB"), tmp_path)
    first, second = caught.value.where.splitlines()
    assert first.startswith(f"in case `large/span=1PiB`: no room on `{tmp_path}`: 1 PiB are needed")
    assert second.startswith("  in case `larger/span=2PiB`: no room on")
    assert caught.value.hint.startswith("make the span smaller")


@pytest.mark.engine
def test_a_case_whose_backend_is_missing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVMe commands need a namespace: on a directory its runs would only fail."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    passthrough = '[[parts]]\nname = "passthrough"\noptional = true\nfactors.backend = ["uring", "uring_nvme"]\n'
    plan = planned(POSSIBLE + passthrough, tmp_path)
    assert [case.case_id for case in plan.cases] == ["possible", "passthrough/backend=uring"]
    [left_out] = plan.left_out
    assert left_out.case_id == "passthrough/backend=uring_nvme"
    assert left_out.reason.startswith("backend `uring_nvme` is not available here: NVMe commands need a block device")
    required = planned(POSSIBLE + passthrough.replace("true", "false"), tmp_path)
    assert len(required.cases) == 3, "its runs are recorded as unsupported"


def test_a_comparison_leaves_out_what_is_impossible_on_either_target(tmp_path: Path) -> None:
    (first := tmp_path / "first").mkdir()
    (second := tmp_path / "second").mkdir()
    plan = planned(POSSIBLE + LARGE, first, against=Against(target=open_target(str(second))))
    assert [case.case_id for case in plan.cases] == [
        f"{arm}/{case}" for arm in "ab" for case in ("possible", "large/span=1MiB")
    ]
    assert [each.case_id for each in plan.left_out] == ["large/span=1PiB"]
    assert len({run.run_id for run in plan.runs}) == 4


@pytest.mark.system
@pytest.mark.needs("memcached")
@pytest.mark.parametrize(("name", "possible"), [("paging", {"device", "mapped", "reads"}), ("jo2024-swap", {"device"})])
def test_parts_without_swap_are_possible_without_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, possible: set[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    plan = expand(load(name), open_target(str(tmp_path)), profile="quick")
    assert {case.part for case in plan.cases} >= possible
    first = next(each for each in plan.left_out if "root" in each.reason)
    assert "leave out the cases with swap" in first.hint


# Simulated targets --------------------------------------------------------------------------------------------------

DRIVE = "sim:p4800x,capacity=4GiB"
COMPARED = """
[[parts]]
name = "main"

[parts.factors]
io_mode = ["buffered", "direct"]
queue_depth = [1, 8]

[[analysis]]
kind = "asymmetry"
over = "io_mode"
"""
SATURATION = """
[[analysis]]
kind = "saturation"
over = "queue_depth"
metric = "iops"
"""


@pytest.mark.parametrize(("study", "target"), [("jo2024-driver", DRIVE), ("kernel-tax", "simulated:size=1GiB")])
def test_a_comparison_of_backends_is_refused_where_none_is_used(study: str, target: str) -> None:
    with pytest.raises(TargetError, match=f"the study `{study}` compares levels of `interface`, which have no effect"):
        expand(load(study), open_target(target), profile="quick")


def test_cases_that_differ_in_the_hosts_path_only_are_measured_once_with_its_defaults(tmp_path: Path) -> None:
    plan = planned(COMPARED + SATURATION, DRIVE)
    direct = [f"main/io_mode=direct/queue_depth={depth}" for depth in (1, 8)]
    assert [case.case_id for case in plan.cases] == direct
    assert {run.case_id for run in plan.runs} == set(direct)
    assert [each.case_id for each in plan.left_out] == [each.replace("direct", "buffered") for each in direct]
    [note] = [each for each in plan.notes if "left out" in each]
    assert note.startswith(
        "`main/io_mode=buffered/queue_depth=1` and 1 other case are left out: `io_mode` has no effect"
    )
    in_files = planned(COMPARED, tmp_path)
    assert (len(in_files.cases), in_files.left_out) == (4, [])


def test_a_study_whose_only_question_is_lost_is_refused_unless_one_level_is_chosen() -> None:
    with pytest.raises(TargetError, match="compares levels of `io_mode`, which have no effect"):
        planned(COMPARED, DRIVE)
    plan = planned(COMPARED, DRIVE, settings={"io_mode": "buffered"})
    assert (len(plan.cases), plan.left_out) == (2, [])


def test_arms_that_differ_in_nothing_else_are_refused() -> None:
    settings = {"io_mode": "direct", "queue_depth": "1"}
    with pytest.raises(TargetError, match="`io_mode` has no effect"):
        planned(COMPARED + SATURATION, DRIVE, settings=settings, against=Against(settings={"io_mode": "buffered"}))
    plan = planned(COMPARED + SATURATION, DRIVE, settings=settings, against=Against(settings={"queue_depth": "8"}))
    assert len(plan.arms) == 2
