"""`iosonde run` and `iosonde io`: outcome, signals, display, limits of the process and its CPUs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT, Iosonde, in_this_process, on_terminal
from engines import FAKE, real_engine
from inline_snapshot import snapshot
from typer.testing import CliRunner, Result

import iosonde as package
from iosonde.cli import app
from iosonde.cli.session import Outcome
from iosonde.errors import IosondeError
from iosonde.execution.conversation import Timeouts
from iosonde.execution.progress import Rates
from iosonde.metrics.verdict.verdict import KINDS
from iosonde.results import ResultSet
from iosonde.results.schema import Record

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


@pytest.mark.parametrize(
    ("complete", "failed", "unsupported", "mostly"),
    [(35, 40, 0, True), (38, 37, 0, False), (5, 5, 0, False), (3, 2, 70, False), (0, 0, 5, True)],
)
def test_most_runs_failed_if_more_than_half_of_those_that_could_succeed_did(
    complete: int, failed: int, unsupported: int, mostly: bool
) -> None:
    counts = Outcome(complete=complete, failed=failed, unsupported=unsupported, refused=0)
    assert counts.mostly_failed is mostly


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
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "iosonde", *arguments]
    return subprocess.Popen(command, cwd=home, start_new_session=True, **streams)  # type: ignore[call-overload, no-any-return]


def plain(text: str, home: Path) -> str:
    """Without what differs from run to run, and from machine to machine."""
    text = re.sub(r"warning: other programs use .*\n", "", text)
    text = re.sub(r"iosonde-[0-9a-f]{8}", "iosonde-ID", text.replace(str(home), "HOME"))
    return re.sub(r" +[0-9.,]+( k| M)? IOPS +[0-9.,]+ .?B/s +p99 +([0-9.]+ .?s|-)", " FIGURES", text)


def test_a_study_is_run_shown_and_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out")
    assert done.returncode == 0, done.stderr
    assert plain(done.stderr, home) == snapshot("""\
A small study on HOME/data
runs      4, in order (seed 1)
time      about 6.5 s
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
    assert (home / "out/report.html").stat().st_size > 10_000
    result_set = ResultSet.open(home / "out")
    assert [record.outcome for record in result_set.records()] == ["complete"] * 4
    assert result_set.problems == []
    assert list((home / "data").iterdir()) == []


def test_quiet_omits_progress_and_prints_the_report(home: Path) -> None:
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "A small study" in done.stdout
    assert "A small study" not in done.stderr and "[1/4]" not in done.stderr


def test_without_a_report_files_are_kept_and_the_output_has_a_name_on_request(home: Path) -> None:
    options = ("--no-report", "--profile", "quick", "--repeats", "1", "--set", "read_fraction=0.5", "--keep")
    done = iosonde(home, "run", "small.toml", "--target", "data", *options)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    (directory,) = (home / "iosonde-results").iterdir()
    assert re.fullmatch(r"small-[0-9]{8}-[0-9]{6}", directory.name), "the default"
    [run] = ResultSet.open(directory).plan.runs
    assert run.spec["workload"]["streams"][0]["mix"]["read_fraction"] == 0.5
    assert not (directory / "report.html").exists()
    assert [path.name for path in (home / "data").rglob("*") if path.is_file()] == ["data"]


def test_a_directory_that_is_not_empty_is_refused_before_anything_is_done(home: Path) -> None:
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", ".")
    assert done.returncode == 1 and f"error: `{home}` is not empty\n" in done.stderr
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


def test_failed_and_unsupported_runs_are_named_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a backend that the target lacks were called failed, with advice to repeat them."""
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0001-r2": "crash", "c0002-r1": "unsupported"}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 0
    lines = plain(done.stderr, home).splitlines()
    unsupported = "main/read_fraction=0  unsupported: the file system of `/data/file` has no polled I/O"
    assert lines[-8:-6] == [f"[2/4] c0002-r1  {unsupported}", "  hint: use another backend"]
    assert lines[-6] == "[3/4] c0001-r2  main/read_fraction=1  failed: the engine crashed (SIGSEGV)"
    assert lines[-3] == "2 of 4 runs complete, in out"
    assert "1 run failed. Repeat them with: iosonde resume out --retry-failed" in lines[-2:]
    assert "1 unsupported combination skipped (see report)" in lines[-2:]


@pytest.mark.parametrize(
    ("how", "problem"),
    [("no space", "4 of 4 runs failed"), ("unsupported", "no run of 4 is complete: 4 unsupported combinations")],
)
def test_a_study_of_which_nothing_succeeds_ends_with_an_error(
    how: str, problem: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": how}))
    done = iosonde(home, "run", "small.toml", "--target", "data", "--output", "out", "--no-report")
    assert done.returncode == 3 and f"\nerror: {problem}" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_a_terminal_the_display_shows_runs_time_left_case_and_figures(home: Path) -> None:
    command = (sys.executable, "-m", "iosonde", "run", "small.toml", "--target", "data", "--output", "out")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_terminal((*command, "--no-report"), home, COLUMNS="100"))
    assert re.search(r"1 of 4 runs, \S+ \S+ remaining", text)
    assert "main/read_fraction=1  measuring" in text
    assert re.search(r"IOPS .*B/s .*p99", text)
    assert "4 of 4 runs complete, in out" in text


MS = 10**6


def operation(name: str, count: int, size: int, bucket: int) -> dict[str, Any]:
    latency = {"buckets": [[bucket, count]], "sum_ns": 0}
    counted = {"operation": name, "count": count, "bytes": size * count}
    return {**counted, "response_latency": None, "completion_latency": latency}


def interval(begin_ms: int, end_ms: int, count: int, streams: Sequence[str] = ("main",)) -> dict[str, Any]:
    """An event of the engine: `count` reads of 4 KiB."""
    operations = [operation("read", count, 4096, 500)]
    found = [{"stream": name, "operations": operations, "backlog_max": 0} for name in streams]
    return {"begin_ns": begin_ms * MS, "end_ns": end_ms * MS, "streams": found}


def test_overlapping_intervals_count_once() -> None:
    """I/Os of half a second: the first interval lasts until its last one ends, long after the second has started."""
    rates = Rates()
    for each in (interval(2000, 2600, 60), interval(2100, 2900, 20), interval(2200, 3000, 20)):
        rates.add(each)
    assert rates.text().split() == ["100", "IOPS", "410", "kB/s", "p99", "-"]


def test_readers_and_writer_are_listed_side_by_side() -> None:
    rates = Rates()
    rates.add(interval(0, 1000, 50, ("readers", "writer")))
    readers, writer = rates.text().split(" | ")
    assert readers.split() == ["readers:", "50", "IOPS", "205", "kB/s", "p99", "-"]
    assert writer.split() == ["writer:", "50", "IOPS", "205", "kB/s", "p99", "-"]


def test_writes_with_flushes_have_the_rate_of_the_writes_and_the_latency_of_the_flushes() -> None:
    """One write and one flush after the other: 2,000 writes a second, not 4,000 I/Os, and the flushes take the time."""
    rates = Rates()
    each = interval(0, 1000, 0)
    each["streams"][0]["operations"] = [operation("write", 2000, 4096, 300), operation("flush", 2000, 0, 1000)]
    rates.add(each)
    assert rates.text().split() == ["2,000", "IOPS", "8.19", "MB/s", "flush", "p99", "1", "µs"]


SHORT = ("--duration", "300ms", "--ramp", "100ms", "--set", "interval=100ms")


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def io(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["io", *arguments])


def test_a_device_that_may_be_overwritten_must_be_part_of_the_target(tmp_path: Path, iosonde: Iosonde) -> None:
    for command in ("io",), ("run", "quick"):
        done = iosonde(*command, "--target", tmp_path, "--destroy", "/dev/nvme9n9")
        assert done.returncode == 1
        assert "`--destroy /dev/nvme9n9` must name a device of the target" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_one_measurement_is_a_line_an_interval_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = io(
        *("--target", str(tmp_path / "data"), "--access", "random", "--block-size", "4KiB", "--queue-depth", "8"),
        *("--read-fraction", "0.7", "--span", "4MiB", "--io-mode", "buffered", *SHORT),
    )
    assert done.exit_code == 0, done.exception
    lines = [line for line in done.stderr.splitlines() if re.search(r"IOPS .*B/s +p99 ", line)]
    assert any(line.endswith("(ramp)") for line in lines)
    assert any(not line.endswith("(ramp)") for line in lines)
    table = done.stdout.splitlines()
    assert table[0].split() == ["read", "write", "all"]
    assert table.pop(-2).split(": ")[0] in KINDS, "the verdict with its first reason"
    percentiles = [f"completion latency {name}" for name in ("mean", "p50", "p90", "p99", "p99.9", "max")]
    note = "closed loop: the next I/O starts when one completes"
    assert [line.split("  ")[0] for line in table[1:]] == ["IOPS", "bandwidth", *percentiles, note]
    assert list((tmp_path / "data").iterdir()) == []


def test_open_loop_has_two_latencies_and_a_percentile_with_too_few_samples_is_a_dash() -> None:
    rate = ("--rate", "2k", "--set", "limit_operations=60", *SHORT, "--duration", "1h")
    done = io("--target", "null:1MiB", "--span", "1MiB", *rate)
    assert done.exit_code == 0, done.exception
    rows = {line[:24].strip(): line[24:].strip() for line in done.stdout.splitlines()}
    assert rows["completion latency p99"] == "-"
    assert rows["response latency p50"] != "-"


def test_it_is_the_same_as_a_study_of_one_case(tmp_path: Path) -> None:
    done = io("--target", "null:1MiB", "--span", "1MiB", "--json", "--output", str(tmp_path / "set"), *SHORT)
    record = Record.model_validate_json(done.stdout)
    assert [record] == ResultSet.open(tmp_path / "set").records()
    assert record.outcome == "complete"
    assert record.parameters["block_size"] == 4096


def test_a_failed_measurement_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"*": "no space"}))
    done = io("--target", "null:1MiB", "--span", "1MiB", *SHORT)
    assert isinstance(done.exception, IosondeError)
    assert str(done.exception).startswith("cannot write to `/data/file`: no space left on device\n  phase `layout`")


BRIEF = ("--span", "4MiB", "--duration", "200ms", "--ramp", "0s", "--set", "interval=100ms")


def measured(place: Path, limit: str, *settings: str) -> subprocess.CompletedProcess[str]:
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "iosonde", "io", "--target", place, *BRIEF, *settings]
    words = ["sh", "-c", f'{limit} && exec "$@"', "sh", *command]
    own = {"PYTHONPATH": str(CHECKOUT / "python"), "IOSONDE_ENGINE": str(real_engine())}
    return subprocess.run(words, capture_output=True, encoding="utf-8", env=os.environ | own, check=False)


@pytest.mark.parametrize(
    ("limit", "settings", "problem"),
    [
        ("ulimit -f 2000", (), "the limit on file size (`ulimit -f`) is 1000 KiB"),
        ("ulimit -n 256", ("--set", "jobs=300"), "the limit on open files (`ulimit -n`) is 256"),
        ("ulimit -v 600000", (), "the limit on address space (`ulimit -v`) is 600000 KiB, but iosonde needs"),
    ],
)
def test_a_limit_that_is_exceeded_is_named(limit: str, settings: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    done = measured(tmp_path / "data", limit, *settings)
    assert done.returncode != 0
    assert problem in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and "report this" not in done.stderr


def test_the_record_has_the_cpus_of_each_job(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = measured(tmp_path / "data", "true", "--set", f"cpus={cpu}", "--set", "jobs=2", "-o", str(tmp_path / "set"))
    assert done.returncode == 0, done.stderr
    results = ResultSet.open(tmp_path / "set")
    [record] = results.records()
    assert record.result and record.result["evidence"]["job_cpus"] == [str(cpu)] * 2
    assert results.sql("SELECT job_cpus FROM runs").item() == str(cpu)
