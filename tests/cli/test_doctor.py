from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import real_engine

from iosonde.base.tools import TOOLS, USES
from iosonde.cli.commands import doctor


def checks(text: str) -> dict[str, str]:
    """State and text of each check by its name; advice is on lines of its own."""
    rows = [line.split("  ") for line in text.splitlines() if line[:1] != " "]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return {row[1]: f"{row[0]}: {' '.join(row[2:])}" for row in cells}


def test_doctor_tries_the_engine_and_names_the_tools(iosonde: Iosonde) -> None:
    shown = iosonde("doctor", "--all", IOSONDE_ENGINE=str(real_engine()), COLUMNS="250")
    assert (shown.returncode, shown.stderr) == (0, "")
    found = checks(shown.stdout)
    assert str(real_engine()) in found["engine"]
    assert "version" in found["engine"]
    assert {"io_uring", "clock", "kernel", "locked memory", "governor", "mitigations", "free space"} <= set(found)
    assert found["memory limits"].startswith(("ok: cgroup v", "note: memory cannot be limited"))
    assert found["RocksDB"].startswith(("ok: librocksdb", "note: librocksdb"))
    fio = found["fio"]
    assert fio.startswith("ok: ") if shutil.which("fio") else fio.startswith("note: not found")


def test_without_an_engine_doctor_fails_with_an_exit_code(iosonde: Iosonde) -> None:
    shown = iosonde("doctor", "--all", IOSONDE_ENGINE="/nowhere/iosonde-engine")
    assert shown.returncode == 1
    assert checks(shown.stdout)["engine"].startswith("missing: ")
    assert "IOSONDE_ENGINE" in shown.stdout
    silent = iosonde("doctor", "--all", IOSONDE_ENGINE="/bin/cat", COLUMNS="250")
    assert silent.returncode == 1 and "does not respond" in silent.stdout
    summary = iosonde("doctor", IOSONDE_ENGINE="/nowhere/iosonde-engine")
    assert summary.returncode == 1
    assert summary.stdout.startswith("missing  engine ")
    assert summary.stdout.endswith("Nothing can be measured without the engine.\n")


def test_a_kernel_that_refuses_io_uring_is_noted_with_what_to_do(iosonde: Iosonde, tmp_path: Path) -> None:
    """The engine's own probe is what counts; here it is one that was refused."""
    answer = (
        '{"version": "0", "build": "release", "clock": "monotonic", "clock_read_ns": 25,'
        ' "uring": false, "uring_error": "Operation not permitted (os error 1)"}'
    )
    refused = tmp_path / "engine"
    refused.write_text(f"#!/bin/sh\necho '{answer}'\n")
    refused.chmod(0o755)
    shown = iosonde("doctor", "--all", IOSONDE_ENGINE=str(refused), COLUMNS="250")
    assert shown.returncode == 0
    assert checks(shown.stdout)["io_uring"] == "note: refused: Operation not permitted (os error 1)"
    assert checks(shown.stdout)["clock"].startswith("note: monotonic")


def test_every_tool_of_a_study_has_a_line_and_those_of_tests_share_one(iosonde: Iosonde) -> None:
    shown = iosonde("doctor", "--json", IOSONDE_ENGINE=str(real_engine()))
    states = {check["name"]: check for check in json.loads(shown.stdout)}
    optional = {tool.name: tool for tool in TOOLS.values() if tool.form == "program" and tool.kind != "build"}
    of_studies = {name: tool for name, tool in optional.items() if tool.is_for_studies}
    assert {name for name, tool in of_studies.items() if not tool.is_in_every_debian} <= states.keys()
    assert not (optional.keys() - of_studies.keys()) & states.keys()
    for name, tool in optional.items():
        line = name if tool.is_for_studies else "tests and benchmarks"
        if tool.find() is None:
            assert states[line]["state"] == "note"
            assert name in states[line]["found"] or name == line
            assert tool.packages[0] in states[line]["advice"]
    for state in states.values():
        assert not re.search(r"for the same|\x1b|\d\" *,", state["found"]), state


def test_the_summary_fits_a_screen_and_names_what_can_be_used(iosonde: Iosonde) -> None:
    shown = iosonde("doctor", IOSONDE_ENGINE=str(real_engine()), COLUMNS="80")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) <= 40
    rows = {match[1]: match[2] for match in re.finditer(r"^  (\S.*?)  +(.*)$", shown.stdout, re.MULTILINE)}
    assert rows.keys() >= {"block I/O", *USES}
    assert "sync" in rows["block I/O"].split(", ")
    assert rows["key-value stores"].startswith("LMDB")
    assert ("fio" in rows["other benchmarks"].split(", ")) == (shutil.which("fio") is not None)


@pytest.mark.parametrize(
    ("disabled", "seccomp", "advice"),
    [
        ("2", "0", "sysctl kernel.io_uring_disabled=0"),
        ("0", "2", "seccomp profile"),
        ("0", "0", "kernel with io_uring"),
    ],
    ids=["disabled", "container", "old kernel"],
)
def test_the_advice_on_io_uring_names_what_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disabled: str, seccomp: str, advice: str
) -> None:
    (tmp_path / "disabled").write_text(f"{disabled}\n")
    (tmp_path / "status").write_text(f"Name:\tiosonde\nSeccomp:\t{seccomp}\nSeccomp_filters:\t{seccomp}\n")
    monkeypatch.setattr(doctor, "_URING_DISABLED", tmp_path / "disabled")
    monkeypatch.setattr(doctor, "_STATUS", tmp_path / "status")
    assert advice in doctor._uring_advice()


def test_without_package_lists_no_package_is_listed_as_missing_from_the_distribution(
    iosonde: Iosonde, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In container images apt knows the installed packages only."""
    monkeypatch.setattr(doctor, "_PACKAGE_LISTS", tmp_path)
    monkeypatch.setattr(TOOLS["fio"].__class__, "find", lambda tool: None)
    shown = iosonde("doctor", IOSONDE_ENGINE=str(real_engine()), COLUMNS="250").stdout
    assert "No package of this distribution" not in shown
    assert re.search(r"To install \(names of Debian\): .*\bfio\b", shown)


@pytest.mark.parametrize(
    ("idle", "total", "found"),
    [(6, 100, "other programs use 94 % of all CPU time"), (90, 100, ""), (0, 0, "")],
)
def test_load_of_other_programs_is_named_where_most_runs_would_be_disturbed(idle: int, total: int, found: str) -> None:
    readings = iter([(100, 1000), (100 + idle, 1000 + total)])
    assert doctor.other_load(lambda: next(readings)) == found
