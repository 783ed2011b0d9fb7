"""Standard streams that are closed or full, and names that cannot be stored: an error, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import FAKE

pytestmark = pytest.mark.engine


def shell(arguments: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of iosonde, with redirections."""
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


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
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


SHORT = ("--repeats", "1", "--set", "queue_depth=1", "--set", "duration=100ms", "--set", "interval=100ms")
RUN = "io --target null:1MiB --span 1MiB --duration 100ms --ramp 0s --set interval=100ms"


def test_a_log_file_that_cannot_be_written_does_not_end_the_study(tmp_path: Path) -> None:
    done = shell(f"{RUN} --log /dev/full", tmp_path)
    assert done.returncode == 0
    assert done.stderr.count(b"warning: cannot write the log file `/dev/full`: No space left on device") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "quick", "--target", "\udcff", "--output", "set"),
        ("run", "quick", "--target", "null:1TiB", "--output", "\udcff"),
        ("report", "\udcff"),
        ("run", "quick", "--target", "null:99999999999999999999GiB", "--output", "set"),
    ],
)
def test_names_and_sizes_that_cannot_be_stored_are_errors(
    arguments: tuple[str, ...], tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = iosonde(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_time_limit_beyond_every_clock_is_no_limit(tmp_path: Path, iosonde: Iosonde) -> None:
    output = ("--output", tmp_path / "set", "--time-limit", "99999999999h")
    done = iosonde("run", "quick", "--target", "null:1TiB", "--no-report", *output, *SHORT, IOSONDE_ENGINE=str(FAKE))
    assert done.returncode == 0, done.stderr
