"""The command line as a whole: instant help, exit codes, errors without tracebacks, JSON, a complete reference."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command_line import CHECKOUT, Iosonde
from engines import FAKE
from recordings import recorded
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app, reference
from iosonde.cli.commands import man
from iosonde.data import shipped

HEAVY = {"duckdb", "jinja2", "numpy", "polars", "rich", "scipy", "iosonde.results", "iosonde.study"}
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
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {name: commands[name].get_short_help_str(70) for name in COMMANDS} == COMMANDS
    assert all(len(line) <= 80 and not line.endswith("...") for line in listed)
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """Imports dominate its cost; unlike a time limit, this holds on any machine."""
    script = (
        "import sys\nfrom iosonde.cli import app\n"
        f"try: app({command!r})\nexcept SystemExit: print({HEAVY!r} & sys.modules.keys(), file=sys.stderr)"
    )
    environment = {"PYTHONPATH": str(CHECKOUT / "python")}
    words = [sys.executable, "-c", script]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert ran.stderr.strip() == "set()"


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
    command = f"{sys.executable} -m iosonde plan quick --target null:1GiB --json | head -1"
    environment = {"PYTHONPATH": str(CHECKOUT / "python"), "PATH": "/usr/bin:/bin"}
    piped = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, env=environment)
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
    found = list(man.entries())
    assert list(dict.fromkeys(entry.name.split()[0] for entry in found)) == list(COMMANDS)
    for entry in found:
        shown = CliRunner().invoke(app, [*entry.name.split(), "--help"], env={"COLUMNS": "80"}).output
        assert [line for line in shown.splitlines() if len(line) > 80 or line != line.rstrip()] == []
        text = " ".join([entry.text, *(each for parameter in entry.parameters for each in parameter)])
        assert set(re.findall(r"--[a-z-]+", shown)) - {"--help"} <= set(re.findall(r"--[a-z-]+", text)), entry.name


def test_the_manual_page_is_valid_roff() -> None:
    page = CliRunner().invoke(app, ["man"]).output
    assert page.startswith(".TH IOSONDE 1")
    macros = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert macros == {".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".nf", ".fi"}
    assert not re.search(r"\\(?!f[BIR]|-|&|e|\(aq)", page), "an escape that is none of those above"


def test_completion_offers_subcommands_studies_and_profiles(iosonde: Iosonde) -> None:
    def complete(*words: str) -> list[str]:
        line = " ".join(words)
        shown = iosonde(_IOSONDE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
        return shown.stdout.split()

    assert complete("iosonde", "do") == ["doctor"]
    assert complete("iosonde", "show", "jo") == sorted(name for name in shipped() if name.startswith("jo"))
    assert complete("iosonde", "plan", "quick", "--profile", "st") == ["standard"]


HAVE_JSON = {
    *("list", "show", "plan", "run", "qualify", "suite", "fleet", "resume", "report", "compare", "check", "collect"),
    *("library", "history", "io", "verify", "doctor", "devices", "cleanup"),
}


def printed(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_subcommand_that_prints_data_has_the_option() -> None:
    found = {entry.name for entry in man.entries() if any(name == "--json" for name, _ in entry.parameters)}
    assert found == HAVE_JSON
    assert set(COMMANDS) >= HAVE_JSON


def test_a_report_has_findings_and_metrics_with_units_and_intervals_and_a_comparison_every_cell(tmp_path: Path) -> None:
    directory = recorded("seeded", tmp_path / "set").directory
    (document,) = printed("report", directory)
    assert document["study"] == "seeded"
    assert document["findings"]
    iops = [row for row in document["metrics"] if row["metric"] == "iops"]
    assert {row["unit"] for row in iops} == {"1/s"}
    intervals = [(row["low"], row["median"], row["high"]) for row in iops if row["low"] is not None]
    assert intervals == [tuple(sorted(each)) for each in intervals]
    assert not (directory / "report.html").exists()
    document = printed("compare", directory, recorded("seeded", tmp_path / "other").directory)
    assert {cell["verdict"] for cell in document["cells"]} == {"same"}
    assert document["summary"]


def test_a_run_prints_its_outcome_and_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    options = ("--set", "span=1MiB", "--set", "duration=100ms", "--set", "queue_depth=1", "--set", "jobs=1")
    study = ("run", "master2010-iops", "--profile", "quick", "--repeats", "1", "--target", "null:1MiB")
    document = printed(*study, *options, "-o", tmp_path / "out")
    assert document["runs"]["failed"] == 0
    assert document["runs"]["complete"] > 0
    assert Path(document["report"]).exists()
