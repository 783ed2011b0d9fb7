"""The journal: what iosonde made is removed after a crash, and nothing else ever is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iosonde.errors import TargetError
from iosonde.storage import journal

MAKE_AND_DIE = """
import os, sys
from pathlib import Path
from iosonde.storage import journal
path = Path(sys.argv[1])
journal.created(path, sys.argv[2], keep=sys.argv[4] == "keep")
if sys.argv[3] != "announced":
    path.mkdir() if sys.argv[2] == "directory" else path.write_text("x")
if sys.argv[3] == "identified":
    journal.identify(path)
os.kill(os.getpid(), 9)
"""


def left_by_a_killed_process(path: Path, what: str = "file", until: str = "identified", keep: str = "no") -> None:
    subprocess.run([sys.executable, "-c", MAKE_AND_DIE, str(path), what, until, keep], check=False)
    assert journal.find(path) is not None


def reasons() -> list[str]:
    return [each.reason for each in journal.cleanup()]


def test_a_file_left_by_a_killed_process_is_removed(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "left")
    assert reasons() == ["removed"]
    assert list(tmp_path.iterdir()) == []
    assert reasons() == []


def test_a_directory_is_removed_with_the_files_in_it(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "left", "directory")
    (tmp_path / "left" / "data").write_text("x")
    assert reasons() == ["removed"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_more_than_files_is_left(tmp_path: Path) -> None:
    """A user put something there that iosonde would not."""
    left_by_a_killed_process(tmp_path / "left", "directory")
    (tmp_path / "left" / "data").write_text("x")
    (tmp_path / "left" / "mine").mkdir()
    (cleaned,) = journal.cleanup()
    assert cleaned.failed
    assert (tmp_path / "left" / "data").exists()


def test_what_was_announced_and_never_made_is_forgotten(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "left", until="announced")
    assert reasons() == ["is gone already"]
    assert journal.entries() == []


def test_what_was_made_but_not_identified_is_removed_only_if_empty(tmp_path: Path) -> None:
    """The process died between making it and noting its inode: a name alone proves nothing about content."""
    left_by_a_killed_process(tmp_path / "full", until="made")
    left_by_a_killed_process(tmp_path / "empty", "directory", until="made")
    assert sorted(reasons()) == ["is no longer what iosonde made: left alone", "removed"]
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_what_was_made_but_not_identified_is_taken_over_only_if_empty(tmp_path: Path) -> None:
    """A kill between the two steps must not end a study for good."""
    left_by_a_killed_process(tmp_path / "empty", "directory", "made")
    assert journal.is_ours(tmp_path / "empty")
    assert journal.take_over(tmp_path / "empty", keep=False)
    (tmp_path / "empty" / "data").write_text("x")
    assert journal.is_ours(tmp_path / "empty"), "it is known now, whatever it holds"
    left_by_a_killed_process(tmp_path / "full", "directory", "made")
    (tmp_path / "full" / "data").write_text("x")
    assert not journal.take_over(tmp_path / "full", keep=False)


def test_another_file_under_the_same_name_is_left(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left_by_a_killed_process(left)
    left.rename(tmp_path / "moved")
    left.write_text("precious")
    assert reasons() == ["is no longer what iosonde made: left alone"]
    assert left.read_text() == "precious"


def test_a_link_under_the_same_name_is_left_and_so_is_what_it_points_to(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left_by_a_killed_process(left, "directory", until="announced")
    (tmp_path / "precious").mkdir()
    left.symlink_to(tmp_path / "precious")
    assert reasons() == ["is no longer what iosonde made: left alone"]
    assert left.is_symlink()


def test_what_a_running_process_uses_is_left(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    journal.created(mine, "file")
    mine.touch()
    journal.identify(mine)
    (reason,) = reasons()
    assert reason.startswith("is in use by process")
    assert mine.exists()


def test_what_another_running_process_uses_cannot_be_taken_over(tmp_path: Path) -> None:
    script = MAKE_AND_DIE.replace("os.kill(os.getpid(), 9)", "print('made', flush=True); sys.stdin.read()")
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "theirs"), "file", "identified", "no"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout and other.stdin
    other.stdout.readline()
    try:
        with pytest.raises(TargetError, match="in use by another iosonde"):
            journal.take_over(tmp_path / "theirs", keep=False)
    finally:
        other.communicate()


def test_what_was_to_be_kept_is_kept_until_asked_for(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "kept", keep="keep")
    assert reasons() == ["was to be kept (`--kept` removes it as well)"]
    assert [each.reason for each in journal.cleanup(kept=True)] == ["removed"]


def test_a_damaged_entry_is_passed_over(tmp_path: Path) -> None:
    left_by_a_killed_process(tmp_path / "left")
    (entry,) = journal._directory().glob("*.json")
    entry.write_text("{")
    assert reasons() == []
    assert (tmp_path / "left").exists()


def test_nothing_is_made_where_it_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(TargetError, match="cannot note"):
        journal.created(tmp_path / "new", "file")
