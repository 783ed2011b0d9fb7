"""Standard streams: closed or full, filtered of escape sequences, and what of the messages `--quiet` suppresses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Iosonde, on_terminal
from engines import FAKE
from fabricate import result_set, small_study
from plans import a_record, hand_plan, tables
from typer.testing import CliRunner

from iosonde.cli import app
from iosonde.cli.terminal import printable
from iosonde.errors import IosondeError
from iosonde.results import ResultSet


def shell(arguments: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command line of iosonde, with redirections."""
    environment = {**os.environ, "IOSONDE_ENGINE": str(FAKE), "XDG_STATE_HOME": str(directory / "state")}
    environment.pop("PYTHONUNBUFFERED", None)  # Output that cannot be written stays in Python's buffer.
    command = ["bash", "-c", f"{sys.executable} -m iosonde {arguments}"]
    done = subprocess.run(command, capture_output=True, cwd=directory, env=environment, check=False)
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


def test_names_and_sizes_that_cannot_be_stored_are_errors(
    tmp_path: Path, iosonde: Iosonde, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (
        ("run", "quick", "--target", "\udcff", "--output", "set"),
        ("run", "quick", "--target", "null:1TiB", "--output", "\udcff"),
        ("report", "\udcff"),
        ("run", "quick", "--target", "null:99999999999999999999GiB", "--output", "set"),
    ):
        done = iosonde(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr
        assert "Traceback" not in done.stderr


def test_a_time_limit_beyond_every_clock_is_no_limit(tmp_path: Path, iosonde: Iosonde) -> None:
    output = ("--output", tmp_path / "set", "--time-limit", "99999999999h")
    done = iosonde("run", "quick", "--target", "null:1TiB", "--no-report", *output, *SHORT, IOSONDE_ENGINE=str(FAKE))
    assert done.returncode == 0, done.stderr


JOB = "[reads]\nrw=randread\nsize=1m\nruntime=1\ntime_based\n"


def test_quiet_suppresses_messages_and_the_log_keeps_them_with_their_time(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text(JOB)
    log = tmp_path / "log"
    arguments = ["import", "fio", str(job)]
    loud = CliRunner().invoke(app, arguments)
    quiet = CliRunner().invoke(app, [*arguments, "--quiet", "--log", str(log)])
    assert (loud.exit_code, quiet.exit_code) == (0, 0)
    assert loud.stdout == quiet.stdout
    assert "all options are carried over" in loud.stderr
    assert quiet.stderr == ""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d converted `.*\n", log.read_text())


def test_a_log_file_that_cannot_be_written_is_an_error_before_anything_is_done(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["list", "--log", str(tmp_path / "missing" / "log")])
    assert isinstance(done.exception, IosondeError)
    assert done.stdout == ""
    assert "cannot write the log file" in str(done.exception)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_respected(tmp_path: Path, no_color: str) -> None:
    for name, speed in (("one", 1.0), ("other", 1.3)):
        result_set(tmp_path / name, small_study(), seconds=1, speed=speed)
    command = [sys.executable, "-m", "iosonde", "compare", tmp_path / "one", tmp_path / "other"]
    shown = on_terminal(command, NO_COLOR=no_color)
    assert "better" in shown
    assert (re.search(r"\x1b\[[0-9;]*3[0-7]m", shown) is not None) == (not no_color)


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A result set with escape sequences wherever text is free."""
    plan = hand_plan(levels=(f"deep{EVIL}",), factor="label", repeats=1)
    cases = [case.model_copy(update={"parameters": {"queue_depth": 1}}) for case in plan.cases]
    study = {**plan.study, "title": EVIL, "question": EVIL}
    plan = plan.model_copy(update={"study": study, "profile": EVIL, "cases": cases})
    result_set = ResultSet.create(tmp_path / "set", plan)
    [run] = plan.runs
    warning = {"code": "x", "message": EVIL, "hint": EVIL}
    with result_set.lock():
        record = a_record(plan, run, warnings=[warning], target={"kind": "null", "name": EVIL})
        result_set.write(record, *tables(run.run_id))
    (result_set.directory / "records" / f"x{EVIL}").mkdir()
    return result_set.directory


def is_clean(printed: str) -> bool:
    return not any(mark in printed for mark in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_everything_is_printed_without_escape_sequences(hostile: Path, iosonde: Iosonde) -> None:
    query = "SELECT message, chr(27) || '[2J' AS c, chr(155) || 'x' AS d FROM warnings"
    for arguments in (
        ("sql", hostile, query, "--format", "json"),
        ("sql", hostile, f"SELECT '{EVIL}' FROM nowhere"),
        ("export", hostile, "--format", "csv", "--output", hostile.parent / f"out{EVIL}"),
        ("report", hostile / EVIL),
        ("report", hostile, "--output", hostile.parent / f"report{EVIL}.html"),
        ("resume", hostile, "--no-report"),
        ("show", EVIL),
    ):
        done = iosonde(*arguments)
        assert done.stdout + done.stderr and is_clean(done.stdout + done.stderr), arguments
        assert "owned" in done.stdout or query not in arguments
    shown = on_terminal((sys.executable, "-m", "iosonde", "sql", hostile, query, "--format", "table"), COLUMNS="200")
    assert is_clean(shown) and "owned" in shown and "\x1b[" in shown, "styles of rich stay"


def test_text_keeps_its_lines_and_tabs() -> None:
    assert printable("a\tb\nü€") == "a\tb\nü€"
    assert printable("\x1b[2J\r\udc80") == "\\x1b[2J\\r\\udc80"
