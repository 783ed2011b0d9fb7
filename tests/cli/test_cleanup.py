from __future__ import annotations

import os
import signal
from pathlib import Path

from command_line import Iosonde

from iosonde.storage.safety import journal


def leave(path: Path, keep: str = "no") -> None:
    """A process makes a directory and ends without removing it."""
    child = os.fork()
    if child == 0:
        journal.created(path, "directory", keep=keep == "keep")
        path.mkdir()
        journal.identify(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_cleanup_removes_leftovers_and_lists_them(iosonde: Iosonde, tmp_path: Path) -> None:
    leave(tmp_path / "left")
    leave(tmp_path / "kept", "keep")
    done = iosonde("cleanup")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.replace(str(tmp_path), "DIR").splitlines()) == [
        "DIR/kept: was kept (`--kept PATH` removes it as well)",
        "DIR/left: removed",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert iosonde("cleanup", "--kept", tmp_path / "kept", "--yes").stdout.splitlines() == [
        f"would remove the kept directory {tmp_path}/kept (0 B)",
        f"{tmp_path}/kept: removed",
    ]
    assert iosonde("cleanup").stdout == "nothing to remove\n"


def test_kept_files_of_other_paths_remain_and_none_is_removed_without_confirmation(
    iosonde: Iosonde, tmp_path: Path
) -> None:
    for name in ("one", "other"):
        leave(tmp_path / name, "keep")
    done = iosonde("cleanup", "--kept", tmp_path / "one")
    assert done.returncode == 1
    assert done.stdout == f"would remove the kept directory {tmp_path}/one (0 B)\n"
    assert "standard input is not a terminal" in done.stderr
    assert "add `--yes` in scripts" in done.stderr
    assert iosonde("cleanup", "--kept", tmp_path / "none", "--yes").stdout.splitlines() == [
        f"no kept files at or below {tmp_path}/none",
        "nothing was removed",
    ]
    iosonde("cleanup", "--kept", tmp_path / "one", "--yes")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_failed_cleanup_has_an_exit_code(iosonde: Iosonde, tmp_path: Path) -> None:
    leave(tmp_path / "left")
    (tmp_path / "left" / "precious").mkdir()
    done = iosonde("cleanup")
    assert done.returncode == 1
    assert "could not be removed" in done.stdout
    assert (tmp_path / "left" / "precious").exists()
