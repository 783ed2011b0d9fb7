from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import in_this_process, on_terminal
from engines import FAKE, real_engine
from inline_snapshot import snapshot

import iosonde as package
from iosonde.cli.session import Outcome
from iosonde.execution.timeouts import Timeouts
from iosonde.results import ResultSet

STUDY = """
name = "small"
title = "A small study"
question = "Does it work?"
shuffle = false
repeats = 2

[measurement]
span = "1MiB"
io_mode = "buffered"
duration = "100ms"
ramp = "0s"
interval = "100ms"

[[parts]]
[parts.factors]
read_fraction = [1.0, 0.0]

[profiles.quick]
[profiles.standard]
"""

ENDLESS = """[[parts]]
factors.case = [
  { label = "short", set = { read_fraction = 1.0 } },
  { label = "endless", set = { read_fraction = 0.0, duration = "1h", arrival = "constant", rate = 100 } },
]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with a study, a directory to measure on, and an engine that measures nothing."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Commands run elsewhere; a relative PYTHONPATH would no longer lead to the package under test.
    monkeypatch.setenv("PYTHONPATH", str(Path(str(package.__file__)).parents[1]))
    (tmp_path / "data").mkdir()
    (tmp_path / "small.toml").write_text(STUDY)
    return tmp_path


def iosonde(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with contextlib.chdir(home):
        return in_this_process(*arguments, COLUMNS="80")


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "iosonde", *arguments],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def plain(text: str, home: Path) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"iosonde-[0-9a-f]{8}", "iosonde-ID", text.replace(str(home), "HOME"))
    return re.sub(r" +[0-9.,]+( k| M)? IOPS +[0-9.,]+ .?B/s +p99 +([0-9.]+ .?s|-)", " FIGURES", text)


def test_a_study_is_run_shown_and_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert plain(done.stderr, home) == snapshot("""\
A small study on HOME/data
runs      4, in order (seed 1)
time      about 1.2 s
writes    limited only by time, 1 MiB of it before measuring
power     with 2 repeats a difference of 14 % between two sessions (13 % in an
          A/B run) will be found with 90 % probability, if run-to-run noise is
          2 % (assumed)
target    HOME/data/iosonde-ID:
          creates a directory with 1 MiB of files and removes it at the end
[1/4] c0001-r1  main/read_fraction=1 FIGURES
[2/4] c0002-r1  main/read_fraction=0 FIGURES  device state unknown
[3/4] c0001-r2  main/read_fraction=1 FIGURES
[4/4] c0002-r2  main/read_fraction=0 FIGURES  device state unknown
4 of 4 runs complete, in out
""")
    assert "A small study" in done.stdout
    assert "report.html" in done.stdout
    assert (home / "out/report.html").stat().st_size > 10_000
    result_set = ResultSet.open(home / "out")
    assert [record.outcome for record in result_set.records()] == ["complete"] * 4
    assert result_set.problems == []
    assert list((home / "data").iterdir()) == []


def test_settings_repeats_and_seed_reach_the_plan(home: Path) -> None:
    done = iosonde(
        home,
        *("run", "small.toml", "--target", "data", "--output", "out", "--no-report", "--profile", "quick"),
        *("--repeats", "1", "--set", "read_fraction=0.5", "--set", "queue_depth=2", "--seed", "7", "--keep"),
    )
    assert done.returncode == 0, done.stderr
    plan = ResultSet.open(home / "out").plan
    assert [run.spec["workload"]["streams"][0]["mix"]["read_fraction"] for run in plan.runs] == [0.5]
    assert [run.spec["workload"]["streams"][0]["queue_depth"] for run in plan.runs] == [2]
    assert (plan.seed, plan.profile, plan.keep) == (7, "quick", True)
    assert done.stdout == ""
    assert not (home / "out/report.html").exists()
    assert iosonde(home, "run", "small.toml", "--target", "null:1MiB", "--no-report").returncode == 0
    (directory,) = (home / "iosonde-results").iterdir()
    assert re.fullmatch(r"small-[0-9]{8}-[0-9]{6}", directory.name), "the default"
    assert [path.name for path in (home / "data").rglob("*") if path.is_file()] == ["data"]


def test_a_directory_that_is_not_empty_is_refused_before_anything_is_done(home: Path) -> None:
    (home / "out").mkdir()
    (home / "out/thesis.tex").write_text("years of work")
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out")
    assert done.returncode == 1
    assert f"error: `{home}/out` is not empty\n" in done.stderr
    assert list((home / "data").iterdir()) == []


def wait_for(path: Path, session: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert session.poll() is None, session.communicate()
        time.sleep(0.02)


def end_of(session: subprocess.Popen[str]) -> str:
    """Wait until a session exits, sooner than an engine that hangs (600 s) -> what it wrote to standard error."""
    stdout, stderr = session.communicate(timeout=300)
    assert (session.returncode, stdout) == (130, "")
    return stderr


@pytest.fixture
def hanging(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A session whose engine ignores `stop` and SIGTERM in its second run, and is in that run."""
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r1": "hang"}))
    monkeypatch.setenv("FAKE_ENGINE_MARKER", str(home / "hangs"))
    session = start(home, "run", "small.toml", "--target", "data", "--output", "out")
    wait_for(home / "hangs", session)
    yield session
    session.kill()
    session.wait()


def test_ctrl_c_stops_the_engine_and_removes_its_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    (home / "small.toml").write_text(STUDY[: STUDY.index("[[parts]]")] + ENDLESS + "[profiles.standard]\n")
    session = start(home, "run", "small.toml", "--target", "data", "--output", "out")
    wait_for(home / "out/records/c0001-r1", session)
    os.killpg(session.pid, signal.SIGINT)
    assert "Stopped. 1 of 4 runs completed and kept in out\n" in end_of(session)
    assert [record.run_id for record in ResultSet.open(home / "out").records()] == ["c0001-r1"]
    assert list((home / "data").iterdir()) == []
    assert list((home / "state").rglob("*.json")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_kills_an_engine_that_hangs_and_names_the_command_that_continues(
    number: signal.Signals, home: Path, hanging: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging.send_signal(number)
    assert end_of(hanging).endswith(
        "Stopped. 1 of 4 runs completed and kept in out\n"
        "Report so far: iosonde report out\nContinue with: iosonde resume out\n"
    )
    assert list((home / "data").iterdir()) == []
    monkeypatch.delenv("FAKE_ENGINE")
    resumed = iosonde(home, "resume", "out", "--no-report")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.startswith("3 of 4 runs remaining\n")
    assert [record.outcome for record in ResultSet.open(home / "out").records()] == ["complete"] * 4


def test_waits_for_the_engine_after_ctrl_c_add_up_to_less_than_a_second() -> None:
    waits = Timeouts()
    assert waits.stop_s + waits.terminate_s < 0.6, "the rest of the second is for removing files"


def test_a_second_ctrl_c_does_not_wait_for_the_engine(home: Path, hanging: subprocess.Popen[str]) -> None:
    # Two different signals: the kernel merges equal ones, and a pause between them could outlast the waits.
    hanging.send_signal(signal.SIGINT)
    hanging.send_signal(signal.SIGTERM)
    assert end_of(hanging).endswith("Stopped immediately.\nRemove leftovers with: iosonde cleanup\n")
    assert [record.run_id for record in ResultSet.open(home / "out").records()] == ["c0001-r1"]


def test_failed_runs_and_unsupported_ones_are_named_apart_and_the_rest_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of a backend that the target lacks were called failed, with advice to repeat them."""
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0001-r2": "crash", "c0002-r1": "unsupported"}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 0
    lines = plain(done.stderr, home).splitlines()
    assert lines[-9] == "[1/4] c0001-r1  main/read_fraction=1 FIGURES"
    unsupported = "main/read_fraction=0  unsupported: the file system of `/data/file` has no polled I/O"
    assert lines[-8:-6] == [f"[2/4] c0002-r1  {unsupported}", "  hint: use another backend"]
    assert lines[-6] == "[3/4] c0001-r2  main/read_fraction=1  failed: the engine crashed (SIGSEGV)"
    assert lines[-4:-2] == [
        "[4/4] c0002-r2  main/read_fraction=0 FIGURES  device state unknown",
        "2 of 4 runs complete, in out",
    ]
    assert "1 run failed. Repeat them with: iosonde resume out --retry-failed" in lines[-2:]
    assert "1 unsupported combination skipped (see report)" in lines[-2:]


def test_a_study_of_which_nothing_succeeds_ends_with_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "no space"}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "\nerror: 4 of 4 runs failed" in done.stderr


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ((0, 2, 1, 1), "3 of 4 runs failed; the results below are not representative"),
        ((0, 0, 4, 0), "no run of 4 is complete: 4 unsupported combinations"),
    ],
)
def test_the_error_of_a_study_that_mostly_failed_states_why(counts: tuple[int, int, int, int], problem: str) -> None:
    """A study whose only combination needed too much memory ended with "0 of 1 runs failed"."""
    names = ("complete", "failed", "unsupported", "refused")
    found = Outcome(**dict(zip(names, counts, strict=True)))
    assert found.mostly_failed and found.problem("4") == problem


def test_on_a_terminal_the_display_shows_runs_time_left_case_and_figures(home: Path) -> None:
    command = (sys.executable, "-m", "iosonde", "run", "small.toml", "--target", "data", "--output", "out")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_terminal((*command, "--no-report"), home, COLUMNS="100"))
    assert re.search(r"1 of 4 runs, \S+ \S+ remaining", text)
    assert "main/read_fraction=1  measuring" in text
    assert re.search(r"IOPS .*B/s .*p99", text)
    assert "4 of 4 runs complete, in out" in text
