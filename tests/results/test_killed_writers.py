"""Writers that are killed, whose leftovers `iosonde cleanup` removes and nothing else; and those without space."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Iosonde
from made_sets import measured
from plans import a_record, hand_plan, tables

from iosonde.errors import ResultsError
from iosonde.results import ResultSet
from iosonde.storage.safety import journal
from iosonde.storage.targets.temporary_files import TemporaryNames

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
    "query": "import subprocess; subprocess.Popen.wait = die; answer('SELECT 1', directory=directory)",
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


@pytest.mark.engine
@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_killed_writer_leaves_is_removed_by_cleanup(writer: str, directory: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", KILLED + WRITERS[writer], Path(__file__).parents[1], directory, scratch]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
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


@pytest.mark.engine
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


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["link to a directory", "hard link", "FIFO", "directory with a link"])
def test_links_under_a_temporary_name_are_removed_and_not_what_they_lead_to(kind: str, tmp_path: Path) -> None:
    inside, victim = tmp_path / "set", tmp_path / "victim"
    inside.mkdir()
    victim.mkdir()
    (victim / "file").write_text("precious")
    path = inside / left_by_a_killed_process(inside)
    match kind:
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


@pytest.mark.engine
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


@pytest.mark.engine
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


def test_a_session_without_a_journal_writes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory.parent / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(directory.parent / "file"))
    with ResultSet.open(directory).lock():
        pass
    assert list(directory.glob(".tmp-*")) == []


WITHOUT_SPACE = pytest.mark.needs("root", "mount", "umount")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


def fill(directory: Path) -> None:
    with (directory / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            pass


@pytest.mark.system
@WITHOUT_SPACE
def test_a_record_without_space_is_an_error_and_earlier_ones_are_kept(small: Path) -> None:
    directory = measured(small / "set")
    result_set = ResultSet.open(directory)
    run = result_set.plan.runs[0].model_copy(update={"run_id": "c0001-r9"})
    with pytest.raises(ResultsError, match="cannot write the record"), result_set.lock():
        fill(small)
        assert result_set._writable
        result_set._writable.reserve.release()
        fill(small)
        result_set.write(a_record(result_set.plan, run), *tables(run.run_id))
    assert len(ResultSet.open(directory).records()) == 4
    with pytest.raises(ResultsError, match=r"cannot create the result set .*: No space left on device"):
        ResultSet.create(small / "new", hand_plan())


@pytest.mark.system
@WITHOUT_SPACE
def test_run_and_resume_without_space_print_an_error_and_no_traceback(small: Path, iosonde: Iosonde) -> None:
    directory = measured(small / "set")
    fill(small)
    for arguments in (
        ("resume", directory, "--retry-failed", "--no-report"),
        ("run", "quick", "--target", "null:1TiB", "--output", small / "other", "--no-report"),
        ("report", directory),
        ("export", directory, "--format", "csv", "--output", small / "export"),
    ):
        done = iosonde(*arguments)
        assert "Traceback" not in done.stderr, arguments
        assert done.returncode != 0, (arguments, done.stderr)
        assert "o space left" in done.stderr, (arguments, done.stderr)
