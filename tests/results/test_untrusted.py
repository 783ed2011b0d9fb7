"""A result set from somebody else: `resume`, `report` and `sql` write and read nothing outside it (D4, D5, D6, D10)."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Iosonde
from engines import FAKE
from made_sets import made
from plans import a_record, hand_plan, null_spec, sign, sign_plan, tables
from recordings import recorded

from iosonde import report
from iosonde.errors import IosondeError, ResultsError, TargetError
from iosonde.execution.admission import Admission, check_libraries
from iosonde.execution.session import resume
from iosonde.plan import Plan
from iosonde.results import ResultSet

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


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"kind": "device", "path": "/dev/loop0", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "/run/iosonde/../../tmp/victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "TARGET/victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": f"TARGET/{OWN}/../victim", "size_bytes": FILE_BYTES},
        {"kind": "file", "path": "TARGET/iosonde-00000002/data", "size_bytes": FILE_BYTES},
        {"kind": "directory", "path": "TARGET/../x/db", "log_path": None},
        {"kind": "directory", "path": f"TARGET/{OWN}/lmdb-1", "log_path": "/etc/x/lmdb-1-log"},
        {"kind": "virtual", "size_bytes": FILE_BYTES},
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


def test_a_plan_without_a_directory_of_its_own_names_nothing_in_the_target(target: Path, tmp_path: Path) -> None:
    file = {"kind": "file", "path": str(target / "data"), "size_bytes": FILE_BYTES}
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(with_target(plan_on(target, created_name=""), file), tmp_path / "set").check_plan()


HOSTILE_OPTIONS = (
    *({"db_log_dir=/tmp/x;ttl": 0}, {" wal_dir": "wal"}, {"ttl": "0;wal_dir=wal"}, {"ttl": "0}; wal_dir={wal"}),
    {"compaction_options_universal": "{size_ratio=2};wal_dir=wal"},
)


@pytest.mark.parametrize(
    "workload",
    [
        {"backend": {"kind": "ssd", "state_path": "/tmp/victim"}},
        {"verify": {"when": "after", "journal_directory": "/etc"}},
        {"streams": [{"name": "../../victim", "jobs": 1}]},
        {"streams": [{"name": "x" * 129, "jobs": 1}]},
        {"store": {"kind": "rocksdb", "library": "lib/evil.so", "options": {}}},
        {"store": {"kind": "rocksdb", "library": "SET/evil.so", "options": {}}},
        {"store": {"kind": "rocksdb", "library": None, "options": {"db_log_dir": "/tmp/x"}}},
        *({"store": {"kind": "rocksdb", "library": None, "options": options}} for options in HOSTILE_OPTIONS),
        {"store": "rocksdb"},
    ],
    ids=str,
)
def test_other_paths_in_a_spec_are_refused(workload: dict[str, Any], target: Path, tmp_path: Path) -> None:
    plan = plan_on(target)
    own = plan.runs[0].spec["workload"]["target"]
    (tmp_path / "set").mkdir()
    (tmp_path / "set/evil.so").write_bytes(b"")
    workload = json.loads(json.dumps(workload).replace("SET", str(tmp_path / "set")))
    with pytest.raises(TargetError, match="names another target than its own"):
        Admission.for_plan(with_target(plan, own, **workload), tmp_path / "set").check_plan()


def test_the_plan_of_a_directory_passes_also_with_spaces_in_the_name_of_a_stream(target: Path, tmp_path: Path) -> None:
    plan = plan_on(target)
    Admission.for_plan(plan, tmp_path / "set").check_plan()
    own = plan.runs[0].spec["workload"]["target"]
    streams = [{**stream, "name": "open, poisson"} for stream in plan.runs[0].spec["workload"]["streams"]]
    Admission.for_plan(with_target(plan, own, streams=streams), tmp_path / "set").check_plan()


@pytest.mark.engine
@pytest.mark.parametrize("library", ["{here}/evil.so", "{here}/set/evil.so", "/proc/self/cwd/evil.so"])
def test_a_library_beside_a_result_set_is_not_loaded(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = recorded("store", tmp_path / "set").directory
    for place in (tmp_path, directory):
        (place / "evil.so").write_bytes(b"")
    monkeypatch.chdir(tmp_path)

    def loading(path: str) -> Plan:
        content = json.loads((directory / "plan.json").read_bytes())
        for run in content["runs"]:
            run["spec"]["workload"]["store"] = {"kind": "rocksdb", "library": path, "options": {}}
        (directory / "plan.json").write_text(json.dumps(content))
        sign_plan(directory)
        return ResultSet.open(directory).plan

    check_libraries(loading("/usr/lib/x86_64-linux-gnu/librocksdb.so.7"))
    with pytest.raises(TargetError, match="which is not in a directory of the system"):
        check_libraries(loading(f"/usr/../{tmp_path}/evil.so"))
    library = library.format(here=tmp_path)
    check_libraries(loading(library), (library,))
    with pytest.raises(TargetError, match="which is not in a directory of the system"):
        resume(directory)


@pytest.mark.parametrize("run_id", ["../../../escaped", "..", "", ".tmp-x", "c1\n", "x" * 65])
def test_a_run_id_that_is_no_file_name_is_refused(run_id: str, target: Path, tmp_path: Path) -> None:
    first = plan_on(target).runs[0].model_copy(update={"run_id": run_id, "spec": null_spec(run_id)})
    with pytest.raises(ResultsError, match=r"plan\.json` is damaged"):
        ResultSet.open(received(plan_on(target, runs=[first]), tmp_path))


@pytest.mark.parametrize("own", ["../x", "iosonde-1", "/etc"])
def test_an_own_name_that_is_no_own_name_is_refused(own: str, target: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"plan\.json` is damaged"):
        ResultSet.open(received(plan_on(target, created_name=own), tmp_path))


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
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "file").write_text("years of work")
    return directory


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
    directory = made(tmp_path)
    to = victim if name in ("figures", "records", "environments", "records/c0001-r1") else victim / "file"
    link(directory / name, to)
    before = tree(victim)
    with suppress(IosondeError):
        USES[use](directory)
    assert tree(victim) == before


def test_a_hard_linked_lock_is_refused(victim: Path, tmp_path: Path) -> None:
    directory = made(tmp_path)
    (directory / "lock").unlink()
    os.link(victim / "file", directory / "lock")
    with (
        pytest.raises(ResultsError, match="not a regular file with a single hard link"),
        ResultSet.open(directory).lock(),
    ):
        pass
    assert (victim / "file").read_text() == "years of work"


def test_a_pipe_or_a_file_of_impossible_size_is_damaged_and_not_read(tmp_path: Path) -> None:
    directory = made(tmp_path)
    pipe, long = (directory / "records" / run / "record.json" for run in ("c0001-r1", "c0002-r1"))
    pipe.unlink()
    os.mkfifo(pipe)
    os.truncate(long, 1 << 40)  # sparse
    assert sorted(ResultSet.open(directory).problems) == [
        f"`{pipe}` is damaged: it is a FIFO, not a regular file",
        f"`{long}` is damaged: it is longer than 1 GiB",
    ]
    for name in ("plan.json", "format.json"):
        directory = made(tmp_path / name)
        os.truncate(directory / name, 1 << 40)
        with pytest.raises(ResultsError, match="it is longer than 1 GiB"):
            ResultSet.open(directory)


def test_a_table_of_millions_of_equal_rows_in_a_few_bytes_is_damaged(tmp_path: Path) -> None:
    """Parquet stores a repeated row once, so a small file could fill the memory of its reader."""
    result_set = made(tmp_path)
    [victim, *_] = [each.run_id for each in ResultSet.open(result_set).records()]
    directory = result_set / "records" / victim
    row = pl.read_parquet(directory / "histograms.parquet").head(1)
    row.select(pl.all().repeat_by(3_000_000).explode()).write_parquet(directory / "histograms.parquet")
    sign(directory)
    again = ResultSet.open(result_set)
    [problem] = again.problems
    assert "histograms.parquet` is damaged: it has more than" in problem
    assert victim not in [each.run_id for each in again.records()]
    opened = ResultSet.open_records(result_set)
    records = [each for each in opened.records() if each.run_id == victim]
    with pytest.raises(ResultsError, match="it has more than"), opened.scan("histograms", records):
        pass


def test_a_directory_with_a_pattern_for_a_name_is_read_and_none_of_its_siblings(tmp_path: Path) -> None:
    """`a[1]` as a pattern is `a1`, `st*r` is `star` and `q?` is `qq` (D5)."""
    exported = ["a[1]", "it's"]
    names = [*exported, "st*r", "q?", "{x}", "é\\"]
    for name in (*names, "a1", "star", "qq"):
        result_set = ResultSet.create(tmp_path / name, hand_plan(levels=(1,), repeats=1))
        with result_set.lock():
            [run] = result_set.plan.runs
            result_set.write(a_record(result_set.plan, run), *tables(run.run_id, [1000 if name in names else 7000]))
    for name in names:
        result_set = ResultSet.open(tmp_path / name)
        assert result_set.intervals["completion_latency_ns_sum"].to_list() == [1000]
        assert result_set.sql("SELECT sum(count) AS n FROM histograms")["n"].item() == 1
    for name in exported:
        out = tmp_path / "out" / name
        ResultSet.open(tmp_path / name).export("csv", out)
        assert pl.read_csv(out / "intervals.csv", glob=False)["completion_latency_ns_sum"].item() == 1000


@pytest.mark.engine
@pytest.mark.parametrize("page", ["library", "history"])
def test_a_link_in_place_of_a_page_is_not_followed(page: str, victim: Path, tmp_path: Path, iosonde: Iosonde) -> None:
    """The page is written into the directory by default, without that the user names its file."""
    (tmp_path / "received").mkdir()
    made(tmp_path / "received")
    (tmp_path / f"received/{page}.html").symlink_to(victim / "file")
    before = tree(victim)
    done = iosonde(page, tmp_path / "received")
    assert done.returncode == 1 and "was not written by iosonde" in done.stderr
    assert tree(victim) == before
    assert (tmp_path / f"received/{page}.html").is_symlink()
