"""`--json`: every subcommand that prints data prints it as JSON as well, and nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde
from engines import real_engine
from fabricate import result_set, small_study
from typer.testing import CliRunner

from iosonde.cli import COMMANDS, app, manual

HAVE_JSON = {
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
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sets")
    result_set(directory / "first", small_study(), seconds=1)
    result_set(directory / "second", small_study(), seconds=1, speed=1.3, seed=2)
    return directory


def printed(*arguments: str | Path) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_subcommand_that_prints_data_has_the_option() -> None:
    found = {entry.name for entry in manual.entries() if any(name == "--json" for name, _ in entry.parameters)}
    assert found == HAVE_JSON
    assert set(COMMANDS) >= HAVE_JSON


def test_studies_with_their_needs_and_sizes() -> None:
    studies = {each["name"]: each for each in printed("list")}
    assert studies["quick"]["needs"] == []
    assert studies["han2021-raid"]["needs"] == ["root", "8 devices"]
    assert studies["quick"]["profiles"]["standard"]["cases"] == 13
    assert {each["target"] for each in printed("list", "--drives")} >= {"sim:p900"}
    assert printed("show", "quick")["name"] == "quick"


def test_the_report_has_findings_and_metrics_with_units_and_intervals(sets: Path) -> None:
    (document,) = printed("report", sets / "first")
    assert document["study"] == small_study()["name"]
    assert document["findings"]
    iops = [row for row in document["metrics"] if row["metric"] == "iops"]
    assert iops
    assert {row["unit"] for row in iops} == {"1/s"}
    intervals = [(row["low"], row["median"], row["high"]) for row in iops if row["low"] is not None]
    assert intervals == [tuple(sorted(each)) for each in intervals] != []
    assert not (sets / "first/report.html").exists()


def test_a_comparison_has_every_cell_and_its_verdict(sets: Path) -> None:
    document = printed("compare", sets / "first", sets / "second")
    assert {cell["verdict"] for cell in document["cells"]} == {"better"}
    assert document["summary"]


def test_the_machine_and_its_devices(iosonde: Iosonde) -> None:
    checks = json.loads(iosonde("doctor", "--json", IOSONDE_ENGINE=str(real_engine())).stdout)
    assert {"engine", "kernel", "free space"} <= {check["name"] for check in checks}
    assert set(printed("devices")) == {"devices", "shared_links"}


def test_a_run_prints_its_outcome_and_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    options = [
        "--target",
        "null:1MiB",
        "--set",
        "span=1MiB",
        "--set",
        "duration=100ms",
        "--set",
        "queue_depth=1",
    ]
    document = printed(
        "run",
        "master2010-iops",
        *options,
        "--set",
        "jobs=1",
        "--repeats",
        "1",
        "-o",
        tmp_path / "out",
        "--profile",
        "quick",
    )
    assert document["runs"]["failed"] == 0
    assert document["runs"]["complete"] > 0
    assert Path(document["report"]).exists()
