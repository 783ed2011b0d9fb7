"""Result sets that were damaged, or edited by somebody who can also write checksums (D4, D6, D8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from made_sets import made
from plans import null_spec, sign, sign_plan
from recordings import recorded

from iosonde import report
from iosonde.engine.protocol import VERSION
from iosonde.errors import ResultsError
from iosonde.execution.session import resume
from iosonde.plan import MOST_PLANNED_CASES
from iosonde.results import ResultSet
from iosonde.results.query import frame
from iosonde.results.query_process import answer
from iosonde.results.schema import MANIFEST


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


def test_what_was_edited_after_it_was_written_is_reported(tmp_path: Path) -> None:
    directory = made(tmp_path)
    record, manifest = directory / "records/c0001-r1/record.json", directory / "records/c0001-r2" / MANIFEST
    edit(record, lambda record: record.update(started_at="2020-01-01T00:00:00+00:00"))
    manifest.unlink()
    result_set = ResultSet.open(directory)
    with result_set.lock():
        name = result_set.write_environment({"kernel": "6.1"})
    environment = directory / "environments" / f"{name}.json"
    environment.write_text('{"kernel": "6.2"}')
    again = ResultSet.open(directory)
    assert sorted(again.problems) == [
        f"`{environment}` was modified after it was written: its name is not its checksum",
        f"`{record}` was modified after it was written: its SHA-256 differs from the manifest",
        f"`{manifest}` is missing, so the record cannot be checked",
    ]
    assert {"c0001-r1", "c0001-r2"} & {record.run_id for record in again.records()} == set()
    assert again.environments() == {}
    edit(directory / "plan.json", lambda plan: plan.update(seed=2))
    with pytest.raises(ResultsError, match=r"plan\.json` was modified after it was written"):
        ResultSet.open(directory)


RECORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "parameter as text": lambda record: record["parameters"].update(queue_depth="deep"),
    "spec without streams": lambda record: record["spec"]["workload"].pop("streams"),
    "another case": lambda record: record.update(case_id="main/queue_depth=2"),
    "begin beyond 64 bits": lambda record: record["result"].update(begin_ns=2**80),
    "infinite cost of the clock": lambda record: record["engine"].update(clock_read_ns=float("inf")),
    "exit status as list": lambda record: record["child"].update(exit_status=[1]),
    "evidence that is no number": lambda record: record.update(
        verdict={"kind": "device-limited", "because": [], "evidence": {"x": float("nan")}}
    ),
    "no result": lambda record: record.update(result=None),
    "job without usage": lambda record: record["result"]["jobs"][0].pop("usage"),
    "failed without a failure": lambda record: record.update(outcome="failed"),
    "time without offset": lambda record: record.update(ended_at="2026-01-01T00:00:00"),
    "clock that is null": lambda record: record["engine"].update(realtime_ns=None),
    "readings of a block cache as text": lambda record: record.update(
        parts={"block_cache": {"kind": "bcache", "mode": "writeback", "at_start": {"dirty_bytes": "x"}}}
    ),
    "number of 400 digits": lambda record: record["parameters"].update(x=10**400),
    "parameters nested deeply": lambda record: record["parameters"].update(x=_nested(500)),
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("change", RECORDS)
def test_a_record_whose_parts_are_not_as_they_are_written_is_damaged(change: str, tmp_path: Path) -> None:
    """All readers of records rely on them: exports, reports, the library."""
    directory = made(tmp_path)
    record = directory / "records/c0001-r1"
    edit(record / "record.json", RECORDS[change])
    sign(record)
    again = ResultSet.open(directory)
    assert len(again.problems) == 1, again.problems
    assert again.problems[0].startswith(f"`{record}")
    assert again.runs["run_id"].to_list() == [each.run_id for each in again.records()] != []
    assert "c0001-r1" not in again.runs["run_id"]
    if change != "exit status as list":  # It is interpreted as a column.
        assert ResultSet.open_records(directory).problems == again.problems, "also where tables are not read"


def test_a_level_that_no_search_tries_makes_a_record_damaged(tmp_path: Path) -> None:
    directory = recorded("adaptive", tmp_path / "set").directory
    record = next(each for each in sorted((directory / "records").iterdir()) if "-p" in each.name)
    edit(record / "record.json", lambda record: record["levels"].update(rate="fast"))
    sign(record)
    read = ResultSet.open(directory)
    assert read.problems == [f"`{record / 'record.json'}` is damaged: `levels.rate` is not a number, as a search tries"]
    assert read.known_cases()


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("intervals", pl.lit("c0001-r2").alias("run_id"), "it has rows from another run"),
        ("usage", pl.lit(None, pl.String).alias("run_id"), "it has rows from another run"),
        ("intervals", pl.lit(1 << 63, pl.UInt64).alias("count"), "a number in the column `count` is out of range"),
        ("histograms", pl.lit(1 << 20, pl.UInt32).alias("bucket"), "a number in the column `bucket` is not a bucket"),
        ("intervals", pl.lit(1, pl.Int8).alias("phase"), "column `phase` is missing or has a different type"),
    ],
)
def test_a_table_with_impossible_values_is_named_and_skipped(
    name: str, change: pl.Expr, reason: str, tmp_path: Path
) -> None:
    directory = made(tmp_path)
    table = directory / "records/c0001-r1" / f"{name}.parquet"
    pl.read_parquet(table).with_columns(change).write_parquet(table, compression="zstd")
    sign(table.parent)
    result_set = ResultSet.open(directory)
    [problem] = result_set.problems
    assert problem.startswith(f"`{table}` ") and problem.endswith(f": {reason}")
    assert "c0001-r1" not in result_set.runs["run_id"]
    assert "c0001-r1" not in result_set.sql("SELECT DISTINCT run_id FROM metrics")["run_id"]


RUN, CASE = ("runs", 0), ("cases", 1)
SPEC = (*RUN, "spec")
WORKLOAD = (*SPEC, "workload")
STREAM = (*WORKLOAD, "streams", 0)
GONE = object()
UNTIL = {"round_ns": 10**9, "tracking": "iops", "hold": 0, "criteria": {"rounds.window": 5}}
REPEATS = {"half_width": 0.05, "minimum": 2, "maximum": 4, "budget_s": None, "metrics": ["iops"]}
PROCEDURE = {"kind": "until", "settings": REPEATS | {"x": 1}, "max_runs": 4, "text": "", "spec": null_spec("c0001")}
DEVICE = {"file_system": "ext4", "mount_options": "journal_path=/dev/sda"}
PLANS: list[tuple[tuple[str | int, ...], Any, str]] = [
    ((*SPEC, "observe"), GONE, "`observe"),
    ((*STREAM, "jobs"), GONE, "jobs"),
    ((*WORKLOAD, "target"), GONE, "target"),
    *(((*SPEC, "protocol"), each, "protocol") for each in (1, VERSION + 1, str(VERSION), None)),
    ((*WORKLOAD, "timeout_ns"), 1, "timeout_ns"),
    ((*WORKLOAD, "duration_ns"), float("inf"), ""),
    ((*STREAM, "name"), "\ud800", ""),
    ((*WORKLOAD, "interval_ns"), "x", 'in a spec: `workload.interval_ns` must be a valid integer, got "x"'),
    ((*RUN, "until"), {"tracking": "iops"}, "in `until` of the run `c0001-r1`: `round_ns` is missing"),
    ((*RUN, "until"), UNTIL | {"round_ns": 0}, "`round_ns` is 0, below 1"),
    ((*RUN, "until"), UNTIL | {"criteria": []}, "`criteria` must be a valid object, got []"),
    ((*CASE, "parameters", "rounds.window"), 1, "`rounds.window` is 1, below 2"),
    ((*CASE, "parameters", "queue_depth"), "deep", '`queue_depth` must be a valid integer, got "deep"'),
    ((*CASE, "parameters", "reader.queue_depth"), 0, "`reader.queue_depth` is 0, below 1"),
    ((*CASE, "setup"), DEVICE, "the mount option `journal_path=/dev/sda` names a path or device"),
    ((*CASE, "procedure"), PROCEDURE | {"kind": "x", "settings": {}}, "`procedure.kind` of the case"),
    ((*CASE, "procedure"), PROCEDURE, "`x` is 1, and there is no such field"),
]


@pytest.mark.parametrize(("place", "value", "cause"), PLANS)
def test_a_plan_with_a_value_of_another_type_is_refused_with_place_value_and_cause(
    place: tuple[str | int, ...], value: Any, cause: str, tmp_path: Path
) -> None:
    directory = made(tmp_path)

    def change(plan: Any) -> None:
        for key in place[:-1]:
            plan = plan[key]
        if value is GONE:
            del plan[place[-1]]
        else:
            plan[place[-1]] = value

    edit(directory / "plan.json", change)
    sign_plan(directory)
    with pytest.raises(ResultsError, match=r"plan.json` is damaged") as error:
        ResultSet.open(directory)
    assert cause in error.value.where


def test_a_plan_with_more_cases_than_a_report_can_handle_is_refused(tmp_path: Path) -> None:
    """280,000 kept `report` busy for more than three minutes."""
    directory = made(tmp_path)
    edit(directory / "plan.json", lambda plan: plan.update(cases=[None] * (MOST_PLANNED_CASES + 1)))
    sign_plan(directory)
    with pytest.raises(ResultsError, match="must have at most"):
        ResultSet.open(directory)


SATURATION = {"kind": "saturation", "part": "x", "over": "queue_depth"}
STUDIES = [
    ("x", 1, "study.x"),
    ("views", [{"kind": "table", "title": "T", "part": "x"}], "study.views.0.part"),
    ("analysis", [SATURATION], "study.analysis.0.part"),
]


@pytest.mark.parametrize(("name", "value", "field"), STUDIES, ids=str)
def test_a_damaged_study_in_a_plan_is_an_error_with_its_field(
    name: str, value: Any, field: str, tmp_path: Path
) -> None:
    """The study is free-form for those who read tables; a report needs it."""
    directory = made(tmp_path)
    path = directory / "plan.json"
    edit(path, lambda plan: plan["study"].update({name: value}))
    sign_plan(directory)
    result_set = ResultSet.open(directory)
    assert len(result_set.runs) == 4
    result_set.export("csv", tmp_path / "out")
    for action in (lambda: report.write([result_set], tmp_path / "report.html"), lambda: resume(directory)):
        with pytest.raises(ResultsError) as caught:
            action()
        assert str(path) in caught.value.what and f"`{field}" in caught.value.where, caught.value


def test_sql_reads_no_other_file_and_its_configuration_is_locked(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/plan.json").write_text("{}")
    calls = ("read_csv('/etc/passwd')", "glob('/etc/*')", f"read_text('{directory}/../other/plan.json')")
    for source in (*calls, "'/etc/passwd'", "read_parquet('https://example.com/x.parquet')"):
        with pytest.raises(ResultsError) as error:
            ResultSet.open(directory).sql(f"SELECT * FROM {source}")
        assert any(text in str(error.value) for text in ("disabled by configuration", "extension", "does not exist"))
    settings = ("SET enable_external_access = true", "SET lock_configuration = false", "INSTALL httpfs", "LOAD httpfs")
    with ResultSet.open(directory).connect() as connection:
        for statement in (*settings, "ATTACH '/tmp/x.db'", "COPY runs TO '/tmp/x.csv'"):
            with pytest.raises(duckdb.Error):
                connection.execute(statement)


def test_sql_without_records_reads_its_scratch_directory_only(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (directory / "records").rename(tmp_path / "elsewhere")
    with ResultSet.open(directory).connect() as connection:
        scratch, allowed = connection.execute(
            "SELECT current_setting('temp_directory'), current_setting('allowed_directories')"
        ).fetchall()[0]
        assert allowed == [f"{scratch}/"]
        assert connection.execute("SELECT count(*) FROM intervals").fetchall() == [(0,)]


@pytest.fixture(scope="module")
def refused_by_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result set with a signed table that Polars reads, and DuckDB does not: it decodes more of the footer."""
    directory = made(tmp_path_factory.mktemp("refused"))
    table = directory / "records/c0001-r1/intervals.parquet"
    content = table.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for place in range(footer, len(content) - 8):
        table.write_bytes(content[:place] + bytes([content[place] ^ 0x0F]) + content[place + 1 :])
        sign(table.parent)
        result_set = ResultSet.open(directory)
        if not result_set.problems:
            result_set.sql("SELECT 1")
            if result_set.problems:
                return directory
    pytest.fail("no byte of the footer is read by DuckDB alone")


@pytest.mark.parametrize("use", ["connect", "export", pytest.param("process", marks=pytest.mark.engine)])
def test_a_record_that_only_duckdb_cannot_read_is_skipped(use: str, refused_by_duckdb: Path, tmp_path: Path) -> None:
    result_set = ResultSet.open(refused_by_duckdb)
    runs, problems = [record.run_id for record in result_set.records()], result_set.problems
    query = "SELECT run_id FROM runs ORDER BY run_id"
    if use == "connect":
        with result_set.connect() as connection:
            rows = frame(connection, query)
    elif use == "export":
        result_set.export("parquet", tmp_path / "export")
        rows = pl.read_parquet(tmp_path / "export/runs.parquet").sort("run_id")
    else:
        answered = answer(query, directory=refused_by_duckdb)
        rows, problems = answered.rows, answered.problems
    assert rows["run_id"].to_list() == sorted(set(runs) - {"c0001-r1"})
    [problem] = problems
    assert problem.startswith(f"`{refused_by_duckdb}/records/c0001-r1/intervals.parquet` is damaged: ")
