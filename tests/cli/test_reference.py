"""Exit codes, environment variables, the manual page and completion agree with the code."""

from __future__ import annotations

import re

import pytest
from command_line import CHECKOUT, Iosonde
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app, manual, reference
from iosonde.data import shipped

SOURCE = "".join(path.read_text() for path in (CHECKOUT / "python/iosonde").rglob("*.py"))
ENGINE = "".join(path.read_text() for path in (CHECKOUT / "crates").glob("*/src/**/*.rs"))
SECRET_OR_HOME = r"\"((?:[A-Z]+_)*(?:PGPASS[A-Z]+|PWD|PASSWORD|KEY|KEY_ID|TOKEN|HOME))\""
RICH = {"NO_COLOR", "COLUMNS"}
"""Read by the library that prints, not by iosonde."""


def test_every_environment_variable_in_the_code_is_documented_and_no_other() -> None:
    used = set(re.findall(r"\b(?:IOSONDE|XDG)_[A-Z_]+\b", SOURCE))
    # Names that the code reads, directly or by a constant: passwords, keys and directories of programs.
    used |= set(re.findall(SECRET_OR_HOME, SOURCE + ENGINE)) - {"HOME"}
    assert used == set(reference.ENVIRONMENT) - RICH


def test_help_lists_exit_codes_and_environment_variables() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(re.search(rf"^ +{code} ", shown, re.MULTILINE) for code in reference.EXIT_CODES)
    assert all(name in shown for name in reference.ENVIRONMENT)


def test_every_exit_code_in_the_code_is_documented() -> None:
    used = {int(code) for code in re.findall(r"typer\.Exit\(([0-9]+)\)", SOURCE)}
    assert used <= set(reference.EXIT_CODES)


def test_the_manual_has_every_subcommand_and_option() -> None:
    found = list(manual.entries())
    assert list(dict.fromkeys(entry.name.split()[0] for entry in found)) == list(COMMANDS)
    for entry in found:
        shown = CliRunner().invoke(app, [*entry.name.split(), "--help"]).output
        assert set(re.findall(r"--[a-z-]+", shown)) - {"--help"} <= set(
            re.findall(
                r"--[a-z-]+",
                " ".join([*(name for name, _ in entry.parameters), entry.text, *(t for _, t in entry.parameters)]),
            )
        ), entry.name


@pytest.mark.parametrize("entry", list(manual.entries()), ids=lambda entry: entry.name)
def test_help_has_no_line_above_80_columns_and_ends_no_line_with_a_space(entry: manual.Entry) -> None:
    shown = CliRunner().invoke(app, [*entry.name.split(), "--help"], env={"COLUMNS": "80"}).output
    assert [line for line in shown.splitlines() if len(line) > 80 or line != line.rstrip()] == []


def test_the_manual_page_is_valid_roff() -> None:
    page = CliRunner().invoke(app, ["man"]).output
    assert page.startswith(".TH IOSONDE 1")
    macros = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert macros == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"}
    assert not re.search(r"\\(?!f[BIR]|-|&|e|\(aq)", page), "an escape that is none of those above"
    assert "`" not in page


def test_completion_offers_subcommands_studies_and_profiles(iosonde: Iosonde) -> None:
    def complete(*words: str) -> list[str]:
        line = " ".join(words)
        shown = iosonde(_IOSONDE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
        return shown.stdout.split()

    assert complete("iosonde", "do") == ["doctor"]
    assert complete("iosonde", "show", "jo") == sorted(name for name in shipped() if name.startswith("jo"))
    assert complete("iosonde", "plan", "quick", "--profile", "st") == ["standard"]
