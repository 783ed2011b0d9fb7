"""Leftovers of killed writers, in result sets and elsewhere: `iosonde cleanup` removes them, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plans import a_record, hand_plan, tables

from iosonde.results import ResultSet
from iosonde.storage.safety import journal
from iosonde.storage.targets.temporary_files import TemporaryNames

pytestmark = pytest.mark.engine

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from plans import a_record, hand_plan, tables
from iosonde.results import ResultSet, files
from iosonde.results.query_process import answer

directory, scratch = Path(sys.argv[2]), Path(sys.argv[3])
rename = os.rename

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def before_the_rename():
    # The journal, which goes first, renames as usual.
    os.rename = lambda *paths, **options: rename(*paths) if "/iosonde/created/" in str(paths[0]) else die()
"""

WRITERS = {
    "creation": "before_the_rename(); ResultSet.create(scratch / 'new', hand_plan())",
    "record": """
found = ResultSet.open(directory)
with found.lock():
    before_the_rename()
    found.write(a_record(found.plan, found.plan.runs[1]), *tables(found.plan.runs[1].run_id))
""",
    "reserve": """
with ResultSet.open(directory).lock():
    die()
""",
    "report": "before_the_rename(); files.write_output(directory / 'report.html', b'x', within=[directory])",
    "export": "before_the_rename(); ResultSet.open(directory).export('csv', scratch / 'export')",
    "connection": "connection = ResultSet.open(directory).connect(); die()",
    "query": "import subprocess; subprocess.Popen.wait = die; answer(directory, 'SELECT 1')",
}
"""Each dies where it has written, and before it would rename or remove that."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    result_set = ResultSet.create(tmp_path / "set", hand_plan())
    with result_set.lock():
        run = result_set.plan.runs[0]
        result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    return result_set.directory


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.name.startswith((".tmp-", "iosonde-"))]


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_killed_writer_leaves_is_removed_by_cleanup(writer: str, directory: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", KILLED + WRITERS[writer], Path(__file__).parents[1], directory, scratch],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert leftovers(tmp_path)
    records = set(directory.glob("records/c0001-r1/*"))
    cleaned = journal.cleanup()
    assert cleaned
    assert not any(each.failed for each in cleaned)
    assert leftovers(tmp_path) == []
    assert records == set(directory.glob("records/c0001-r1/*"))
    assert journal.entries() == []
    assert journal.cleanup() == []


def test_a_session_that_ends_leaves_no_entry_and_one_that_runs_is_not_disturbed(directory: Path) -> None:
    with ResultSet.open(directory).lock():
        [reserve] = directory.glob(".tmp-*")
        assert journal.cleanup() == []
        assert reserve.exists()
    assert journal.entries() == []


def test_the_next_writer_of_a_set_removes_files_and_journal_entry_of_a_killed_one(directory: Path) -> None:
    path = directory / left_by_a_killed_process(directory)
    path.write_text("incomplete")
    assert [entry.what for entry in journal.entries()] == ["temporary file"]
    with ResultSet.open(directory).lock():
        assert not path.exists()
    assert journal.entries() == []


def left_by_a_killed_process(directory: Path) -> str:
    """A name that a killed process had chosen."""
    pipe, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(end, TemporaryNames(os.open(directory, os.O_RDONLY)).new().encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(end)
    with os.fdopen(pipe) as name:
        return name.read()


@pytest.mark.parametrize("kind", ["link", "link to a directory", "hard link", "FIFO", "directory with a link"])
def test_links_under_a_temporary_name_are_removed_and_not_what_they_lead_to(kind: str, tmp_path: Path) -> None:
    inside, victim = tmp_path / "set", tmp_path / "victim"
    inside.mkdir()
    victim.mkdir()
    (victim / "file").write_text("precious")
    path = inside / left_by_a_killed_process(inside)
    match kind:
        case "link":
            path.symlink_to(victim / "file")
        case "link to a directory":
            path.symlink_to(victim)
        case "hard link":
            path.hardlink_to(victim / "file")
        case "FIFO":
            os.mkfifo(path)
        case "directory with a link":
            path.mkdir()
            (path / "link").symlink_to(victim)
    assert [each.reason for each in journal.cleanup()] == ["the temporary file was removed"]
    assert list(inside.iterdir()) == []
    assert (victim / "file").read_text() == "precious"


def test_other_files_stay_also_where_a_link_replaced_the_directory(tmp_path: Path) -> None:
    inside, victim = tmp_path / "set", tmp_path / "victim"
    inside.mkdir()
    victim.mkdir()
    name = left_by_a_killed_process(inside)
    (inside / name).touch()
    foreign = [".tmp-c0001-r1", ".tmp-0123456789abcdef-1", name.removesuffix("-1")[:-1], "plan.json"]
    for each in foreign:
        (victim / each).touch()
        (inside / each).touch()
    inside.rename(tmp_path / "moved")
    inside.symlink_to(victim)
    assert journal.cleanup() == []
    assert {path.name for path in victim.iterdir()} == set(foreign)
    assert {path.name for path in (tmp_path / "moved").iterdir()} == {*foreign, name}


def test_what_cannot_be_removed_is_reported_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / left_by_a_killed_process(tmp_path)).touch()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as refusing:
        refusing.setattr(os, "unlink", refuse)
        assert [(each.failed, each.reason) for each in journal.cleanup()] == [
            (True, "could not be removed: Operation not permitted")
        ]
    assert [each.failed for each in journal.cleanup()] == [False]
    assert list(tmp_path.glob(".tmp-*")) == []


def test_a_report_is_written_without_a_journal(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory.parent / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(directory.parent / "file"))
    with ResultSet.open(directory).lock():
        pass
    assert list(directory.glob(".tmp-*")) == []
