"""Result sets that were damaged, or edited by somebody who can also write checksums (D4, D6, D8)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from made_sets import made
from plans import sign, sign_plan
from recordings import recorded

from iosonde import report
from iosonde.errors import ResultsError
from iosonde.execution import resume
from iosonde.plan import MOST_PLANNED_CASES
from iosonde.protocol import VERSION
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
    "no spec": lambda record: record.update(spec={}),
    "jobs as number": lambda record: record["result"].update(jobs=7),
    "another case": lambda record: record.update(case_id="main/queue_depth=2"),
    "begin beyond 64 bits": lambda record: record["result"].update(begin_ns=2**80),
    "infinite cost of the clock": lambda record: record["engine"].update(clock_read_ns=float("inf")),
    "exit status as list": lambda record: record["child"].update(exit_status=[1]),
    "evidence that is no number": lambda record: record.update(
        verdict={"kind": "device-limited", "because": [], "evidence": {"x": float("nan")}}
    ),
    "no result": lambda record: record.update(result=None),
    "job without usage": lambda record: record["result"]["jobs"][0].pop("usage"),
    "device as text": lambda record: record["result"].update(devices=["sda"]),
    "failed without a failure": lambda record: record.update(outcome="failed"),
    "time as a word": lambda record: record.update(ended_at="yesterday"),
    "time without offset": lambda record: record.update(ended_at="2026-01-01T00:00:00"),
    "time before clocks": lambda record: record.update(started_at="0001-01-01T00:00:00+00:00"),
    "clock that is null": lambda record: record["engine"].update(realtime_ns=None),
    "level as a list": lambda record: record["levels"].update(queue_depth=[1]),
    "devices of the target as text": lambda record: record.update(target={"devices": "sda"}),
    "own bytes without a total": lambda record: record.update(own_io={"version": 1, "run": [{}]}),
    "block cache without a kind": lambda record: record.update(parts={"block_cache": {"mode": "writeback"}}),
    "readings of a block cache as text": lambda record: record.update(
        parts={"block_cache": {"kind": "bcache", "mode": "writeback", "at_start": {"dirty_bytes": "x"}}}
    ),
    "statistics as a list": lambda record: record.update(server={"statistics_at_start": []}),
    "lone surrogate": lambda record: record.update(case_state={"\ud800": 1}),
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
    ],
)
def test_a_table_with_values_that_no_run_has_is_named_and_its_record_skipped(
    name: str, change: pl.Expr, reason: str, tmp_path: Path
) -> None:
    directory = made(tmp_path)
    table = directory / "records/c0001-r1" / f"{name}.parquet"
    pl.read_parquet(table).with_columns(change).write_parquet(table, compression="zstd")
    sign(table.parent)
    result_set = ResultSet.open(directory)
    assert result_set.problems == [f"`{table}` is damaged: {reason}"]
    assert "c0001-r1" not in result_set.runs["run_id"]
    assert "c0001-r1" not in result_set.sql("SELECT DISTINCT run_id FROM metrics")["run_id"]


def test_a_table_that_cannot_be_decoded_is_named_and_its_record_skipped(tmp_path: Path) -> None:
    """A user who edits a file can also write its checksum."""
    directory = made(tmp_path)
    table = directory / "records/c0001-r1/histograms.parquet"
    content = table.read_bytes()
    runs = ResultSet.open(directory).runs["run_id"].to_list()
    for place in range(4, len(content) // 2, len(content) // 12):
        table.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        sign(table.parent)
        result_set = ResultSet.open(directory)
        rest = [run for run in runs if run != "c0001-r1"] if result_set.problems else runs
        assert all(problem.startswith(f"`{table}` is damaged: ") for problem in result_set.problems)
        assert result_set.runs["run_id"].to_list() == rest
        assert set(result_set.histograms["run_id"]) <= set(rest)
        assert set(result_set.metrics["run_id"]) <= set(rest)
        assert result_set.sql("SELECT count(*) AS n FROM histograms")["n"].to_list() == [len(result_set.histograms)]


UNTIL = {"round_ns": 10**9, "tracking": "iops", "hold": 0, "criteria": {"rounds.window": 5}}
REPEATS = {"half_width": 0.05, "minimum": 2, "maximum": 4, "budget_s": None, "metrics": ["iops"]}


def _procedure(kind: str, settings: dict[str, Any]) -> Callable[[dict[str, Any]], object]:
    def change(plan: dict[str, Any]) -> None:
        spec = {**plan["runs"][0]["spec"], "run_id": "c0001"}
        plan["cases"][1]["procedure"] = {"kind": kind, "settings": settings, "max_runs": 4, "text": "", "spec": spec}

    return change


def _parameters(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan["cases"][1]["parameters"].update(changes)


def _until(**changes: Any) -> Callable[[dict[str, Any]], object]:
    changed = {name: value for name, value in {**UNTIL, **changes}.items() if value is not None}
    return lambda plan: plan["runs"][0].update(until=changed)


def _workload(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan["runs"][0]["spec"]["workload"].update(changes)


def _stream(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan["runs"][0]["spec"]["workload"]["streams"][0].update(changes)


def _without(name: str, *place: str | int) -> Callable[[dict[str, Any]], object]:
    return lambda plan: functools.reduce(lambda inner, key: inner[key], place, plan["runs"][0]["spec"]).pop(name)


def _claiming(version: object) -> Callable[[dict[str, Any]], object]:
    return lambda plan: plan["runs"][0]["spec"].update(protocol=version)


PLANS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no devices to observe": (_without("observe"), "`observe"),
    "no run_id": (_without("run_id"), "`run_id`"),
    "no jobs": (_without("jobs", "workload", "streams", 0), "jobs"),
    **{
        f"no {name}": (_without(name, "workload"), name)
        for name in ("kind", "target", "backend", "layout", "streams", "interval_ns")
    },
    **{
        f"protocol {version!r}": (_claiming(version), "protocol")
        for version in (0, 1, VERSION + 1, -1, str(VERSION), None, float(VERSION))
    },
    "unknown kind": (_workload(kind="x"), "kind"),
    "field of another workload": (_workload(timeout_ns=1), "timeout_ns"),
    "infinite number": (_workload(duration_ns=float("inf")), ""),
    "arrival as number": (_stream(arrival=1.5), "arrival"),
    "lone surrogate": (_stream(name="\ud800"), ""),
    "interval as text": (
        _workload(interval_ns="x"),
        'in a spec: `workload.interval_ns` must be a valid integer, got "x"',
    ),
    "interval of a target": (
        lambda plan: plan["runs"][0]["spec"]["workload"]["target"].update(interval_ns="x"),
        'in a spec: `workload.target.interval_ns` is "x", and there is no such field',
    ),
    "rounds without a length": (_until(round_ns=None), "in `until` of the run `c0001-r1`: `round_ns` is missing"),
    "rounds of no length": (_until(round_ns=0), "`round_ns` is 0, below 1"),
    "conditions as a text": (
        lambda plan: plan["runs"][0].update(until={"conditions": "iops > 1", "streams": []}),
        "in `until` of the run `c0001-r1`: `conditions` must be a valid list",
    ),
    "criteria as a list": (_until(criteria=[]), "`criteria` must be a valid object, got []"),
    "window of one round": (
        _parameters(**{"rounds.window": 1}),
        "in the case `main/queue_depth=2`: `rounds.window` is 1, below 2",
    ),
    "queue depth as text": (_parameters(queue_depth="deep"), '`queue_depth` must be a valid integer, got "deep"'),
    "queue depth of a stream": (_parameters(**{"reader.queue_depth": 0}), "`reader.queue_depth` is 0, below 1"),
    "share of reads as a list": (
        _parameters(read_fraction=[0] * 100),
        "`read_fraction` must be a valid number, got [0, 0, ",
    ),
    "mount option that names a device": (
        lambda plan: plan["cases"][1].update(setup={"file_system": "ext4", "mount_options": "journal_path=/dev/sda"}),
        "the mount option `journal_path=/dev/sda` names a path or device",
    ),
    "unknown procedure": (_procedure("x", {}), "`procedure.kind` of the case"),
    "repeats without a bound": (
        _procedure("until", {**REPEATS, "maximum": None}),
        "`maximum` must be a valid integer, got null",
    ),
    "bytes below 0": (lambda plan: plan["cases"][0]["cost"].update(write_bytes=-1), "cost.write_bytes"),
    "one arm": (
        lambda plan: plan.update(arms=[{"name": "a", "label": "a: x", "target": "x", "settings": {}, "study": {}}]),
        "the arms must be `a` and `b`",
    ),
    "unknown setting": (_procedure("until", {**REPEATS, "x": 1}), "`x` is 1, and there is no such field"),
}


@pytest.mark.parametrize("change", PLANS)
def test_a_plan_with_a_value_of_another_type_is_refused_with_place_value_and_cause(change: str, tmp_path: Path) -> None:
    """Each was refused by the last resort only, or caused a traceback in `resume` or `report`."""
    directory = made(tmp_path)
    edit_plan, cause = PLANS[change]
    edit(directory / "plan.json", edit_plan)
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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"title": 5}, "study.title"),
        ({"parts": {}}, "study.parts"),
        ({"views": [{"kind": "x"}]}, "study.views.0.kind"),
        ({"x": 1}, "study.x"),
        ({"seed": []}, "study.seed"),
        ({"views": [{"kind": "table", "title": "T", "part": "x"}]}, "study.views.0.part"),
        ({"analysis": [{"kind": "saturation", "part": "x", "over": "queue_depth"}]}, "study.analysis.0.part"),
    ],
    ids=str,
)
def test_a_damaged_study_in_a_plan_is_an_error_that_names_the_field(
    changes: dict[str, Any], field: str, tmp_path: Path
) -> None:
    """The study is free-form for those who read tables; a report needs it."""
    directory = made(tmp_path)
    path = directory / "plan.json"
    edit(path, lambda plan: plan["study"].update(changes))
    sign_plan(directory)
    result_set = ResultSet.open(directory)
    assert len(result_set.runs) == 4
    result_set.export("csv", tmp_path / "out")
    for action in (lambda: report.write([result_set], tmp_path / "report.html"), lambda: resume(directory)):
        with pytest.raises(ResultsError) as caught:
            action()
        assert str(path) in caught.value.what and f"`{field}" in caught.value.where, caught.value


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('https://example.com/x.parquet')",
        "SELECT * FROM read_text('{directory}/../other/plan.json')",
    ],
)
def test_sql_reads_no_other_file(query: str, tmp_path: Path) -> None:
    directory = made(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/plan.json").write_text("{}")
    with pytest.raises(ResultsError) as error:
        ResultSet.open(directory).sql(query.format(directory=directory))
    assert any(text in str(error.value) for text in ("disabled by configuration", "extension", "does not exist"))


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


@pytest.mark.parametrize("use", ["sql", "connect", "export", pytest.param("process", marks=pytest.mark.engine)])
def test_a_record_with_a_file_that_only_duckdb_cannot_read_is_named_and_skipped(
    use: str, refused_by_duckdb: Path, tmp_path: Path
) -> None:
    result_set = ResultSet.open(refused_by_duckdb)
    runs, problems = [record.run_id for record in result_set.records()], result_set.problems
    query = "SELECT run_id FROM runs ORDER BY run_id"
    match use:
        case "sql":
            rows = result_set.sql(query)
        case "connect":
            with result_set.connect() as connection:
                rows = frame(connection, query)
        case "export":
            result_set.export("parquet", tmp_path / "export")
            rows = pl.read_parquet(tmp_path / "export/runs.parquet").sort("run_id")
        case _:
            answered = answer(refused_by_duckdb, query)
            rows, problems = answered.rows, answered.problems
    assert rows["run_id"].to_list() == sorted(set(runs) - {"c0001-r1"})
    [problem] = problems
    assert problem.startswith(f"`{refused_by_duckdb}/records/c0001-r1/intervals.parquet` is damaged: ")


@pytest.mark.parametrize(
    "statement",
    [
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "INSTALL httpfs",
        "LOAD httpfs",
        "ATTACH '/tmp/x.db'",
        "COPY runs TO '/tmp/x.csv'",
    ],
)
def test_the_configuration_of_a_connection_is_locked(statement: str, tmp_path: Path) -> None:
    with ResultSet.open(made(tmp_path)).connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)
