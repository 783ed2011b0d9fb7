"""The command line as a whole: instant help, exit codes, errors without tracebacks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT, Iosonde
from inline_snapshot import snapshot
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app

HEAVY = ["duckdb", "jinja2", "numpy", "polars", "rich", "scipy", "iosonde.results", "iosonde.study"]
"""typer itself looks for pydantic, so that one is not ours to avoid."""


def test_help_lists_every_subcommand_with_what_it_does(iosonde: Iosonde) -> None:
    shown = iosonde("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    listed = shown.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(len(line.split()) > 3 for line in listed)
    assert all(len(line) <= 80 and not line.endswith("...") for line in listed)
    assert max(map(len, shown.stdout.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["run", "--help"], ["report", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Imports dominate the cost of `--help`; unlike a time limit, this holds on any machine."""
    script = (
        "import sys\nfrom iosonde.cli import app\n"
        f"try: app({arguments!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(CHECKOUT / "python")},
    )
    assert ran.stderr.strip() == "[]"


def test_planning_does_not_import_scipy() -> None:
    """Each `plan` and `run` would pay for it; comparisons and the power of a planned comparison need it."""
    script = "import sys, iosonde.planning; print('scipy' in sys.modules)"
    environment = {"PYTHONPATH": str(CHECKOUT / "python")}
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.strip() == "False"


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


@pytest.mark.parametrize("seed", ["x", "-1", "99999999999999999999"])
def test_a_wrong_seed_is_an_error_that_names_the_range(seed: str) -> None:
    result = CliRunner().invoke(app, ["plan", "quick", "--target", "null:1GiB", "--seed", seed])
    assert result.exit_code == 2
    assert f"`--seed` must be a whole number from 0 to 2^64 - 1; got `{seed}`" in result.output


def test_a_mistake_of_the_user_ends_with_1_and_an_error_without_a_traceback(iosonde: Iosonde) -> None:
    failed = iosonde("show", "quikc")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == snapshot("""\
error: there is no study `quikc`

hint: did you mean `quick`? `iosonde list` shows those that come with iosonde; name a file of your own by its path
""")


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
