"""Messages on standard error, in the log file, and what of them `--quiet` suppresses; data on standard output."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command_line import on_terminal
from fabricate import result_set, small_study
from typer.testing import CliRunner

from iosonde.cli import app
from iosonde.cli.tables import print_table
from iosonde.errors import IosondeError

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


def test_a_table_that_is_too_wide_breaks_no_word_and_leaves_no_trailing_space(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = "completion latency at the ninety-ninth percentile"
    print_table([["a-long-name-that-has-no-break", words], ["short", "x"]], heads=["Case", "Value"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert " ".join(" ".join(lines[1:-1]).split()) == f"a-long-name-that-has-no-break {words}"


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_respected(tmp_path: Path, no_color: str) -> None:
    for name, speed in (("one", 1.0), ("other", 1.3)):
        result_set(tmp_path / name, small_study(), seconds=1, speed=speed)
    command = [sys.executable, "-m", "iosonde", "compare", tmp_path / "one", tmp_path / "other"]
    shown = on_terminal(command, NO_COLOR=no_color)
    assert "better" in shown
    assert (re.search(r"\x1b\[[0-9;]*3[0-7]m", shown) is not None) == (not no_color)
