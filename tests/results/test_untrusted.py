"""A result set from somebody else: `resume`, `report` and `sql` write and read nothing outside it (D4, D5, D6, D10)."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Iosonde
from engines import FAKE
from plans import a_record, hand_plan, null_spec, sign, tables
from varied_sets import VARIED

from iosonde import report
from iosonde.errors import IosondeError, ResultsError, TargetError
from iosonde.execution import resume, session
from iosonde.execution.checks.admission import Admission, check_libraries
from iosonde.plan import Plan
from iosonde.protocol import VERSION
from iosonde.results import ResultSet, reading
from iosonde.results.query import frame
from iosonde.results.query_process import answer
from iosonde.results.schema import MANIFEST

OWN = "iosonde-00000001"
FILE_BYTES = 1 << 20


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def plan_on(target: Path, **changes: Any) -> Plan:
    """Return a plan for a directory, with one case of two runs."""
    file = {"kind": "file", "path": str(target / OWN / "data"), "size_bytes": FILE_BYTES}
    plan = hand_plan(
        name=str(target), levels=(1,), target=file, backend={"kind": "sync"}, layout="missing", verify=None
    )
    return plan.model_copy(update={"created_name": OWN, **changes})


def with_target(plan: Plan, target: dict[str, Any], **workload: Any) -> Plan:
    """Return the plan with another target in the spec of its second run."""
    run = plan.runs[1]
    spec = {**run.spec, "workload": {**run.spec["workload"], "target": target, **workload}}
    return plan.model_copy(update={"runs": [plan.runs[0], run.model_copy(update={"spec": spec})]})


def received(plan: Plan, tmp_path: Path) -> Path:
    """Write a result set as an attacker would: with correct checksums."""
    return ResultSet.create(tmp_path / "set", plan).directory


def tree(directory: Path) -> dict[str, Any]:
    """Return everything under a directory, without following links."""
    found = {}
    for root, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(root, name)
            details = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (details.st_mode, details.st_ino, content)
    return found


def test_the_plan_of_a_directory_passes(target: Path, tmp_path: Path) -> None:
    Admission.for_plan(plan_on(target), tmp_path / "set").check_plan()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"kind": "device", "path": "/dev/loop0", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "/run/iosonde/../../tmp/victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "TARGET/victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": f"TARGET/{OWN}/../victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "TARGET/iosonde-00000002/data", "size_bytes": FILE_BYTES},
        {"kind": "file_per_job", "directory": "TARGET", "size_bytes": FILE_BYTES},
        {"kind": "directory", "path": "TARGET/../x/db", "log_path": None},
        {"kind": "directory", "path": f"TARGET/{OWN}/redb-1", "log_path": "/etc/x/redb-1-log"},
        {"kind": "virtual", "size_bytes": FILE_BYTES},
        {"kind": "other"},
        {},
        [],
        None,
    ],
    ids=str,
)
@pytest.mark.engine
def test_a_spec_whose_target_is_not_that_of_the_plan_is_refused(elsewhere: Any, target: Path, tmp_path: Path) -> None:
    text = json.dumps(elsewhere).replace("TARGET", str(target))
    plan = with_target(plan_on(target), json.loads(text))
    directory = received(plan, tmp_path)
    before = tree(tmp_path / "target")
    with pytest.raises(TargetError, match="the plan of this result set names another target than its own"):
        Admission.for_plan(plan, directory).check_plan()
    # Where it is no target of the protocol, the plan is not even read.
    with pytest.raises(IosondeError, match=r"names another target than its own|plan.json` is damaged"):
        resume(directory)
    assert tree(tmp_path / "target") == before
    assert list((directory / "records").iterdir()) == []


@pytest.mark.parametrize(
    "workload",
    [
        {"backend": {"kind": "ssd", "state_path": "/tmp/victim"}},
        {"verify": {"when": "after", "journal_directory": "/etc"}},
        {"streams": [{"name": "../../victim", "jobs": 1}]},
        {"streams": [{"name": "..", "jobs": 1}]},
        {"streams": [{"name": "x" * 129, "jobs": 1}]},
        {"store": {"kind": "rocksdb", "library": "lib/evil.so", "options": {}}},
        {"store": {"kind": "rocksdb", "library": None, "options": {"db_log_dir": "/tmp/x"}}},
        *(
            {"store": {"kind": "rocksdb", "library": None, "options": options}}
            for options in (
                {"db_log_dir=/tmp/x;ttl": 0},
                {"db_log_dir": ".."},
                {" wal_dir": "wal"},
                {"ttl": "0;wal_dir=wal"},
                {"compaction_options_universal": "{size_ratio=2};wal_dir=wal"},
                {"ttl": "0}; wal_dir={wal"},
            )
        ),
        {"store": "rocksdb"},
    ],
    ids=str,
)
def test_other_paths_in_a_spec_are_refused(workload: dict[str, Any], target: Path, tmp_path: Path) -> None:
    plan = plan_on(target)
    own = plan.runs[0].spec["workload"]["target"]
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(with_target(plan, own, **workload), tmp_path / "set").check_plan()


def test_a_stream_with_spaces_in_its_name_passes(target: Path, tmp_path: Path) -> None:
    plan = plan_on(target)
    own = plan.runs[0].spec["workload"]["target"]
    streams = [{**stream, "name": "open, poisson"} for stream in plan.runs[0].spec["workload"]["streams"]]
    Admission.for_plan(with_target(plan, own, streams=streams), tmp_path / "set").check_plan()


def test_a_library_in_the_result_set_is_refused(target: Path, tmp_path: Path) -> None:
    directory = received(plan_on(target), tmp_path)
    (directory / "evil.so").write_bytes(b"")
    plan = plan_on(target)
    store = {"kind": "rocksdb", "library": str(directory / "evil.so"), "options": {}}
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(
            with_target(plan, plan.runs[0].spec["workload"]["target"], store=store), directory
        ).check_plan()


@pytest.mark.parametrize("library", ["{here}/evil.so", "/proc/self/cwd/evil.so", "/usr/../{here}/evil.so"])
def test_a_library_next_to_a_received_result_set_is_not_loaded(
    library: str, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.so").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    plan = plan_on(target)
    store = {"kind": "rocksdb", "library": library.format(here=tmp_path), "options": {}}
    received_plan = with_target(plan, plan.runs[0].spec["workload"]["target"], store=store)
    with pytest.raises(TargetError, match="which is not in a directory of the system"):
        check_libraries(received_plan)
    check_libraries(received_plan, (store["library"],))
    check_libraries(with_target(plan, {}, store={**store, "library": "/usr/lib/x86_64-linux-gnu/librocksdb.so.7"}))


@pytest.mark.engine
def test_resume_checks_libraries(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Plan, allowed: Sequence[str]) -> None:
        raise TargetError("checked")

    monkeypatch.setattr(session, "check_libraries", refuse)
    with pytest.raises(TargetError, match="checked"):
        resume(received(plan_on(target), tmp_path))


@pytest.mark.parametrize("run_id", ["../../../escaped", "..", "a/b", "", ".tmp-x", "c1\n", "x" * 65])
def test_a_run_id_that_is_no_file_name_is_refused(run_id: str, target: Path, tmp_path: Path) -> None:
    plan = plan_on(target)
    first = plan.runs[0].model_copy(update={"run_id": run_id, "spec": null_spec(run_id)})
    directory = received(plan.model_copy(update={"runs": [first]}), tmp_path)
    with pytest.raises(ResultsError, match=r"plan\.json` is damaged"):
        ResultSet.open(directory)


@pytest.mark.parametrize("own", ["../x", "iosonde-1", "data", "/etc"])
def test_an_own_name_that_is_no_own_name_is_refused(own: str, target: Path, tmp_path: Path) -> None:
    directory = received(plan_on(target, created_name=own), tmp_path)
    with pytest.raises(ResultsError, match=r"plan\.json` is damaged"):
        ResultSet.open(directory)


@pytest.mark.engine
def test_consent_for_a_device_is_required_again_on_resume(target: Path, tmp_path: Path) -> None:
    """Without `--destroy` nothing is written; here the device does not even exist."""
    plan = plan_on(target).model_copy(update={"target": "/dev/iosonde-no-such-device"})
    with pytest.raises(IosondeError):
        resume(received(plan, tmp_path))


LINKED = (
    *("lock", ".tmp-reserve", ".tmp-plan.json", "plan.json", "format.json", "records", "environments"),
    *("records/.tmp-c0001-r1", "records/c0001-r1", "records/c0001-r1/record.json", "records/c0001-r1/SHA256SUMS"),
)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory and a file that nothing may change."""
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "file").write_text("years of work")
    return directory


def measured(tmp_path: Path) -> ResultSet:
    """Write the same result set for each test."""
    for name, content in _files_of_a_set().items():
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return ResultSet.open(tmp_path / "set")


@functools.cache
def _files_of_a_set() -> dict[Path, bytes]:
    with tempfile.TemporaryDirectory() as directory:
        result_set = ResultSet.create(Path(directory, "set"), hand_plan(name="null:1MiB"))
        with result_set.lock():
            for run in result_set.plan.runs:
                result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
        files = [path for path in result_set.directory.rglob("*") if path.is_file()]
        return {path.relative_to(result_set.directory): path.read_bytes() for path in files}


def link(path: Path, to: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(to)


USES: dict[str, Callable[[Path], object]] = {
    "resume": resume,
    "html": lambda directory: report.write([ResultSet.open(directory)], directory / "report.html"),
    "markdown": lambda directory: report.write([ResultSet.open(directory)], directory / "report.md", format="md"),
    "figures": lambda directory: report.save_figures([ResultSet.open(directory)], directory / "figures"),
}


@pytest.mark.parametrize(
    ("use", "name"),
    [
        *(("resume", name) for name in LINKED),
        *(
            ("html", name)
            for name in ("lock", "report.html", "records", "environments", "records/c0001-r1/usage.parquet")
        ),
        ("markdown", "report.md"),
        ("markdown", "figures"),
        ("figures", "figures"),
    ],
)
@pytest.mark.engine
def test_no_link_in_a_result_set_is_followed(name: str, use: str, victim: Path, tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    to = victim if name in ("figures", "records", "environments", "records/c0001-r1") else victim / "file"
    link(directory / name, to)
    before = tree(victim)
    with suppress(IosondeError):
        USES[use](directory)
    assert tree(victim) == before


def test_a_hard_linked_lock_is_refused(victim: Path, tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    (directory / "lock").unlink()
    os.link(victim / "file", directory / "lock")
    with (
        pytest.raises(ResultsError, match="not a regular file with a single hard link"),
        ResultSet.open(directory).lock(),
    ):
        pass
    assert (victim / "file").read_text() == "years of work"


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    path = directory / "records/c0001-r1/record.json"
    path.unlink()
    os.mkfifo(path)
    again = ResultSet.open(directory)
    assert again.problems == [f"`{path}` is damaged: it is a FIFO, not a regular file"]


@pytest.mark.parametrize("name", ["records/c0001-r1/record.json", "plan.json", "format.json"])
def test_a_file_of_impossible_size_is_damaged_and_not_read(name: str, tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    os.truncate(directory / name, 1 << 40)  # sparse
    try:
        problems = ResultSet.open(directory).problems
    except ResultsError as error:
        problems = [f"{error.what}: {error.where}"]
    assert problems == [f"`{directory / name}` is damaged: it is longer than 1 GiB"]


def test_a_table_of_millions_of_equal_rows_in_a_few_bytes_is_damaged(tmp_path: Path) -> None:
    """Parquet stores a repeated row once, so a small file could fill the memory of its reader."""
    result_set = measured(tmp_path)
    [victim, *_] = [each.run_id for each in result_set.records()]
    directory = result_set.directory / "records" / victim
    row = pl.read_parquet(directory / "histograms.parquet").head(1)
    row.select(pl.all().repeat_by(3_000_000).explode()).write_parquet(directory / "histograms.parquet")
    sign(directory)
    again = ResultSet.open(result_set.directory)
    [problem] = again.problems
    assert "histograms.parquet` is damaged: it has more than" in problem
    assert victim not in [each.run_id for each in again.records()]
    with pytest.raises(ResultsError, match="it has more than"):
        reading.read_tables(result_set.directory, [victim], {"histograms": ["bucket"]})


@pytest.mark.parametrize("name", ["a[1]", "st*r", "q?", "it's", "a b", "%s", "{x}", "é\\"])
def test_a_directory_with_a_pattern_for_a_name_is_read_and_none_of_its_siblings(name: str, tmp_path: Path) -> None:
    """`a[1]` as a pattern is `a1`, `st*r` is `star` and `q?` is `qq` (D5)."""
    for sibling, latency in ((name, 1000), ("a1", 7000), ("star", 7000), ("qq", 7000)):
        result_set = ResultSet.create(tmp_path / sibling, hand_plan(levels=(1,), repeats=1))
        with result_set.lock():
            [run] = result_set.plan.runs
            result_set.write(a_record(result_set.plan, run), *tables(run.run_id, [latency]))
    result_set = ResultSet.open(tmp_path / name)
    assert result_set.intervals["completion_latency_ns_sum"].to_list() == [1000]
    result_set.export("csv", tmp_path / "out" / name)
    assert (
        pl.read_csv(tmp_path / "out" / name / "intervals.csv", glob=False)["completion_latency_ns_sum"].item() == 1000
    )
    assert result_set.sql("SELECT sum(count) AS n FROM histograms")["n"].item() == 1


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_edited_record_is_reported_as_modified(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    path = directory / "records/c0001-r1/record.json"
    edit(path, started_at="2020-01-01T00:00:00+00:00")
    again = ResultSet.open(directory)
    assert again.problems == [f"`{path}` was modified after it was written: its SHA-256 differs from the manifest"]
    assert "c0001-r1" not in [record.run_id for record in again.records()]


def test_a_record_without_its_manifest_is_reported(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    path = directory / "records/c0001-r1" / MANIFEST
    path.unlink()
    assert ResultSet.open(directory).problems == [f"`{path}` is missing, so the record cannot be checked"]


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    edit(directory / "plan.json", seed=2)
    with pytest.raises(ResultsError, match=r"plan\.json` was modified after it was written"):
        ResultSet.open(directory)


def test_an_edited_environment_is_reported(tmp_path: Path) -> None:
    result_set = measured(tmp_path)
    with result_set.lock():
        name = result_set.write_environment({"kernel": "6.1"})
    path = result_set.directory / "environments" / f"{name}.json"
    path.write_text('{"kernel": "6.2"}')
    again = ResultSet.open(result_set.directory)
    assert again.problems == [f"`{path}` was modified after it was written: its name is not its checksum"]
    assert again.environments() == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"result": {"jobs": [{"stream": 1, "job": -1, "usage": {}}]}},
        {"result": {"jobs": 7}},
        {"result": {"begin_ns": "soon"}},
        {"result": {"begin_ns": 2**80}},
        {"engine": {"clock_read_ns": float("inf")}},
        {"spec": {}},
        {"spec": {"workload": {"kind": "block", "streams": [{}]}}},
        {"child": {"exit_status": [1]}},
        {"verdict": {"kind": "device-limited", "because": [], "evidence": {"x": float("nan")}}},
        {"case_id": "main/queue_depth=2"},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_interpreted_is_named_and_skipped(changes: dict[str, Any], tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    record = directory / "records/c0001-r1"
    edit(record / "record.json", **changes)
    sign(record)
    again = ResultSet.open(directory)
    assert len(again.records()) == 3
    [problem] = again.problems
    assert problem.startswith(f"`{record}")
    assert len(again.runs) == 3


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
    result_set = measured(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/plan.json").write_text("{}")
    with pytest.raises(ResultsError) as error:
        result_set.sql(query.format(directory=result_set.directory))
    assert any(text in str(error.value) for text in ("disabled by configuration", "extension", "does not exist"))


@pytest.fixture(scope="module")
def refused_by_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result set with a signed table that Polars reads, and DuckDB does not: it decodes more of the footer."""
    directory = measured(tmp_path_factory.mktemp("refused")).directory
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


def test_a_table_that_cannot_be_decoded_is_named_and_its_record_skipped(tmp_path: Path) -> None:
    """A user who edits a file can also write its checksum."""
    directory = measured(tmp_path).directory
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
    import duckdb

    with measured(tmp_path).connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(statement)


def _edited_plan(directory: Path, edit_spec: Callable[[dict[str, Any]], object]) -> None:
    """Edit the spec of each run in a plan, and sign it."""
    path = directory / "plan.json"
    content = json.loads(path.read_bytes())
    for run in content["runs"]:
        edit_spec(run["spec"])
    path.write_text(json.dumps(content))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(directory / "format.json", plan_sha256=digest)


def _claiming(version: object) -> Callable[[dict[str, Any]], object]:
    return lambda spec: spec.update(protocol=version)


def _without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda spec: spec["workload"].pop(name)


SPECS: dict[str, Callable[[dict[str, Any]], object]] = {
    "size as text": lambda spec: spec["workload"]["target"].update(size_bytes="x"),
    "arrival as number": lambda spec: spec["workload"]["streams"][0].update(arrival=1.5),
    "streams missing": lambda spec: spec["workload"].pop("streams"),
    "no devices to observe": lambda spec: spec.pop("observe"),
    "unknown kind": lambda spec: spec["workload"].update(kind="x"),
    "field of another workload": lambda spec: spec["workload"].update(timeout_ns=1),
    "lone surrogate": lambda spec: spec["workload"]["streams"][0].update(name="\ud800"),
    "infinite number": lambda spec: spec["workload"].update(duration_ns=float("inf")),
    **{
        f"protocol {version!r}": _claiming(version)
        for version in (0, 1, VERSION + 1, -1, str(VERSION), None, float(VERSION))
    },
    **{
        f"without {name}": _without(name)
        for name in ("kind", "target", "backend", "layout", "page_cache", "streams", "ramp", "interval_ns")
    },
    "without run_id": lambda spec: spec.pop("run_id"),
    "without jobs": lambda spec: spec["workload"]["streams"][0].pop("jobs"),
}


@pytest.mark.parametrize("change", SPECS)
def test_a_plan_whose_specs_are_not_of_the_protocol_is_damaged(change: str, tmp_path: Path) -> None:
    """Each of these was a traceback later, in `resume` or `report`."""
    directory = measured(tmp_path).directory
    _edited_plan(directory, SPECS[change])
    with pytest.raises(ResultsError, match=r"plan.json` is damaged"):
        ResultSet.open(directory)


def test_a_plan_with_more_cases_than_a_report_can_handle_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """280,000 kept `report` busy for more than three minutes."""
    directory = measured(tmp_path).directory
    monkeypatch.setattr(reading, "MOST_PLANNED_CASES", 1)
    with pytest.raises(ResultsError, match="must have at most 1 cases, got 2"):
        ResultSet.open(directory)


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


PLANS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "interval as text": (
        lambda plan: plan["runs"][0]["spec"]["workload"].update(interval_ns="x"),
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
    "queue depth as text": (
        _parameters(queue_depth="deep"),
        '`queue_depth` must be a valid integer, got "deep"',
    ),
    "queue depth of a stream": (_parameters(**{"reader.queue_depth": 0}), "`reader.queue_depth` is 0, below 1"),
    "share of reads as a list": (
        _parameters(read_fraction=[0] * 100),
        "`read_fraction` must be a valid number, got [0, 0, ",
    ),
    "round length as an object": (_parameters(round_length={}), "`round_length` must be a valid integer, got {}"),
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
    "unknown setting": (_procedure("until", {**REPEATS, "x": 1}), "`x` is 1, and there is no such field"),
}


@pytest.mark.parametrize("change", PLANS)
def test_a_plan_with_a_value_of_another_type_is_refused_with_place_value_and_cause(change: str, tmp_path: Path) -> None:
    """Each was refused by the last resort only, or caused a traceback."""
    directory = measured(tmp_path).directory
    path, (edit_plan, cause) = directory / "plan.json", PLANS[change]
    content = json.loads(path.read_bytes())
    edit_plan(content)
    path.write_text(json.dumps(content))
    edit(directory / "format.json", plan_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ResultsError, match=r"plan.json` is damaged") as error:
        ResultSet.open(directory)
    assert cause in error.value.where


RECORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "parameter as text": lambda record: record["parameters"].update(queue_depth="deep"),
    "unknown field of the spec": lambda record: record["spec"]["workload"].update(interval="1s"),
    "spec of another protocol": lambda record: record["spec"].update(protocol=1),
    "spec without streams": lambda record: record["spec"]["workload"].pop("streams"),
    "spec without interval": lambda record: record["spec"]["workload"].pop("interval_ns"),
    "no result": lambda record: record.update(result=None),
    "result without backend": lambda record: record["result"].pop("backend"),
    "job without usage": lambda record: record["result"]["jobs"][0].pop("usage"),
    "device as text": lambda record: record["result"].update(devices=["sda"]),
    "failed without a failure": lambda record: record.update(outcome="failed"),
    "time as a word": lambda record: record.update(ended_at="yesterday"),
    "time without offset": lambda record: record.update(ended_at="2026-01-01T00:00:00"),
    "time before clocks": lambda record: record.update(started_at="0001-01-01T00:00:00+00:00"),
    "clock that is null": lambda record: record["engine"].update(realtime_ns=None),
    "level as a list": lambda record: record["levels"].update(queue_depth=[1]),
    "devices of the target as text": lambda record: record.update(target={"devices": "sda"}),
    "size of a device as text": lambda record: record.update(target={"devices": [{"size_bytes": "x"}]}),
    "own bytes without a total": lambda record: record.update(own_io={"version": 1, "run": [{}]}),
    "block cache without a kind": lambda record: record.update(parts={"block_cache": {"mode": "writeback"}}),
    "part of an unknown feature": lambda record: record.update(parts={"toaster": {}}),
    "readings of a block cache as text": lambda record: record.update(
        parts={"block_cache": {"kind": "bcache", "mode": "writeback", "at_start": {"dirty_bytes": "x"}}}
    ),
    "statistics as a list": lambda record: record.update(server={"statistics_at_start": []}),
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
    directory = measured(tmp_path).directory
    record = directory / "records/c0001-r1"
    content = json.loads((record / "record.json").read_text())
    RECORDS[change](content)
    (record / "record.json").write_text(json.dumps(content))
    sign(record)
    again = ResultSet.open(directory)
    assert len(again.problems) == 1, again.problems
    assert str(record) in again.problems[0]
    assert "c0001-r1" not in {each.run_id for each in again.records()}
    assert ResultSet.open_records(directory).problems == again.problems, "also where tables are not read"


@pytest.mark.engine
def test_a_level_that_no_search_tries_makes_a_record_damaged(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    directory = VARIED["adaptive"](tmp_path / "set", tmp_path / "target")
    record = next(each for each in sorted((directory / "records").iterdir()) if "-p" in each.name)
    levels = json.loads((record / "record.json").read_text())["levels"]
    assert isinstance(levels["rate"], int | float)
    edit(record / "record.json", levels={**levels, "rate": "fast"})
    sign(record)
    read = ResultSet.open(directory)
    assert read.problems == [f"`{record / 'record.json'}` is damaged: `levels.rate` is not a number, as a search tries"]
    assert read.known_cases()


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
    directory = measured(tmp_path).directory
    path = directory / "plan.json"
    content = json.loads(path.read_text())
    edit(path, study={**content["study"], **changes})
    edit(directory / "format.json", plan_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    result_set = ResultSet.open(directory)
    assert len(result_set.runs) == 4
    result_set.export("csv", tmp_path / "out")
    for action in (lambda: report.write([result_set], tmp_path / "report.html"), lambda: resume(directory)):
        with pytest.raises(ResultsError) as caught:
            action()
        assert str(path) in caught.value.what and f"`{field}" in caught.value.where, caught.value


def test_a_plan_with_one_arm_is_damaged(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    path = directory / "plan.json"
    arm = {"name": "a", "label": "a: x", "target": "x", "settings": {}, "study": {}}
    edit(path, arms=[arm])
    edit(directory / "format.json", plan_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    with pytest.raises(ResultsError) as caught:
        ResultSet.open(directory)
    assert "the arms must be `a` and `b`" in str(caught.value)


def test_a_lone_surrogate_in_a_record_is_named(tmp_path: Path) -> None:
    directory = measured(tmp_path).directory
    record = directory / "records/c0001-r1"
    edit(record / "record.json", case_state={"\ud800": 1})
    sign(record)
    assert any("surrogate" in each for each in ResultSet.open(directory).problems)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("intervals", pl.lit("c0001-r2").alias("run_id"), "it has rows from another run"),
        ("usage", pl.lit(None, pl.String).alias("run_id"), "it has rows from another run"),
        (
            "intervals",
            pl.lit(1 << 63, pl.UInt64).alias("count"),
            "a number in the column `count` is out of range",
        ),
        (
            "histograms",
            pl.lit(1 << 20, pl.UInt32).alias("bucket"),
            "a number in the column `bucket` is not a bucket",
        ),
    ],
)
def test_a_table_with_values_that_no_run_has_is_named_and_its_record_skipped(
    name: str, change: pl.Expr, reason: str, tmp_path: Path
) -> None:
    directory = measured(tmp_path).directory
    table = directory / "records/c0001-r1" / f"{name}.parquet"
    pl.read_parquet(table).with_columns(change).write_parquet(table, compression="zstd")
    sign(table.parent)
    result_set = ResultSet.open(directory)
    assert result_set.problems == [f"`{table}` is damaged: {reason}"]
    assert "c0001-r1" not in result_set.runs["run_id"]
    assert "c0001-r1" not in result_set.sql("SELECT DISTINCT run_id FROM metrics")["run_id"]


@pytest.mark.engine
@pytest.mark.parametrize("page", ["library", "history"])
def test_a_link_in_place_of_a_page_about_received_result_sets_is_not_followed(
    page: str, victim: Path, tmp_path: Path, iosonde: Iosonde
) -> None:
    """The page is written into the directory by default, without that the user names its file."""
    (tmp_path / "received").mkdir()
    measured(tmp_path / "received/set")
    (tmp_path / f"received/{page}.html").symlink_to(victim / "file")
    before = tree(victim)
    done = iosonde(page, tmp_path / "received")
    assert done.returncode == 1 and "was not written by iosonde" in done.stderr
    assert tree(victim) == before
    assert (tmp_path / f"received/{page}.html").is_symlink()
