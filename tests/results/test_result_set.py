"""Result sets: written, read, queried and exported."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
from buckets import bucket_of
from hypothesis import given
from hypothesis import strategies as st
from plans import a_failure, a_record, hand_plan, tables

from iosonde.errors import ResultsError
from iosonde.metrics.derivation import _OF_RUN
from iosonde.metrics.metrics import run_metrics
from iosonde.metrics.registry import METRICS
from iosonde.results import ResultSet, column
from iosonde.results.column import U64, Column
from iosonde.results.files import new_directory
from iosonde.results.frames import TABLES
from iosonde.results.query import metric_tables
from iosonde.results.run_facts import RUNS, values
from iosonde.storage import cleanup


@pytest.fixture
def result_set(tmp_path: Path) -> ResultSet:
    """Two cases, two repeats, nothing measured yet."""
    return ResultSet.create(tmp_path / "set", hand_plan())


def measure(result_set: ResultSet, *run_ids: str) -> None:
    with result_set.lock():
        for run in result_set.plan.runs:
            if run.run_id in run_ids:
                result_set.write(a_record(result_set.plan, run), *tables(run.run_id))


def fail(result_set: ResultSet, run_id: str) -> None:
    run = next(run for run in result_set.plan.runs if run.run_id == run_id)
    with result_set.lock():
        attempt = result_set.next_attempt(run_id)
        result_set.write(a_failure(result_set.plan, run, attempt=attempt), *tables(run_id))


def test_what_was_written_is_read_again(result_set: ResultSet) -> None:
    measure(result_set, "c0001-r1")
    again = ResultSet.open(result_set.directory)
    assert again.plan == result_set.plan
    assert again.intervals["completion_latency_ns_sum"].to_list() == [6000]
    histograms = again.histograms.select("bucket", "count", "lower_ns", "midpoint_ns")
    assert histograms.rows() == [(1000, 1, 1000, 1000), (1512, 1, 2000, 2001), (1774, 1, 3000, 3002)]
    assert again.usage["device"].to_list() == ["process"]
    assert again.problems == []
    measure(result_set, "c0002-r1")
    assert [record.run_id for record in result_set.records()] == ["c0001-r1", "c0002-r1"]
    assert [run.run_id for run in result_set.missing_runs()] == ["c0001-r2", "c0002-r2"]


def test_a_failed_run_is_repeated_only_on_request(result_set: ResultSet) -> None:
    measure(result_set, "c0001-r1", "c0001-r2", "c0002-r1")
    fail(result_set, "c0002-r2")
    assert result_set.missing_runs() == []
    assert [run.run_id for run in result_set.missing_runs(retry_failed=True)] == ["c0002-r2"]
    fail(result_set, "c0002-r2")
    assert [record.attempt for record in result_set.records()] == [1, 1, 1, 2], "the latest one counts"
    assert result_set.sql("SELECT count(*) AS n FROM intervals")["n"].item() == 4


def test_a_record_is_never_replaced(result_set: ResultSet) -> None:
    measure(result_set, "c0001-r1")
    with pytest.raises(ResultsError) as error:
        measure(result_set, "c0001-r1")
    assert str(error.value).startswith("cannot write the record `c0001-r1` to the result set")
    assert f"`iosonde resume {result_set.directory}`" in str(error.value)
    assert not list((result_set.directory / "records").glob(".tmp-*"))
    assert [record.run_id for record in result_set.records()] == ["c0001-r1"]


@pytest.mark.parametrize("name", ["record.json", "intervals.parquet", "histograms.parquet", "usage.parquet"])
def test_a_truncated_file_is_named_and_its_run_measured_again(result_set: ResultSet, name: str) -> None:
    measure(result_set, "c0001-r1", "c0002-r1")
    file = result_set.directory / "records" / "c0001-r1" / name
    file.write_bytes(file.read_bytes()[:-20])
    again = ResultSet.open(result_set.directory)
    assert [record.run_id for record in again.records()] == ["c0002-r1"]
    assert again.problems == [f"`{file}` was modified after it was written: its SHA-256 differs from the manifest"]
    assert again.missing_runs()[0].run_id == "c0001-r1"
    assert again.next_attempt("c0001-r1") == 2
    assert again.intervals["run_id"].to_list() == ["c0002-r1"]


def test_foreign_files_are_named_and_skipped(result_set: ResultSet) -> None:
    measure(result_set, "c0001-r1")
    directory = result_set.directory
    shutil.copytree(directory / "records" / "c0001-r1", directory / "records" / "c0009-r1")
    shutil.copytree(directory / "records" / "c0001-r1", directory / "records" / "c0002-r2")
    (directory / "records" / "holiday.jpg").write_bytes(b"JFIF")
    (directory / "notes.txt").write_text("mine")
    (directory / "report.html").write_text("<html>")
    again = ResultSet.open(directory)
    assert [record.run_id for record in again.records()] == ["c0001-r1"]
    assert [problem.replace(str(directory), "DIR") for problem in again.problems] == [
        "`DIR/notes.txt` is not part of a result set",
        "`DIR/records/c0002-r2/record.json` belongs to another run: `c0001-r1`, attempt 1",
        "`DIR/records/c0009-r1` is not a record of this study",
        "`DIR/records/holiday.jpg` is not a record of this study",
    ]


def test_records_of_a_result_set_that_is_moved_meanwhile_are_kept(result_set: ResultSet, tmp_path: Path) -> None:
    first, second, *_ = result_set.plan.runs
    with pytest.raises(ResultsError) as error, result_set.lock():
        result_set.write(a_record(result_set.plan, first), *tables(first.run_id))
        result_set.directory.rename(tmp_path / "moved")
        result_set.write(a_record(result_set.plan, second), *tables(second.run_id))
    assert f"was moved during a run, to `{tmp_path}/moved`" in str(error.value)
    records = ResultSet.open(tmp_path / "moved").records()
    assert {each.run_id for each in records} == {first.run_id, second.run_id}


@pytest.mark.engine
def test_a_second_writer_gets_an_error_with_the_process_number(result_set: ResultSet) -> None:
    pipe, end = os.pipe()
    child = os.fork()
    if child == 0:
        with result_set.lock():
            os.write(end, b"locked")
            signal.pause()
    assert os.read(pipe, 6) == b"locked"
    with pytest.raises(ResultsError) as error, result_set.lock():
        pass
    assert f"`{result_set.directory}` is being written by process {child}" in str(error.value)
    assert ResultSet.open(result_set.directory).records() == []
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with result_set.lock():
        assert (result_set.directory / "lock").read_text() == str(os.getpid())


def refusal(action: object) -> str:
    with pytest.raises(ResultsError) as error:
        action()  # type: ignore[operator]
    return str(error.value)


@pytest.mark.engine
@pytest.mark.parametrize("exists", [False, True])
def test_creating_is_repeated_wherever_it_was_killed(tmp_path: Path, *, exists: bool) -> None:
    """Killed at each rename and each new directory in turn: the result set exists, or can be created."""
    for step in range(20):
        path = tmp_path / str(step) / "set"
        (path if exists else path.parent).mkdir(parents=True)
        child = os.fork()
        if child == 0:
            _die_at(step)
            ResultSet.create(path, hand_plan())
            os._exit(0)
        was_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        cleanup()
        assert [each.name for each in path.parent.iterdir()] in ([], ["set"])
        if (path / "plan.json").exists():
            assert ResultSet.open(path).records() == []
            assert "is not empty" in refusal(lambda: ResultSet.create(path, hand_plan()))  # noqa: B023
        else:
            assert path.exists() == exists, "a new directory is complete"
            if exists and any(path.iterdir()):
                assert "creating the result set was interrupted" in refusal(lambda: ResultSet.open(path))  # noqa: B023
            ResultSet.create(path, hand_plan())
        assert ResultSet.open(path).plan == hand_plan()
        if not was_killed:
            return
    raise AssertionError("it was killed at every step")


@pytest.mark.engine
def test_a_directory_that_was_filled_until_a_kill_has_no_last_file(tmp_path: Path) -> None:
    """As of a fleet or a suite in a directory that the user created; what is moved into it is complete."""
    for step in range(20):
        path = tmp_path / str(step)
        path.mkdir()
        child = os.fork()
        if child == 0:
            _die_at(step)
            with new_directory(path, last="fleet.json") as place:
                for name in ("a", "z"):
                    (place / name / "complete").mkdir(parents=True)
                (place / "fleet.json").write_text("{}")
            os._exit(0)
        was_killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        cleanup()
        names = sorted(each.name for each in path.iterdir())
        assert names in ([], ["a"], ["a", "z"], ["a", "fleet.json", "z"])
        assert all((path / name / "complete").exists() for name in names if name != "fleet.json")
        if not was_killed:
            assert "fleet.json" in names
            return
    raise AssertionError("it was killed at every step")


def _die_at(step: int) -> None:
    """Kill this process when it renames or creates something after that many times."""
    left = [step]

    def hear(event: str, arguments: object) -> None:
        if event in ("os.rename", "os.mkdir"):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    sys.addaudithook(hear)


def test_a_place_that_is_not_a_new_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    text = refusal(lambda: ResultSet.create(tmp_path, hand_plan()))
    assert text.startswith(f"`{tmp_path}` is not empty") and "`iosonde resume DIR`" in text
    inside = tmp_path / "thesis.tex/set"
    text = refusal(lambda: ResultSet.create(inside, hand_plan()))
    assert text.startswith(f"cannot create the result set `{inside}`: Not a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("format.json", None, "`DIR` is not a result set\n  it has no `format.json`"),
        ("", None, "`DIR` is not a result set\n  there is no such directory"),
        ("format.json", '{"format": 2}', "`DIR` has format 2; this iosonde reads format 1"),
        ("format.json", '{"for', "`DIR/format.json` is damaged\n  EOF while parsing a string at line 1 column 5"),
        ("plan.json", "{}", "`DIR/plan.json` was modified after it was written"),
    ],
)
def test_other_directories_are_not_opened(name: str, content: str | None, problem: str, result_set: ResultSet) -> None:
    directory = result_set.directory
    if content is not None:
        (directory / name).write_text(content)
    elif name:
        (directory / name).unlink()
    else:
        shutil.rmtree(directory)
    text = refusal(lambda: ResultSet.open(directory)).replace(str(directory), "DIR")
    assert text.startswith(problem) and "\n\nhint: " in text


def test_every_column_is_described_and_every_description_has_a_column(result_set: ResultSet) -> None:
    with result_set.connect() as connection:  # Before anything was measured.
        for table, described in TABLES.items():
            columns = {name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()}
            assert {column.name for column in described.columns} <= columns, table
    measure(result_set, "c0001-r1")
    theirs = {"cases": {"queue_depth", "block_size", "cpus"}, "runs": {"queue_depth"}}
    with result_set.connect() as connection:
        for table, described in (TABLES | metric_tables()).items():
            columns = {name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()}
            assert columns - theirs.get(table, set()) == {column.name for column in described.columns}, table


def test_factors_are_columns_of_runs_and_cases(tmp_path: Path) -> None:
    result_set = ResultSet.create(tmp_path / "set", hand_plan(factor="part", levels=("a", 4096), repeats=1))
    measure(result_set, "c0001-r1", "c0002-r1")
    assert result_set.sql("SELECT part, part_level FROM runs").rows() == [("main", "a"), ("main", "4096")]
    assert result_set.sql("SELECT part, block_size, cpus FROM cases").rows() == [("main", 4096, "[]")] * 2
    # Nor does one that is called as a column of another table blur a join.
    other = ResultSet.create(tmp_path / "other", hand_plan(factor="operation", levels=("read",), repeats=1))
    measure(other, "c0001-r1")
    joined = other.sql("SELECT operation, operation_level FROM runs JOIN intervals USING (run_id)")
    assert joined.rows() == [("read", "read")]


def test_result_sets_of_the_same_name_are_distinguished(tmp_path: Path) -> None:
    sets = []
    for name, levels in (("a", (1, 2)), ("b", ("deep",))):
        sets.append(ResultSet.create(tmp_path / name / "set", hand_plan(levels=levels, repeats=1)))
        measure(sets[-1], "c0001-r1", "c0002-r1")
    rows = run_metrics(sets).filter(metric="operations", operation="all").select("result_set", "run_id", "value")
    assert sorted(rows.rows()) == [("a/set", "c0001-r1", 3), ("a/set", "c0002-r1", 3), ("b/set", "c0001-r1", 3)]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("DROP TABLE runs", "result sets are read-only, but the query is a DROP"),
        ("COPY runs TO 'runs.csv'", "result sets are read-only, but the query is a COPY"),
        ("SELECT 1; SELECT 2", "the query must have one statement; got 2"),
        ("SELECT iops FROM rnus", 'Table with name rnus does not exist!\nDid you mean "runs"?'),
        ("SELECT * FROM nope", "`case_metrics`"),
    ],
)
def test_sql_only_reads_and_names_what_is_wrong(result_set: ResultSet, query: str, text: str) -> None:
    assert text in refusal(lambda: result_set.sql(query))


@pytest.mark.parametrize("format", ["csv", "parquet", "json"])
def test_an_export_has_every_table_and_explains_every_column(
    result_set: ResultSet, tmp_path: Path, format: str
) -> None:
    measure(result_set, "c0001-r1")
    written = result_set.export(format, tmp_path / "export")
    assert [path.name for path in written] == [
        *(f"{table}.{format}" for table in (*TABLES, "metrics", "case_metrics")),
        "README.md",
    ]
    assert all(path.stat().st_size > 0 for path in written if path.stem not in ("warnings", "faults"))
    readme = written[-1].read_text()
    with result_set.connect() as connection:
        source = f"read_{format}('{tmp_path}/export/histograms.{format}')"
        assert duckdb.execute(f"SELECT sum(count) FROM {source}").fetchone() == (3,)
        for table in TABLES:
            for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall():
                assert f"| `{name}` | " in readme
    if format == "csv":
        assert "completion_latency_ns_mean,ns,lower,2000" in (tmp_path / "export/metrics.csv").read_text()
    assert "it is not empty" in refusal(lambda: result_set.export(format, tmp_path / "export"))
    assert "`csv`, `parquet`, `json`" in refusal(lambda: result_set.export("xlsx", tmp_path / "other"))


def test_metrics_are_tables_and_columns_of_runs_and_cases(result_set: ResultSet) -> None:
    measure(result_set, "c0001-r1", "c0001-r2", "c0002-r1")
    rates = [("c0001-r1", 30.0), ("c0001-r2", 30.0), ("c0002-r1", 30.0)]
    assert result_set.sql("SELECT run_id, iops FROM runs ORDER BY run_id").rows() == rates
    assert result_set.sql("SELECT case_id, completion_latency_ns_mean FROM cases").rows() == [
        ("main/queue_depth=1", 2000.0),
        ("main/queue_depth=2", 2000.0),
    ]
    assert result_set.sql("SELECT IOPS * 2 AS double FROM runs WHERE bandwidth > 0")["double"].to_list() == [60.0] * 3
    found = result_set.sql("SELECT unit, better, value FROM metrics WHERE metric = 'iops' AND operation = 'all'")
    assert found.rows() == [("1/s", "higher", 30.0)] * 3
    found = result_set.sql("SELECT n, median FROM case_metrics WHERE metric = 'iops' AND operation = 'all'")
    assert found.rows() == [(2, 30.0), (1, 30.0)]


def test_a_fact_of_a_run_is_one_row() -> None:
    plan = hand_plan()
    column = Column("levels_total", U64, "Number of factors of the case", lambda run: len(run.record.levels))
    record = a_record(plan, plan.runs[0])
    assert values(record, (*RUNS.columns, column)) == values(record, RUNS.columns) | {"levels_total": 1}
    assert [each.name for each in RUNS.columns if each.value is None or not each.text] == []


def test_facts_that_metrics_are_computed_from_belong_to_the_whole_run() -> None:
    used = set(METRICS).union(
        *(metric.expression.meta.root_names() for metric in METRICS.values() if metric.expression is not None)
    )
    numbers = {each.name for each in RUNS.columns if each.is_number}
    assert used & numbers <= set(_OF_RUN)
    assert len(_OF_RUN) == len(set(_OF_RUN))


LATENCIES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50)
LAST_BUCKET = 1024 + 512 * 54 - 1


def by_the_book(value: int) -> int:
    """The definition of crates/protocol/src/event.rs, in plain integers."""
    if value < 1024:
        return value
    octave = value.bit_length() - 11
    return 1024 + 512 * octave + ((value >> (octave + 1)) - 512)


@given(LATENCIES)
def test_a_latency_falls_into_the_bucket_of_the_protocol(values: list[int]) -> None:
    assert bucket_of(values).tolist() == [by_the_book(value) for value in values]


@given(LATENCIES)
def test_a_bucket_contains_its_latencies_and_its_midpoint_is_within_a_thousandth(values: list[int]) -> None:
    buckets = bucket_of(values)
    lower, width = column.lower_ns(buckets).tolist(), column.width_ns(buckets).tolist()
    for value, low, wide, middle in zip(values, lower, width, column.midpoint_ns(buckets).tolist(), strict=True):
        assert low <= value < low + wide
        assert abs(middle - value) <= value / 1000


def test_buckets_follow_each_other_without_gap() -> None:
    buckets = np.arange(LAST_BUCKET + 1)
    lower, width = column.lower_ns(buckets), column.width_ns(buckets)
    assert lower[0] == 0
    assert (lower[:-1] + width[:-1] == lower[1:]).all()
    assert int(lower[-1]) + int(width[-1]) == 2**64


def test_sql_and_numpy_agree_on_every_bucket() -> None:
    with duckdb.connect() as connection:
        for macro in column.MACROS:
            connection.execute(macro)
        found = connection.execute(
            "SELECT bucket_lower_ns(b), bucket_width_ns(b), bucket_midpoint_ns(b)"
            f" FROM (SELECT unnest(range({LAST_BUCKET + 1}))::UINTEGER AS b) ORDER BY b"
        ).fetchall()
    buckets = np.arange(LAST_BUCKET + 1)
    columns = (each(buckets).tolist() for each in (column.lower_ns, column.width_ns, column.midpoint_ns))
    assert found == list(zip(*columns, strict=True))
