"""Simulated drives: studies whose runs are decided by what was found, and arrays that are created between runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plans import sign
from test_sustained import StopAfter

from iosonde.execution.session import Interrupted, execute, resume
from iosonde.features.simulated_drives.storage import DIRECTORY, DriveState
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.planning.procedure import Schedule, conclusions, open_runs
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.results import ResultSet
from iosonde.results.schema import Failure, Record
from iosonde.storage import open_target

STUDY = """
name = "capacity"
title = "Capacity of a simulated device"
question = "How many reads a second within a millisecond, and how does latency grow on the way there?"
repeats = 2
measurement = { queue_depth = 512, arrival = "poisson", ramp = "100ms", duration = "500ms", interval = "500ms" }
[[parts]]
name = "capacity"
[parts.search]
over = "rate"
between = [4000, "20k"]
holds = "response_latency_ns_p99 <= 1ms"
agree = "all"
precision = 0.2
[[parts]]
name = "curve"
factors.load = [0.5, 1.0]
derived.rate = { part = "capacity" }
[profiles.quick]
"""


def plan_of(text: str = STUDY) -> Plan:
    return expand(parse(text), open_target("simulated:servers=1,read=100us,size=1TiB"), profile="quick")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    return execute(plan_of(), tmp_path_factory.mktemp("adaptive") / "set")


def search_of(results: ResultSet) -> SearchConclusion:
    found = conclusions(results)[0][1]
    assert isinstance(found, SearchConclusion)
    return found


def test_every_probe_is_a_record_and_a_case_and_rates_are_shares_of_what_was_found(whole: ResultSet) -> None:
    found = search_of(whole)
    assert found.reached and found.value is not None and found.fails_at is not None
    assert 5_000 < found.value < found.fails_at <= found.value * 1.2 < 10_000
    records = whole.records()
    assert [record.order for record in records] == list(range(len(records)))
    probes = [record for record in records if record.part == "capacity"]
    assert [record.run_id for record in probes[:2]] == ["c0001-p01-r1", "c0001-p01-r2"]
    assert [probe.case_id for probe in found.probes] == list(dict.fromkeys(record.case_id for record in probes))
    cases = whole.cases.filter(whole.cases["part"] == "capacity")
    assert cases["rate"].to_list() == sorted(probe.value for probe in found.probes)
    assert whole.problems == []
    assert open_runs(whole) == []
    curve = [record for record in records if record.part == "curve"]
    rates = {record.case_id: record.spec["workload"]["streams"][0]["arrival"]["rate"] for record in curve}
    assert rates == {"curve/load=0.5": found.value / 2, "curve/load=1": found.value}
    assert {record.case_id for record in curve[:2]} == {record.case_id for record in curve[2:]} == set(rates)


def test_a_study_stopped_anywhere_resumes_with_the_same_result(whole: ResultSet, tmp_path: Path) -> None:
    records = whole.records()
    for kept in (1, len(records) // 2, len(records) - 3):
        directory = tmp_path / str(kept)
        shutil.copytree(whole.directory, directory)
        for record in records[kept:]:
            shutil.rmtree(directory / "records" / record.run_id)
        pending = Schedule(ResultSet.open(directory)).next_run()
        assert pending and (pending.run_id, pending.order) == (records[kept].run_id, kept)
        assert pending.spec == records[kept].spec
    again = resume(tmp_path / str(len(records) - 3))
    # The simulated device is deterministic, so the same runs come to the same end.
    assert [record.run_id for record in again.records()] == [record.run_id for record in records]
    assert search_of(again) == search_of(whole)


def test_a_failed_run_counts_unless_it_is_retried(whole: ResultSet, tmp_path: Path) -> None:
    directory = tmp_path / "set"
    shutil.copytree(whole.directory, directory)
    failed = [directory / "records" / run_id / "record.json" for run_id in ("c0001-p01-r1", "c0001-p01-r2")]
    for path, record in zip(failed, whole.records(), strict=False):
        failure = Failure(code="io_error", message="the device answered with an error")
        changed = record.model_copy(update={"outcome": "failed", "failure": failure, "result": None})
        path.write_text(changed.model_dump_json())
        sign(path.parent)
    broken = ResultSet.open(directory)
    assert search_of(broken).reason == "every run at rate 4000 failed: the device answered with an error"
    ahead = Schedule(broken, retry_failed=True)
    assert (first := ahead.next_run()) and first.run_id == "c0001-p01-r1"
    mended = resume(directory, retry_failed=True)
    assert search_of(mended).value == search_of(whole).value
    assert {record.run_id: record.attempt for record in mended.records() if record.attempt > 1} == {
        "c0001-p01-r1": 2,
        "c0001-p01-r2": 2,
    }


def test_a_record_of_another_search_path_does_not_count(whole: ResultSet, tmp_path: Path) -> None:
    """As when an earlier run was repeated and turned out otherwise: the probes after it are of other values."""
    directory = tmp_path / "set"
    shutil.copytree(whole.directory, directory)
    path = directory / "records/c0001-p02-r1/record.json"
    record = whole.record("c0001-p02-r1")
    assert record
    path.write_text(record.model_copy(update={"parameters": record.parameters | {"rate": 3.0}}).model_dump_json())
    sign(path.parent)
    pending = Schedule(ResultSet.open(directory)).next_run()
    assert pending and (pending.run_id, pending.levels) == ("c0001-p02-r1", {"rate": 8000.0})


MIB = 1 << 20

ARRAYS = """
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
    return expand(parse(ARRAYS), open_target("sim:pm963*4,capacity=1GiB"), settings=settings)


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


def test_fresh_setups_are_recreated(tmp_path: Path) -> None:
    result_set = execute(planned(fresh="case", array="raid0", devices="2"), tmp_path / "set")
    assert laid_out(result_set) == [8, 0, 8, 0]
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
        parse(ARRAYS.replace("\n[profiles", rounds)),
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
