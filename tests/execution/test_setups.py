"""Arrays of simulated drives, made and replaced between the runs of a study: what each run finds, and what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_sustained import StopAfter

from iosonde.execution import Interrupted, execute, resume
from iosonde.features.simulated_drives.state import DIRECTORY, DriveState
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

MIB = 1 << 20

STUDY = """
name = "arrays"
title = "Arrays"
question = "?"
repeats = 2
[measurement]
span = "8MiB"
block_size = "64KiB"
access = "sequential"
queue_depth = 8
ramp = 0
duration = "5ms"
interval = "100ms"
chunk = "64KiB"
[[parts]]
[parts.factors]
array = ["raid0", "raid5"]
read_fraction = [1.0, 0.0]
[profiles.standard]
"""


def planned(**settings: str) -> Plan:
    return expand(parse(STUDY), open_target("sim:pm963*4,capacity=1GiB"), settings=settings)


def in_order(result_set: ResultSet) -> list[Record]:
    return sorted(result_set.records(), key=lambda record: record.order)


def laid_out(result_set: ResultSet) -> list[int]:
    """MiB that each run had to write before it could begin: those on new drives."""
    return [record.result["layout"]["written_bytes"] // MIB for record in in_order(result_set) if record.result]


def test_each_setup_is_created_once_and_its_runs_share_the_drives(tmp_path: Path) -> None:
    result_set = execute(planned(), tmp_path / "set")
    assert laid_out(result_set) == [8, 0, 0, 0, 8, 0, 0, 0]
    for record in result_set.records():
        requested = record.setup["requested"]
        array = record.target["array"]
        assert (requested["parts"]["array"]["level"], requested["devices"]) == (record.levels["array"], 4)
        assert array == {"level": record.levels["array"], "drives": 4, "chunk_bytes": 65536}
        assert record.setup["target"]["name"] == "sim:pm963*4,raid=0,chunk=512KiB,capacity=1GiB"
        assert record.setup["simulated"] is True
    created_for = {record.setup["created_for"] for record in result_set.records()}
    assert created_for == {in_order(result_set)[0].run_id, in_order(result_set)[4].run_id}
    assert not (tmp_path / "set" / DIRECTORY).exists()


@pytest.mark.parametrize(("fresh", "expected"), [("case", [8, 0] * 2), ("run", [8] * 4)])
def test_fresh_setups_are_recreated(tmp_path: Path, fresh: str, expected: list[int]) -> None:
    result_set = execute(planned(fresh=fresh, array="raid0", devices="2"), tmp_path / "set")
    assert laid_out(result_set) == expected
    assert {len(record.target["devices"]) for record in result_set.records()} == {2}, "the first of the target"
    assert {len(record.setup["target"]["devices"]) for record in result_set.records()} == {4}


def test_a_resumed_study_finds_its_simulated_array_again(tmp_path: Path) -> None:
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        execute(planned(), tmp_path / "set", observer=StopAfter(2))
    result_set = resume(tmp_path / "set")
    assert laid_out(result_set) == [8, 0, 0, 0, 8, 0, 0, 0]
    assert [record.setup.get("kept_from_before", False) for record in in_order(result_set)] == [
        *[False, False, True, True],
        *[False] * 4,
    ]


def test_drives_of_another_setup_are_never_taken_for_these(tmp_path: Path) -> None:
    """As after a kill between two setups: the leftovers are of an array that the next run does not use."""
    plan = planned()
    result_set = ResultSet.create(tmp_path / "set", plan)
    state = DriveState(plan, result_set.directory)
    state.create()
    state.begin("another", is_fresh=False)
    (state.path / "state").write_bytes(b"not a state")
    assert laid_out(resume(tmp_path / "set")) == [8, 0, 0, 0, 8, 0, 0, 0]


def test_rounds_find_the_drives_that_were_prepared_for_them(tmp_path: Path) -> None:
    rounds = "\n[parts.rounds]\nmax_rounds = 2\nwindow = 2\nmin_length = 0\n[profiles"
    plan = expand(
        parse(STUDY.replace("\n[profiles", rounds)),
        open_target("sim:pm963*4,capacity=1GiB"),
        settings={"purge": "format", "read_fraction": "0.0", "precondition": "64KiB"},
        repeats=1,
    )
    records = in_order(execute(plan, tmp_path / "set"))
    assert [record.outcome for record in records] == ["complete"] * len(records)
    first: dict[str, str] = {}
    for record in records:
        first.setdefault(record.setup["requested"]["parts"]["array"]["level"], record.run_id)
        assert list(first.values())[-1] == record.setup["created_for"], "one array after the other"
    assert len(first) == 2
