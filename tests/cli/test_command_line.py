"""The command line as a whole: instant help, exit codes, errors without tracebacks, a complete reference."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT, Iosonde
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app, manual, reference
from iosonde.data import shipped

HEAVY = ["duckdb", "jinja2", "numpy", "polars", "rich", "scipy", "iosonde.results", "iosonde.study"]
"""typer itself looks for pydantic, so that one is not ours to avoid."""


SOURCE = "".join(path.read_text() for path in (CHECKOUT / "python/iosonde").rglob("*.py"))
ENGINE = "".join(path.read_text() for path in (CHECKOUT / "crates").glob("*/src/**/*.rs"))
SECRET_OR_HOME = r"\"((?:[A-Z]+_)*(?:PGPASS[A-Z]+|PWD|PASSWORD|KEY|KEY_ID|TOKEN|HOME))\""
RICH = {"NO_COLOR", "COLUMNS"}
"""Read by the library that prints, not by iosonde."""


def test_help_lists_every_subcommand_with_what_it_does(iosonde: Iosonde) -> None:
    shown = iosonde("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    listed = shown.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(len(line.split()) > 3 for line in listed)
    assert all(len(line) <= 80 and not line.endswith("...") for line in listed)
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("from iosonde.cli import app; app(['--help'])", HEAVY),
        ("from iosonde.cli import app; app(['run', '--help'])", HEAVY),
        ("import iosonde.planning", ["scipy"]),
    ],
)
def test_help_and_planning_import_nothing_heavy(code: str, unwanted: list[str]) -> None:
    """Imports dominate their cost; unlike a time limit, this holds on any machine."""
    script = (
        f"import sys\ntry: exec({code!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)"
    )
    environment = {"PYTHONPATH": str(CHECKOUT / "python")}
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stderr.strip() == "[]"


def test_without_arguments_commands_to_begin_with_are_offered(iosonde: Iosonde) -> None:
    shown = iosonde()
    assert (shown.returncode, shown.stderr) == (2, "")
    offered = re.findall(r"^  iosonde ([a-z]+)", shown.stdout, re.MULTILINE)
    assert set(offered) <= set(COMMANDS)
    assert max(map(len, shown.stdout.splitlines())) <= 80
    without_study = iosonde("run")
    assert (without_study.returncode, without_study.stdout) == (2, "")
    assert shown.stdout.strip() in without_study.stderr
    assert "`iosonde list` lists the studies." in iosonde("plan", "--target", ".").stderr


def test_a_mistake_on_the_command_line_ends_with_2(iosonde: Iosonde) -> None:
    unknown = iosonde("paln")
    assert unknown.returncode == 2
    assert "Did you mean 'plan'?" in unknown.stderr
    assert "`limits` is a study: `iosonde run limits --target TARGET`" in iosonde("limits").stderr
    assert "`etcd` is an application: `iosonde qualify etcd --target TARGET`" in iosonde("etcd").stderr
    missing = iosonde("plan", "quick")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Missing option '--target'. What to measure: a directory" in missing.stderr


def test_a_mistake_of_the_user_ends_with_1_and_an_error_without_a_traceback(iosonde: Iosonde) -> None:
    failed = iosonde("show", "quikc")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: there is no study `quikc`\n\nhint: did you mean `quick`? ")


def test_a_closed_output_pipe_is_no_error(tmp_path: Path) -> None:
    piped = subprocess.run(
        f"{sys.executable} -m iosonde plan quick --target null:1GiB --json | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(CHECKOUT / "python"), "PATH": "/usr/bin:/bin"},
    )
    assert piped.stderr == ""


def test_every_environment_variable_and_exit_code_in_the_code_is_documented_and_no_other() -> None:
    used = set(re.findall(r"\b(?:IOSONDE|XDG)_[A-Z_]+\b", SOURCE))
    # Names that the code reads, directly or by a constant: passwords, keys and directories of programs.
    used |= set(re.findall(SECRET_OR_HOME, SOURCE + ENGINE)) - {"HOME"}
    assert used == set(reference.ENVIRONMENT) - RICH
    exits = {int(code) for code in re.findall(r"typer\.Exit\(([0-9]+)\)", SOURCE)}
    assert exits <= set(reference.EXIT_CODES)
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(re.search(rf"^ +{code} ", shown, re.MULTILINE) for code in reference.EXIT_CODES)
    assert all(name in shown for name in reference.ENVIRONMENT)


def test_the_manual_has_every_subcommand_and_option_and_help_fits_80_columns() -> None:
    found = list(manual.entries())
    assert list(dict.fromkeys(entry.name.split()[0] for entry in found)) == list(COMMANDS)
    for entry in found:
        shown = CliRunner().invoke(app, [*entry.name.split(), "--help"], env={"COLUMNS": "80"}).output
        assert [line for line in shown.splitlines() if len(line) > 80 or line != line.rstrip()] == []
        assert set(re.findall(r"--[a-z-]+", shown)) - {"--help"} <= set(
            re.findall(
                r"--[a-z-]+",
                " ".join([*(name for name, _ in entry.parameters), entry.text, *(t for _, t in entry.parameters)]),
            )
        ), entry.name


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
