"""`--json`: every subcommand that prints data prints it as JSON as well, and nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engines import FAKE
from recordings import recorded
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app, manual

HAVE_JSON = set(
    [
        "list",
        "show",
        "plan",
        "run",
        "qualify",
        "suite",
        "fleet",
        "resume",
        "report",
        "compare",
        "check",
        "collect",
        "library",
        "history",
        "io",
        "verify",
        "doctor",
        "devices",
        "cleanup",
    ]
)


def printed(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_subcommand_that_prints_data_has_the_option() -> None:
    found = {entry.name for entry in manual.entries() if any(name == "--json" for name, _ in entry.parameters)}
    assert found == HAVE_JSON
    assert set(COMMANDS) >= HAVE_JSON


@pytest.mark.extended  # Expands every profile of every study; `test_list.py` has all of them in one profile.
def test_studies_with_their_needs_and_sizes() -> None:
    studies = {each["name"]: each for each in printed("list")}
    assert studies["quick"]["needs"] == []
    assert studies["han2021-raid"]["needs"] == ["root", "8 devices"]
    assert studies["quick"]["profiles"]["standard"]["cases"] == 13


def test_drives_suites_and_a_study() -> None:
    assert {each["target"] for each in printed("list", "--drives")} >= {"sim:p900"}
    assert printed("list", "--suites")
    assert printed("show", "quick")["name"] == "quick"


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
    document = printed("compare", directory, directory)
    assert {cell["verdict"] for cell in document["cells"]} == {"same"}
    assert document["summary"]


def test_devices_and_the_links_that_they_share() -> None:
    assert set(printed("devices")) == {"devices", "shared_links"}


def test_a_run_prints_its_outcome_and_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    options = ("--set", "span=1MiB", "--set", "duration=100ms", "--set", "queue_depth=1", "--set", "jobs=1")
    study = ("run", "master2010-iops", "--profile", "quick", "--repeats", "1", "--target", "null:1MiB")
    document = printed(*study, *options, "-o", tmp_path / "out")
    assert document["runs"]["failed"] == 0
    assert document["runs"]["complete"] > 0
    assert Path(document["report"]).exists()
