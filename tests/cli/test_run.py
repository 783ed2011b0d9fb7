from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import in_this_process
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
duration = "{duration}"
ramp = "0s"
interval = "100ms"

[[parts]]
[parts.factors]
read_fraction = [1.0, 0.0]

[profiles.quick]
[profiles.standard]
"""

SLOW = STUDY.replace('"buffered"', '"buffered"\narrival = "constant"\nrate = 1000')
"""Buffered I/O without a rate takes a CPU all the time."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with a study, a directory to measure on, and the real engine."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Commands run elsewhere; a relative PYTHONPATH would no longer lead to the package under test.
    monkeypatch.setenv("PYTHONPATH", str(Path(str(package.__file__)).parents[1]))
    (tmp_path / "data").mkdir()
    (tmp_path / "small.toml").write_text(STUDY.format(duration="100ms"))
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


def test_a_study_is_run_shown_and_reported(home: Path) -> None:
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
    assert [path.stat().st_size for path in (home / "data").rglob("*") if path.is_file()] == [1 << 20]


def test_results_go_to_a_directory_that_names_study_and_time(home: Path) -> None:
    assert iosonde(home, "run", "small.toml", "--target", "null:1MiB", "--no-report").returncode == 0
    (directory,) = (home / "iosonde-results").iterdir()
    assert re.fullmatch(r"small-[0-9]{8}-[0-9]{6}", directory.name)


def test_a_directory_that_is_not_empty_is_refused_before_anything_is_done(home: Path) -> None:
    (home / "out").mkdir()
    (home / "out/thesis.tex").write_text("years of work")
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out")
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"error: `{home}/out` is not empty\n\n"
        "hint: name a new directory with `--output DIR`, or continue a result set with `iosonde resume DIR`\n"
    )
    assert list((home / "data").iterdir()) == []


def wait_for(path: Path, session: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while not path.exists():
        assert session.poll() is None and time.monotonic() < deadline, session.communicate()
        time.sleep(0.02)


BUSY_S = 300
"""For Ctrl-C on a busy machine: many times the documented limit, and far less than an engine that hangs (600 s)."""


def seconds_until_exit(session: subprocess.Popen[str]) -> tuple[float, str, str]:
    """Wait for the end of a session: how long that took, and what it wrote."""
    begin = time.monotonic()
    stdout, stderr = session.communicate(timeout=2 * BUSY_S)
    return time.monotonic() - begin, stdout, stderr


@pytest.fixture
def hanging(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A session whose engine ignores `stop` and SIGTERM in its second run, and is in that run."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r1": "hang"}))
    monkeypatch.setenv("FAKE_ENGINE_MARKER", str(home / "hangs"))
    session = start(home, "run", "small.toml", "--target", "data", "--output", "out")
    wait_for(home / "hangs", session)
    yield session
    session.kill()
    session.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_completed_runs_and_names_the_command_to_continue(home: Path, number: signal.Signals) -> None:
    (home / "small.toml").write_text(SLOW.format(duration="1500ms"))
    session = start(home, "run", "small.toml", "--target", "data", "--output", "out")
    wait_for(home / "out/records/c0001-r1", session)
    os.killpg(session.pid, number)
    seconds, stdout, stderr = seconds_until_exit(session)
    assert seconds < BUSY_S
    assert session.returncode == 130
    assert stdout == ""
    kept = [record.run_id for record in ResultSet.open(home / "out").records()]
    assert kept[0] == "c0001-r1" and len(kept) < 4, "the signal may arrive in a later run"
    runs = f"{len(kept)} of 4 runs completed and kept in out"
    assert stderr.endswith(f"Stopped. {runs}\nReport so far: iosonde report out\nContinue with: iosonde resume out\n")
    assert list((home / "data").iterdir()) == []
    assert list((home / "state").rglob("*.json")) == []

    resumed = iosonde(home, "resume", "out", "--no-report")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.startswith(f"{4 - len(kept)} of 4 runs remaining\n")
    assert [record.outcome for record in ResultSet.open(home / "out").records()] == ["complete"] * 4


def test_waits_for_the_engine_after_ctrl_c_add_up_to_less_than_a_second() -> None:
    waits = Timeouts()
    assert waits.stop_s + waits.terminate_s < 0.6, "the rest of the second is for removing files"


def test_ctrl_c_kills_an_engine_that_hangs(home: Path, hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGINT)
    seconds, _, stderr = seconds_until_exit(hanging)
    assert seconds < BUSY_S
    assert hanging.returncode == 130
    assert stderr.endswith(
        "Stopped. 1 of 4 runs completed and kept in out\n"
        "Report so far: iosonde report out\nContinue with: iosonde resume out\n"
    )
    assert list((home / "data").iterdir()) == []


@pytest.mark.quiet
def test_ctrl_c_takes_less_than_a_second_with_an_engine_that_hangs(hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGINT)
    assert seconds_until_exit(hanging)[0] < 1


def test_a_second_ctrl_c_does_not_wait_for_the_engine(home: Path, hanging: subprocess.Popen[str]) -> None:
    # Two different signals: the kernel merges equal ones, and a pause between them could outlast the waits.
    hanging.send_signal(signal.SIGINT)
    hanging.send_signal(signal.SIGTERM)
    seconds, _, stderr = seconds_until_exit(hanging)
    assert seconds < BUSY_S
    assert hanging.returncode == 130
    assert stderr.endswith("Stopped immediately.\nRemove leftovers with: iosonde cleanup\n")
    assert [record.run_id for record in ResultSet.open(home / "out").records()] == ["c0001-r1"]


def test_failed_runs_are_named_and_the_rest_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r1": "crash"}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 0
    assert plain(done.stderr, home).splitlines()[-7:] == snapshot(
        [
            "[1/4] c0001-r1  main/read_fraction=1 FIGURES",
            "[2/4] c0002-r1  main/read_fraction=0  failed: the engine crashed (SIGSEGV)",
            "  hint: this is a defect of the engine: please report it with the spec in `record.json`",
            "[3/4] c0001-r2  main/read_fraction=1 FIGURES",
            "[4/4] c0002-r2  main/read_fraction=0 FIGURES  device state unknown",
            "3 of 4 runs complete, in out",
            "1 run failed. Repeat them with: iosonde resume out --retry-failed",
        ]
    )


def test_unsupported_runs_are_not_called_failed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a backend that the target lacks were called failed, with advice to repeat them."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r1": "unsupported", "c0002-r2": "unsupported"}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 0
    assert "failed" not in done.stderr
    lines = plain(done.stderr, home).splitlines()
    reason = "main/read_fraction=0  unsupported: the file system of `/data/file` has no polled I/O"
    assert [line for line in lines if "c0002" in line] == [f"[2/4] c0002-r1  {reason}", f"[4/4] c0002-r2  {reason}"]
    assert [line for line in lines if "hint" in line] == ["  hint: use another backend"]
    assert lines[-1] == "2 unsupported combinations skipped (see report)"


def test_a_study_of_which_nothing_succeeds_ends_with_an_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
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
    (home / "small.toml").write_text(SLOW.format(duration="300ms"))
    master, slave = pty.openpty()
    session = subprocess.Popen(
        [sys.executable, "-m", "iosonde", "run", "small.toml", "--target", "data", "--output", "out", "--no-report"],
        cwd=home,
        stdin=subprocess.DEVNULL,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    assert session.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"1 of 4 runs, \S+ \S+ remaining", text)
    assert "main/read_fraction=1  measuring" in text
    assert re.search(r"IOPS .*B/s .*p99", text)
    assert "4 of 4 runs complete, in out" in text
