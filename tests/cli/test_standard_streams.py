"""Standard streams that are closed or full, and names that cannot be stored: an error, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engines import FAKE

pytestmark = pytest.mark.engine

STUDY = """
name = "short"
title = "Short"
question = "?"
repeats = 1
[measurement]
span = "1MiB"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
factors.queue_depth = [1]
[profiles.standard]
"""


def shell(arguments: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of iosonde, with redirections, in a directory that has `study.toml`."""
    (directory / "study.toml").write_text(STUDY)
    environment = {**os.environ, "IOSONDE_ENGINE": str(FAKE), "XDG_STATE_HOME": str(directory / "state")}
    environment.pop("PYTHONUNBUFFERED", None)  # Output that cannot be written stays in Python's buffer.
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m iosonde {arguments}"],
        capture_output=True,
        cwd=directory,
        env=environment,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert b"Exception ignored" not in done.stderr, done.stderr.decode()
    return done


def test_a_full_standard_output_is_an_error(tmp_path: Path) -> None:
    done = shell("show quick > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, b"error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_number_of_a_closed_standard_stream(closed: str, tmp_path: Path) -> None:
    """A target that is opened as number 1 or 2 would receive what is printed."""
    program = (
        "import os\nfrom iosonde.cli import terminal\nterminal.install()\nprint('text')\n"
        "opened = os.open('target', os.O_RDWR | os.O_CREAT)\nos.write(2, b'text')\nos._exit(opened)"
    )
    done = subprocess.run(["bash", "-c", f'{sys.executable} -c "{program}" {closed}'], cwd=tmp_path, check=False)
    assert done.returncode > 2, "number of the target's descriptor"
    assert (tmp_path / "target").read_bytes() == b""
    assert shell(f"show quick {closed}", tmp_path).returncode == 0


def test_a_log_file_that_cannot_be_written_does_not_end_the_study(tmp_path: Path) -> None:
    done = shell("run study.toml --target null:1GiB --output set --no-report --log /dev/full", tmp_path)
    assert done.returncode == 0
    assert done.stderr.count(b"warning: cannot write the log file `/dev/full`: No space left on device") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "run study.toml --target $'\\xff' --output set",
        "run study.toml --target null:1GiB --output $'\\xff'",
        "report $'\\xff'",
        "run study.toml --target null:99999999999999999999GiB --output set",
    ],
)
def test_names_and_sizes_that_cannot_be_stored_are_errors(arguments: str, tmp_path: Path) -> None:
    done = shell(arguments, tmp_path)
    assert done.returncode == 1
    assert b"error: " in done.stderr


def test_a_time_limit_beyond_every_clock_is_no_limit(tmp_path: Path) -> None:
    done = shell("run study.toml --target null:1GiB --output set --no-report --time-limit 99999999999h", tmp_path)
    assert done.returncode == 0
