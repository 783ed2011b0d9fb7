from __future__ import annotations

import json
from pathlib import Path

import pytest
from engines import FAKE
from plans import a_failure, a_record, hand_plan, tables
from typer.testing import CliRunner, Result

from iosonde.cli import app
from iosonde.results import ResultSet
from iosonde.results.schema import UNSUPPORTED, Failure


@pytest.fixture
def result_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultSet:
    """Four runs: one is done, one has failed, two are missing."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    result_set = ResultSet.create(tmp_path / "set", hand_plan(name="null:1MiB"))
    first, _, second, _ = result_set.plan.runs
    with result_set.lock():
        result_set.write(a_record(result_set.plan, first), *tables(first.run_id))
        result_set.write(a_failure(result_set.plan, second), *tables(second.run_id))
    return result_set


def resume(result_set: ResultSet, *options: str) -> Result:
    return CliRunner().invoke(app, ["resume", str(result_set.directory), "--no-report", *options])


def outcomes(result_set: ResultSet) -> list[tuple[str, int, str]]:
    records = ResultSet.open(result_set.directory).records()
    return [(record.run_id, record.attempt, record.outcome) for record in records]


def test_what_is_missing_is_carried_out_and_nothing_else(
    result_set: ResultSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r2": "no space"}))
    done = resume(result_set)
    assert done.exit_code == 0
    assert done.stderr.startswith("2 of 4 runs remaining\n[1/2] c0001-r2  main/queue_depth=1  ")
    assert "failed: cannot write to `/data/file`: no space left on device" in done.stderr
    assert outcomes(result_set) == [
        ("c0001-r1", 1, "complete"),
        ("c0002-r1", 1, "failed"),
        ("c0001-r2", 1, "complete"),
        ("c0002-r2", 1, "failed"),
    ]


def test_unsupported_combinations_are_counted_and_not_repeated(result_set: ResultSet) -> None:
    plan, [_, _, _, run] = result_set.plan, result_set.plan.runs
    failure = Failure(code=UNSUPPORTED, message="the kernel has no poll queues")
    with result_set.lock():
        result_set.write(a_failure(plan, run).model_copy(update={"failure": failure}), *tables(run.run_id))
    done = resume(result_set, "--retry-failed")
    assert done.stderr.startswith("2 of 4 runs remaining\n1 unsupported combination not repeated\n")
    assert outcomes(result_set) == [
        ("c0001-r1", 1, "complete"),
        ("c0002-r1", 2, "complete"),
        ("c0001-r2", 1, "complete"),
        ("c0002-r2", 1, "failed"),
    ]


def test_damaged_files_are_named_and_their_runs_repeated(result_set: ResultSet) -> None:
    path = result_set.directory / "records/c0001-r1/usage.parquet"
    path.write_bytes(path.read_bytes()[:100])
    done = resume(result_set)
    assert done.exit_code == 0
    assert f"warning: `{path}` was modified after it was written: " in done.stderr
    assert outcomes(result_set)[0] == ("c0001-r1", 2, "complete")


def test_a_study_that_is_complete_is_left_as_it_is(result_set: ResultSet) -> None:
    resume(result_set)
    before = outcomes(result_set)
    done = resume(result_set)
    assert (done.exit_code, outcomes(result_set)) == (0, before)
    assert done.stderr.startswith("0 of 4 runs remaining\n3 of 4 runs complete, in ")
    assert done.stderr.endswith(f"iosonde resume {result_set.directory} --retry-failed\n")
