"""Escape sequences in titles, records, file names and SQL results never reach the terminal (D10)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import on_terminal
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


def each_on_terminal(*commands: Sequence[str | Path]) -> list[str]:
    """Run command lines on a pseudo terminal; returns everything that each prints."""
    given = json.dumps([[*map(str, each)] for each in commands])
    *found, rest = on_terminal((sys.executable, "-c", COMMANDS, given), COLUMNS="200").split("\f")
    assert (len(found), rest) == (len(commands), ""), found
    return found


def is_clean(printed: str) -> bool:
    return not any(mark in printed for mark in ("\x1b]0", "\x07", "\x1b[2J", "\x9b", "\u202e"))


def test_everything_is_printed_without_escape_sequences(directory: Path) -> None:
    query = "SELECT message, chr(27) || '[2J' AS c, chr(155) || 'x' AS d FROM warnings"
    formats = [("sql", directory, query, "--format", each) for each in ("table", "json")]
    commands = [
        *formats,
        ("sql", directory, f"SELECT '{EVIL}' FROM nowhere"),
        ("export", directory, "--format", "csv", "--output", directory.parent / f"out{EVIL}"),
        ("report", directory / EVIL),
        ("report", directory, "--output", directory.parent / f"report{EVIL}.html"),
        ("resume", directory, "--no-report"),
        ("show", EVIL),
    ]
    for arguments, printed in zip(commands, each_on_terminal(*commands), strict=True):
        assert printed and is_clean(printed), arguments
        if arguments in formats:
            assert "owned" in printed and "damaged" not in printed, arguments
        assert "\x1b[" in printed or "table" not in arguments, "styles of rich stay"


def test_text_keeps_its_lines_and_tabs() -> None:
    assert printable("a\tb\nü€") == "a\tb\nü€"
    assert printable("\x1b[2J\r\udc80") == "\\x1b[2J\\r\\udc80"
