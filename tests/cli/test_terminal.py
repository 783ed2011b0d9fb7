"""Escape sequences in titles, records, file names and SQL results never reach the terminal (D10)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT
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


def on_terminal(*arguments: str | Path) -> bytes:
    """Run the command line on a pseudo terminal; returns everything it prints."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python"), "TERM": "xterm", "COLUMNS": "200"}
    command = [sys.executable, "-m", "iosonde", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
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
    process.wait()
    os.close(ours)
    return printed


def is_clean(printed: bytes) -> bool:
    text = printed.decode()
    return not any(mark in text for mark in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e"))


@pytest.mark.parametrize("format", ["table", "csv", "json"])
def test_sql_results_are_printed_without_escape_sequences(directory: Path, format: str) -> None:
    query = "SELECT message, chr(27) || '[2J' AS c, chr(155) || 'x' AS d FROM warnings"
    printed = on_terminal("sql", directory, query, "--format", format)
    assert is_clean(printed)
    assert b"owned" in printed and b"damaged" not in printed


def test_messages_errors_and_reports_are_printed_without_escape_sequences(directory: Path) -> None:
    for arguments in (
        ("sql", directory, f"SELECT '{EVIL}' FROM nowhere"),
        ("export", directory, "--format", "csv", "--output", directory.parent / f"out{EVIL}"),
        ("report", directory / EVIL),
        ("report", directory, "--output", directory.parent / f"report{EVIL}.html"),
        ("resume", directory, "--no-report"),
        ("show", EVIL),
    ):
        assert is_clean(on_terminal(*arguments)), arguments


def test_styles_of_rich_stay(directory: Path) -> None:
    assert b"\x1b[" in on_terminal("sql", directory, "SELECT 1 AS one", "--format", "table")


def test_text_keeps_its_lines_and_tabs() -> None:
    assert printable("a\tb\nü€") == "a\tb\nü€"
    assert printable("\x1b[2J\r\udc80") == "\\x1b[2J\\r\\udc80"
