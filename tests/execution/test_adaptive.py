"""Studies whose runs are decided by what was found: carried out, stopped anywhere, and gone on with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plans import sign

from iosonde.execution import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.procedure.observations import conclusions
from iosonde.procedure.schedule import Schedule, open_runs
from iosonde.procedure.search import SearchConclusion
from iosonde.results import ResultSet
from iosonde.results.schema import Failure
from iosonde.storage import open_target

STUDY = """
name = "capacity"
title = "Capacity of a simulated device"
question = "How many reads a second within a millisecond, and how does latency grow on the way there?"
repeats = 2
measurement = { queue_depth = 512, arrival = "poisson", ramp = "100ms", duration = "1s", interval = "500ms" }
[[parts]]
name = "capacity"
[parts.search]
over = "rate"
between = [1000, "40k"]
holds = "response_latency_ns_p99 <= 1ms"
agree = "all"
precision = 0.1
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


def test_every_probe_is_a_record_and_a_case_of_its_own(whole: ResultSet) -> None:
    found = search_of(whole)
    assert found.reached and found.value is not None and found.fails_at is not None
    assert 5_000 < found.value < found.fails_at <= found.value * 1.1 < 10_000
    records = whole.records()
    assert [record.order for record in records] == list(range(len(records)))
    probes = [record for record in records if record.part == "capacity"]
    assert [record.run_id for record in probes[:2]] == ["c0001-p01-r1", "c0001-p01-r2"]
    assert [probe.case_id for probe in found.probes] == list(dict.fromkeys(record.case_id for record in probes))
    cases = whole.cases.filter(whole.cases["part"] == "capacity")
    assert cases["rate"].to_list() == sorted(probe.value for probe in found.probes)
    assert whole.problems == []
    assert open_runs(whole) == []


def test_rates_are_shares_of_what_was_found_and_take_turns(whole: ResultSet) -> None:
    found = search_of(whole)
    curve = [record for record in whole.records() if record.part == "curve"]
    rates = {record.case_id: record.spec["workload"]["streams"][0]["arrival"]["rate"] for record in curve}
    assert rates == {"curve/load=0.5": found.value / 2, "curve/load=1": found.value}  # type: ignore[operator]
    assert {record.case_id for record in curve[:2]} == {record.case_id for record in curve[2:]} == set(rates)
    assert whole.cases.filter(whole.cases["part"] == "curve")["rate"].to_list() == [found.value] * 2


def test_a_study_stopped_anywhere_resumes_with_the_same_result(whole: ResultSet, tmp_path: Path) -> None:
    records = whole.records()
    for kept in {0, 1, len(records) // 2, len(records) - 1}:
        directory = tmp_path / str(kept)
        shutil.copytree(whole.directory, directory)
        for record in records[kept:]:
            shutil.rmtree(directory / "records" / record.run_id)
        pending = Schedule(ResultSet.open(directory)).next_run()
        assert pending and (pending.run_id, pending.order) == (records[kept].run_id, kept)
        assert pending.spec == records[kept].spec
    again = resume(tmp_path / str(len(records) // 2))
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
    assert search_of(broken).reason == "every run at rate 1000 failed: the device answered with an error"
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
    assert pending and (pending.run_id, pending.levels) == ("c0001-p02-r1", {"rate": 2000.0})
