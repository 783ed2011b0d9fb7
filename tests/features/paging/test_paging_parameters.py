"""Parameters of paging, the spec they become, swap of a case, and studies whose parts have different workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import StudyError, TargetError
from iosonde.features.swap_areas import area, settings
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.control_groups import control_group
from iosonde.workload import named

pytestmark = pytest.mark.unit

MIB = 1 << 20
PAGING = named("paging")

STUDY = """
name = "mixed-workloads"
title = "Faults beside reads"
question = "What does the kernel add?"
workload = "paging"
repeats = 1

[measurement]
size = "64MiB"
swap = "target"
swap_size = "128MiB"

[[parts]]
name = "faults"
[parts.factors]
page_cluster = [0, 3]

[[parts]]
name = "reads"
workload = "block"
measurement = { span = "8MiB", read_fraction = 1.0 }

[profiles.quick]
measurement = { duration = "1s" }
parts.reads = { duration = "2s" }
"""


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": PAGING.build(parameters)}
    return PAGING.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every user who runs the tests, memory can be limited and swap can be used."""
    hierarchy = control_group.Hierarchy(directory=Path("/"), version=2)
    monkeypatch.setattr(control_group, "hierarchy", lambda: hierarchy)
    monkeypatch.setattr(area, "check_possible", lambda: None)
    monkeypatch.setattr(settings, "check_possible", lambda _: None)


@pytest.mark.parametrize(
    ("written", "kind", "shape"),
    [
        ("uniform", "uniform", {}),
        ("sequential", "sequential", {}),
        ("zipfian", "zipfian", {"theta": 0.99}),
        ("zipfian:1.2", "zipfian", {"theta": 1.2}),
        ("normal", "normal", {"deviation": 0.125}),
        ("normal:0.05", "normal", {"deviation": 0.05}),
    ],
)
def test_patterns_reach_the_engine_with_their_shape(tmp_path: Path, written: str, kind: str, shape: Any) -> None:
    assert spec(tmp_path, pattern=written)["streams"][0]["pattern"] == {"kind": kind, **shape}


@pytest.mark.parametrize("written", ["gauss", "uniform:1", "zipfian:0", "normal:x", "zipfian:1000"])
def test_other_patterns_are_refused(written: str) -> None:
    with pytest.raises(StudyError, match="pattern"):
        PAGING.read_value("pattern", written)


def test_overcommit_decides_the_memory_limit(tmp_path: Path) -> None:
    stream = PAGING.build({"size": "256MiB", "overcommit": 2})
    fitted = PAGING.fit({"main": stream}, open_target(str(tmp_path)), room_bytes=0)["main"]
    assert fitted.memory_limit == 128 * MIB
    assert PAGING.buffer_bytes({"main": fitted}) == 128 * MIB


def test_a_limit_that_leaves_no_room_for_the_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="too small") as raised:
        spec(tmp_path, size="64MiB", overcommit=4)
    assert "overcommit" in raised.value.where


def test_without_root_the_error_names_what_cannot_be_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> control_group.Hierarchy:
        raise TargetError("memory cannot be limited", hint="run as root")

    monkeypatch.setattr(control_group, "hierarchy", refused)
    with pytest.raises(TargetError, match="memory cannot be limited"):
        spec(tmp_path, memory_limit="128MiB")
    assert spec(tmp_path)["target"] == {"kind": "virtual", "size_bytes": 256 * MIB}


def test_a_mapped_file_is_the_one_that_block_io_reads(tmp_path: Path) -> None:
    mapped = spec(tmp_path, mapping="file", size="16MiB", advice="random")
    assert mapped["target"]["kind"] == "file"
    assert Path(mapped["target"]["path"]).name == "data"
    assert (mapped["advice"], mapped["page_cache"]) == ("random", "drop")
    stream = PAGING.build({"mapping": "file", "size": "16MiB"})
    assert PAGING.files({"main": stream}) == {"data": 16 * MIB}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"mapping": "file", "read_fraction": 0.5}, "only read"),
        ({"mapping": "file", "huge_pages": True}, "anonymous memory"),
        ({"page_cache": "warm"}, "page_cache"),
        ({"memory_limit": "1GiB", "overcommit": 2}, "set one of them"),
        ({"duration": "none"}, "never end"),
        ({"limit_operations": 1, "jobs": 2}, "less than one"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        PAGING.build(parameters)


def test_simulated_devices_have_no_pages() -> None:
    with pytest.raises(TargetError, match="real directory or device"):
        PAGING.fit({"main": PAGING.build({})}, open_target("null:1GiB"), room_bytes=0)


def test_parts_with_another_workload_have_parameters_of_their_own(tmp_path: Path) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick")
    kinds = {run.case_id: run.spec["workload"]["kind"] for run in plan.runs}
    assert kinds == {"faults/page_cluster=0": "paging", "faults/page_cluster=3": "paging", "reads": "block"}
    durations = {run.case_id: run.spec["workload"]["duration_ns"] for run in plan.runs}
    assert durations == {"faults/page_cluster=0": 10**9, "faults/page_cluster=3": 10**9, "reads": 2 * 10**9}
    cases = {case.case_id: case.parameters for case in plan.cases}
    assert cases["faults/page_cluster=3"]["swap"] == "target"
    assert cases["faults/page_cluster=3"]["page_cluster"] == 3
    assert "swap" not in cases["reads"]


def test_a_setting_reaches_the_parts_that_have_the_parameter(tmp_path: Path) -> None:
    settings = {"size": "32MiB", "span": "4MiB", "duration": "3s"}
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings=settings)
    workloads = {run.case_id: run.spec["workload"] for run in plan.runs}
    assert workloads["faults/page_cluster=0"]["target"]["size_bytes"] == 32 * MIB
    assert workloads["reads"]["target"]["size_bytes"] == 4 * MIB
    assert {each["duration_ns"] for each in workloads.values()} == {3 * 10**9}


def test_a_parameter_of_the_studys_workload_is_unknown_in_a_part_with_another() -> None:
    with pytest.raises(StudyError, match="no parameter `pattern`"):
        parse(STUDY.replace('span = "8MiB"', 'span = "8MiB", pattern = "uniform"'))


def test_the_plan_names_the_swap_file_and_refuses_one_without_room(tmp_path: Path) -> None:
    plan = expand(parse(STUDY), open_target(str(tmp_path)), profile="quick")
    assert any("creates a swap file of 128 MiB" in each.what for each in plan.destroys)
    with pytest.raises(TargetError, match="no room for a swap area") as raised:
        expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings={"swap_size": "1000000GiB"})
    assert "swap_size" in raised.value.where


def test_swap_needs_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(TargetError, match="only root can") as raised:
        expand(parse(STUDY), open_target(str(tmp_path)), profile="quick", settings={"page_cluster": "0"})
    assert "faults" in raised.value.where


@pytest.mark.parametrize(
    ("name", "value"), [("swap", "tape"), ("swap_size", "4KiB"), ("page_cluster", 99), ("zswap", "maybe")]
)
def test_wrong_values_of_swap_are_refused(name: str, value: Any) -> None:
    from iosonde.study import setup

    with pytest.raises(StudyError, match=name):
        setup.read_value(name, value)


def test_a_question_about_faults_names_the_part_with_the_devices_reads() -> None:
    question = '\n[[analysis]]\nkind = "fault_overhead"\npart = "faults"\nover = "page_cluster"\n'
    parse(STUDY + question + 'device_part = "reads"\n')
    with pytest.raises(StudyError, match="no part"):
        parse(STUDY + question)
