from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from plans import a_record, hand_plan, tables
from typer.testing import CliRunner, Result

from iosonde.cli import app
from iosonde.errors import ResultsError
from iosonde.results import ResultSet


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    result_set = ResultSet.create(tmp_path / "set", hand_plan())
    with result_set.lock():
        for run in result_set.plan.runs:
            result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    return result_set.directory


QUERY = "SELECT run_id, queue_depth, failure FROM runs ORDER BY run_id LIMIT 2"


def sql(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["sql", str(directory), *arguments])


def test_a_pipe_gets_csv(directory: Path) -> None:
    assert sql(directory, QUERY).stdout == "run_id,queue_depth,failure\nc0001-r1,1,\nc0001-r2,1,\n"


def test_json_is_a_list_of_objects(directory: Path) -> None:
    assert sql(directory, QUERY, "--format", "json").stdout == snapshot(
        '[{"run_id":"c0001-r1","queue_depth":1,"failure":null},{"run_id":"c0001-r2","queue_depth":1,"failure":null}]\n'
    )


def test_a_table_is_readable(directory: Path) -> None:
    assert sql(directory, QUERY, "--format", "table").stdout == snapshot("""\
run_id     queue_depth   failure
────────────────────────────────
c0001-r1             1   -
c0001-r2             1   -
""")


def test_damaged_files_are_named_with_the_result(directory: Path) -> None:
    (directory / "records/c0001-r1/record.json").write_text("{")
    done = sql(directory, "SELECT count(*) AS n FROM runs")
    assert done.stdout == "n\n3\n"
    assert done.stderr.startswith(
        f"warning: `{directory}/records/c0001-r1/record.json` was modified after it was written: "
    )


def test_a_result_set_that_is_being_written_can_be_queried(directory: Path) -> None:
    with ResultSet.open(directory).lock():
        assert sql(directory, "SELECT count(*) AS n FROM intervals").stdout == "n\n4\n"


def test_a_wrong_query_and_one_that_writes_are_errors(directory: Path) -> None:
    for query in ("SELECT no_such FROM runs", "DELETE FROM runs"):
        done = sql(directory, query)
        assert isinstance(done.exception, ResultsError)
        assert done.stdout == ""


def test_metrics_are_columns_of_runs(directory: Path) -> None:
    assert (
        sql(directory, "SELECT run_id, iops FROM runs ORDER BY run_id LIMIT 1").stdout == "run_id,iops\nc0001-r1,30.0\n"
    )
