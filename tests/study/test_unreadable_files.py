"""Files that a user names by mistake or on purpose: without end, nested without end, of impossible numbers."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from iosonde.base import text_files
from iosonde.cli.terminal import messages
from iosonde.errors import IosondeError, StudyError
from iosonde.features.key_value_stores import notation
from iosonde.interop.fio import import_job_file
from iosonde.storage import open_target
from iosonde.study.load import read, read_text
from iosonde.study.workload.reading import parse_cpus

pytestmark = pytest.mark.unit


READERS: dict[str, Callable[[Path], object]] = {
    "study": read,
    "job file": import_job_file,
    "drive model": lambda path: open_target(f"sim:{path}"),
    "options file of RocksDB": lambda path: notation.of_file(str(path)),
}


@pytest.mark.parametrize("reader", READERS)
def test_only_regular_files_are_read(reader: str, tmp_path: Path) -> None:
    """A FIFO waited for a writer, and a device was read without end."""
    fifo, listening = tmp_path / "fifo.toml", socket.socket(socket.AF_UNIX)
    os.mkfifo(fifo)
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    with listening, pytest.MonkeyPatch.context() as changed:
        changed.chdir(tmp_path)  # The path of a socket is short.
        listening.bind("socket.toml")
        for name, kind in {"fifo": "FIFO", "zero": "character device", "socket": "socket"}.items():
            with pytest.raises(IosondeError, match=f"it is a {kind}, not a regular file"):
                READERS[reader](tmp_path / f"{name}.toml")


def test_a_special_file_is_not_even_opened(tmp_path: Path) -> None:
    """Opening has effects: it starts a watchdog and rewinds a tape. Here it would wake a writer of the FIFO."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(IosondeError, match="cannot write the log file"):
        messages.configure(quiet=False, log=tmp_path / "fifo")
    with pytest.raises(OSError, match="FIFO"):
        text_files.open_regular(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device or address"):
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize("reader", READERS)
def test_a_long_file_is_refused(reader: str, tmp_path: Path) -> None:
    (tmp_path / "long.toml").touch()
    os.truncate(tmp_path / "long.toml", 65 << 20)
    with pytest.raises(IosondeError, match="it is longer than 64 MiB"):
        READERS[reader](tmp_path / "long.toml")


@pytest.mark.parametrize("path", ["a\0b.toml", "/tmp/a\0b", "x" * 5000 + ".toml"])
def test_a_path_that_no_file_can_have_is_an_error(path: str) -> None:
    for use in (read, lambda each: import_job_file(Path(each)), lambda each: open_target(f"sim:{each}")):
        with pytest.raises(IosondeError):
            use(path)


def test_a_study_nested_too_deeply_or_with_numbers_without_end_is_an_error() -> None:
    with pytest.raises(StudyError, match="the study is not TOML: it is nested too deeply"):
        read_text("levels = " + "[" * 5000 + "]" * 5000)
    assert parse_cpus("0-8191") == list(range(8192))
    with pytest.raises(ValueError, match="CPU numbers end at 8191"):
        parse_cpus("0-99999999999")


def test_the_home_directory_of_an_unknown_user_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert text_files.expanded("~/x") == Path("/home/me/x")
    assert text_files.expanded("~no-such-user/x") == Path("~no-such-user/x")
