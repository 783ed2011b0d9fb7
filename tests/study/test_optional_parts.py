"""Parts whose cases may be impossible on a machine: listed with the reason, instead of refusing the study."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iosonde.errors import IosondeError, TargetError
from iosonde.features.swap_areas import area
from iosonde.planning import Against, expand, load, parse
from iosonde.storage import open_target

CHECK_POSSIBLE = area.check_possible

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
name = "possible"

[[parts]]
name = "swapping"
optional = {optional}

[parts.factors]
swap = ["off", "target"]

[profiles.standard]
"""


@pytest.fixture(autouse=True)
def without_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise TargetError("no swap here", where="by the parameter `swap`", hint="get some")

    monkeypatch.setattr("iosonde.features.swap_areas.area.check_possible", refuse)


def test_an_impossible_case_of_an_optional_part_is_left_out_with_its_reason(tmp_path: Path) -> None:
    plan = expand(parse(STUDY.format(optional="true")), open_target(str(tmp_path)))
    assert [case.case_id for case in plan.cases] == ["possible", "swapping/swap=off"]
    [left_out] = plan.left_out
    assert (left_out.case_id, left_out.part) == ("swapping/swap=target", "swapping")
    assert (left_out.reason, left_out.hint) == ("no swap here", "get some")
    assert "`swapping/swap=target` is left out: no swap here" in plan.notes
    assert [run.run_id for run in plan.runs] == ["c0001-r1", "c0002-r1"] or len(plan.runs) == 2


def test_without_it_the_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no swap here"):
        expand(parse(STUDY.format(optional="false")), open_target(str(tmp_path)))


def test_a_study_without_any_possible_case_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = STUDY.format(optional="true").replace('[[parts]]\nname = "possible"\n', "").replace('"off", ', "")
    with pytest.raises(IosondeError, match="no swap here"):
        expand(parse(text), open_target(str(tmp_path)))


def test_each_reason_is_named_if_no_case_is_possible(tmp_path: Path) -> None:
    text = STUDY.format(optional="true").replace('name = "possible"', 'name = "large"\noptional = true', 1)
    text = text.replace('"off", ', "").replace('name = "large"', 'name = "large"\nmeasurement = { span = "1PiB" }')
    with pytest.raises(TargetError, match="the study `some` has no case that is possible here") as caught:
        expand(parse(text), open_target(str(tmp_path)))
    lines = caught.value.where.splitlines()
    assert lines[0].startswith(f"in case `large`: no room on `{tmp_path}`: 1 PiB are needed")
    assert lines[1:] == ["  in case `swapping/swap=target`: no swap here"]
    assert caught.value.hint.startswith("make the span smaller")


def test_a_wrong_parameter_of_an_optional_part_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(IosondeError, match="span"):
        expand(parse(STUDY.format(optional="true")), open_target(str(tmp_path)), settings={"span": "nonsense"})


def test_a_comparison_leaves_out_what_is_impossible_on_either_target(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    against = Against(target=open_target(str(second)))
    plan = expand(parse(STUDY.format(optional="true")), open_target(str(first)), against=against)
    assert [case.case_id for case in plan.cases] == [
        *("a/possible", "a/swapping/swap=off"),
        *("b/possible", "b/swapping/swap=off"),
    ]
    assert [each.case_id for each in plan.left_out] == ["swapping/swap=target"]
    assert len({run.run_id for run in plan.runs}) == 4


@pytest.mark.parametrize(("name", "possible"), [("paging", {"device", "mapped", "reads"}), ("jo2024-swap", {"device"})])
def test_parts_without_swap_are_possible_without_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, possible: set[str]
) -> None:
    def refuse() -> None:
        raise TargetError("memory cannot be limited")

    monkeypatch.setattr("iosonde.features.swap_areas.area.check_possible", CHECK_POSSIBLE)
    monkeypatch.setattr("iosonde.storage.control_groups.control_group.hierarchy", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    plan = expand(load(name), open_target(str(tmp_path)), profile="quick")
    assert {case.part for case in plan.cases} == possible
    first = next(each for each in plan.left_out if "root" in each.reason)
    assert "leave out the cases with swap" in first.hint
