"""Escape sequences in titles, records, file names and SQL results never reach the terminal (D10)."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import CHECKOUT, Iosonde
from plans import a_record, hand_plan, tables

from iosonde.cli.terminal import printable
from iosonde.results import ResultSet

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\r"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
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


@pytest.mark.parametrize("command", ["report", "show"])
def test_a_terminal_of_no_columns_has_80(command: str, iosonde: Iosonde, tmp_path: Path) -> None:
    """`COLUMNS=0` is what some programs export where there is no terminal."""
    plan = hand_plan(levels=(1,), repeats=1)
    result_set = ResultSet.create(tmp_path / "set", plan)
    with result_set.lock():
        result_set.write(a_record(plan, plan.runs[0]), *tables(plan.runs[0].run_id))
    argument = result_set.directory if command == "report" else "quick"
    without, with_80 = (iosonde(command, argument, COLUMNS=columns) for columns in ("0", "80"))
    assert (without.returncode, without.stderr) == (with_80.returncode, with_80.stderr) == (0, "")
    assert without.stdout == with_80.stdout


COMMANDS = """
import json, os, sys
from iosonde.cli import main
unfiltered, filtered = (sys.stdout, sys.stderr), []
for arguments in json.loads(sys.argv.pop()):
    sys.argv[1:] = arguments
    sys.stdout, sys.stderr = unfiltered
    try:
        main()
    except SystemExit:
        pass
    filtered += sys.stdout, sys.stderr  # A stream that is collected closes its file.
    os.write(1, b"\\f")
"""
"""One process for several commands, because starting Python takes longer than any of them."""


def on_terminal(*commands: Sequence[str | Path]) -> list[bytes]:
    """Run command lines on a pseudo terminal; returns everything that each prints."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), "TERM": "xterm", "COLUMNS": "200"}
    given = json.dumps([[*map(str, each)] for each in commands])
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS, given], stdout=theirs, stderr=theirs, stdin=theirs, env=environment
    )
    os.close(theirs)
    printed = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        printed += chunk
    assert process.wait() == 0, printed
    os.close(ours)
    *found, rest = printed.split(b"\f")
    assert (len(found), rest) == (len(commands), b""), printed
    return found


def is_clean(printed: bytes) -> bool:
    text = printed.decode()
    return not any(mark in text for mark in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_sql_results_are_printed_without_escape_sequences(directory: Path) -> None:
    query = "SELECT message, chr(27) || '[2J' AS c, chr(155) || 'x' AS d FROM warnings"
    formats = ("table", "csv", "json")
    for format, printed in zip(
        formats, on_terminal(*(("sql", directory, query, "--format", each) for each in formats)), strict=True
    ):
        assert is_clean(printed), format
        assert b"owned" in printed and b"damaged" not in printed, format


def test_messages_errors_and_reports_are_printed_without_escape_sequences(directory: Path) -> None:
    commands = [
        ("sql", directory, f"SELECT '{EVIL}' FROM nowhere"),
        ("export", directory, "--format", "csv", "--output", directory.parent / f"out{EVIL}"),
        ("report", directory / EVIL),
        ("report", directory, "--output", directory.parent / f"report{EVIL}.html"),
        ("resume", directory, "--no-report"),
        ("show", EVIL),
    ]
    for arguments, printed in zip(commands, on_terminal(*commands), strict=True):
        assert is_clean(printed), arguments
        assert printed, arguments


def test_styles_of_rich_stay(directory: Path) -> None:
    [printed] = on_terminal(("sql", directory, "SELECT 1 AS one", "--format", "table"))
    assert b"\x1b[" in printed


def test_text_keeps_its_lines_and_tabs() -> None:
    assert printable("a\tb\nü€") == "a\tb\nü€"
    assert printable("\x1b[2J\r\udc80") == "\\x1b[2J\\r\\udc80"
