"""Commands after a session: `iosonde verify`, also after a kill, `iosonde resume` and `iosonde cleanup`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Iosonde
from engines import FAKE
from inline_snapshot import snapshot
from plans import a_failure, a_record, hand_plan, tables
from typer.testing import CliRunner, Result

from iosonde.cli import app
from iosonde.results import ResultSet
from iosonde.results.schema import UNSUPPORTED, Failure
from iosonde.storage.safety import journal

VERIFIED = ("--span", "4MiB", "--duration", "300ms", "--ramp", "0s", "--read-fraction", "0.5", "--queue-depth", "8")


@pytest.fixture
def kept(iosonde: Iosonde, tmp_path: Path) -> Path:
    """A file that a verified run left, with all blocks known."""
    data = tmp_path / "data"
    done = iosonde("io", "--target", str(data), *VERIFIED, "--set", "verify=after", "--keep")
    assert done.returncode == 0, done.stderr
    return data


def test_what_is_wrong_is_listed_with_its_place(iosonde: Iosonde, kept: Path) -> None:
    done = iosonde("verify", str(kept))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{kept}: 4 MiB checked, no wrong sectors\n"
    data = bytearray(kept.read_bytes())
    data[5 * 4096 + 1000] ^= 1
    data[9 * 4096 : 10 * 4096] = data[2 * 4096 : 3 * 4096]
    kept.write_bytes(data)
    done = iosonde("verify", str(kept.parent))
    assert done.returncode == 4
    lines = done.stdout.splitlines()
    assert lines[0].endswith(" checked, 9 wrong sectors")
    assert "  1 sector flipped: bits differ from what was written" in lines
    assert "  8 sectors misdirected: data belongs to another offset" in lines
    assert any(line.startswith(f"  {kept} at {5 * 4096 + 512}, 512 bytes flipped: ") for line in lines)
    assert any(line.startswith(f"  {kept} at {9 * 4096}, 4096 bytes misdirected: ") for line in lines)
    (result,) = json.loads(iosonde("verify", str(kept), "--json").stdout)
    assert result["faults"]["misdirected"] == 8


def test_a_run_that_reads_wrong_data_warns_and_records_it(iosonde: Iosonde, kept: Path, tmp_path: Path) -> None:
    data = bytearray(kept.read_bytes())
    data[1000] ^= 1
    kept.write_bytes(data)
    output = tmp_path / "results"
    again = (*VERIFIED, "--read-fraction", "1", "--set", "verify=during", "--set", "access=sequential")
    again += ("--duration", "60s", "--set", "limit_bytes=4MiB")
    done = iosonde("io", "--target", str(kept), *again, "--output", str(output))
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == "error: wrong data in 1 of 1 run: do not trust this storage"
    assert "warning: data read differs from data written (sectors: " in done.stderr
    rows = iosonde("sql", str(output), "SELECT fault, offset_bytes, bytes FROM faults", "--format", "csv").stdout
    assert rows.split() == ["fault,offset_bytes,bytes", "flipped,512,512"]
    rows = iosonde("sql", str(output), "SELECT wrong_sectors > 0 AS wrong FROM runs", "--format", "csv").stdout
    assert rows.split() == ["wrong", "true"]
    assert not kept.exists()
    assert not kept.with_name("data.verify").exists(), "what was kept goes with its file"


def test_verification_of_data_written_without_it_is_refused(iosonde: Iosonde, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert iosonde("io", "--target", str(data), *VERIFIED, "--keep").returncode == 0
    done = iosonde("io", "--target", str(data), *VERIFIED, "--set", "verify=after", "--keep")
    assert done.returncode == 1
    refused = f"error: `{data}` cannot be verified: what it holds at offset 0 was written without verification\n"
    assert refused in done.stderr and 'layout = "always"' in done.stderr
    done = iosonde("verify", str(data))
    assert done.returncode == 1
    assert "was written without verification" in done.stderr
    assert "--keep" in done.stderr


SOME_VERIFIED = """
name = "some-verified"
title = "Some verified"
question = "?"
shuffle = false
[measurement]
span = "4MiB"
read_fraction = 0.5
limit_bytes = "4MiB"
[[parts]]
name = "plain"
[[parts]]
name = "verified"
measurement = { verify = "after" }
[profiles.standard]
repeats = 2
"""


def test_parts_with_and_without_verification_share_a_target(iosonde: Iosonde, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(SOME_VERIFIED)
    done = iosonde("run", str(tmp_path / "study.toml"), "--target", str(tmp_path), "--output", str(tmp_path / "set"))
    assert done.returncode == 0, done.stderr
    assert "`verified` lays out all files before each run" in done.stderr
    records = ResultSet.open(tmp_path / "set").records()
    assert [record.part for record in records].count("verified") == 2
    assert all(record.failure is None and not record.has_wrong_data for record in records)


def test_a_target_without_anything_verified_is_an_error(iosonde: Iosonde, tmp_path: Path) -> None:
    for name in ("missing", "."):
        done = iosonde("verify", str(tmp_path / name))
        assert done.returncode == 1
        assert done.stderr.startswith("error: ") and "hint: " in done.stderr


@pytest.mark.parametrize(
    ("durability", "io_mode"), [("none", "direct"), ("dsync", "direct"), ("flush:8", "direct"), ("flush:8", "buffered")]
)
def test_no_acknowledged_write_is_missing_after_a_kill(
    iosonde: Iosonde, tmp_path: Path, durability: str, io_mode: str
) -> None:
    """Engine and iosonde are killed together, and what they leave is checked at once."""
    command = [sys.executable, "-m", "iosonde", "io", "--target", str(tmp_path), "--span", "8MiB", "--ramp", "0s"]
    settings = {"verify": "during", "durability": durability, "io_mode": io_mode, "read_fraction": "0.2", "jobs": "2"}
    settings |= {"queue_depth": "8", "block_size": "4KiB/70:64KiB/30", "duration": "1h", "interval": "100ms"}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    assert running.stderr
    lines = iter(running.stderr.readline, "")
    seen = [line for line, _ in zip((line for line in lines if "IOPS" in line or "/s" in line), range(3), strict=False)]
    assert seen, "it measures"
    kill_engine_of(running.pid)
    running.kill()
    running.wait()
    running.stderr.close()
    done = iosonde("verify", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 MiB checked, no wrong sectors" in done.stdout


def kill_engine_of(pid: int) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 300
    while not (numbers := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.01)
    for number in numbers:
        os.kill(int(number), signal.SIGKILL)


@pytest.fixture
def result_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ResultSet:
    """Four runs: one is done, one has failed, two are missing."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    result_set = ResultSet.create(tmp_path / "set", hand_plan(name="null:1MiB"))
    first, _, second, _ = result_set.plan.runs
    with result_set.lock():
        result_set.write(a_record(result_set.plan, first), *tables(first.run_id))
        result_set.write(a_failure(result_set.plan, second), *tables(second.run_id))
    return result_set


def resume(result_set: ResultSet, *options: str) -> Result:
    return CliRunner().invoke(app, ["resume", str(result_set.directory), "--no-report", *options])


def outcomes(result_set: ResultSet) -> list[tuple[str, int, str]]:
    records = ResultSet.open(result_set.directory).records()
    return [(record.run_id, record.attempt, record.outcome) for record in records]


def test_what_is_missing_is_carried_out_and_no_more(result_set: ResultSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0002-r2": "no space"}))
    done = resume(result_set)
    assert done.exit_code == 0
    assert done.stderr.startswith("2 of 4 runs remaining\n[1/2] c0001-r2  main/queue_depth=1  ")
    assert "failed: cannot write to `/data/file`: no space left on device" in done.stderr
    runs = ("c0001-r1", "c0002-r1", "c0001-r2", "c0002-r2")
    assert outcomes(result_set) == [(run, 1, "complete" if "c0001" in run else "failed") for run in runs]


def test_unsupported_combinations_are_counted_and_not_repeated(result_set: ResultSet) -> None:
    plan, [_, _, _, run] = result_set.plan, result_set.plan.runs
    failure = Failure(code=UNSUPPORTED, message="the kernel has no poll queues")
    with result_set.lock():
        result_set.write(a_failure(plan, run).model_copy(update={"failure": failure}), *tables(run.run_id))
    done = resume(result_set, "--retry-failed")
    assert done.stderr.startswith("2 of 4 runs remaining\n1 unsupported combination not repeated\n")
    assert outcomes(result_set)[1::2] == [("c0002-r1", 2, "complete"), ("c0002-r2", 1, "failed")]


def test_damaged_files_are_named_and_their_runs_repeated(result_set: ResultSet) -> None:
    path = result_set.directory / "records/c0001-r1/usage.parquet"
    path.write_bytes(path.read_bytes()[:100])
    done = resume(result_set)
    assert done.exit_code == 0
    assert f"warning: `{path}` was modified after it was written: " in done.stderr
    assert outcomes(result_set)[0] == ("c0001-r1", 2, "complete")


def test_a_study_that_is_complete_is_left_as_it_is(result_set: ResultSet) -> None:
    resume(result_set)
    before = outcomes(result_set)
    done = resume(result_set)
    assert (done.exit_code, outcomes(result_set)) == (0, before)
    assert done.stderr.endswith(f"iosonde resume {result_set.directory} --retry-failed\n")


def leave(path: Path, *, keep: bool = False) -> None:
    """A process makes a directory and ends without removing it."""
    child = os.fork()
    if child == 0:
        journal.created(path, "directory", keep=keep)
        path.mkdir()
        journal.identify(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def test_cleanup_removes_leftovers_and_lists_them(iosonde: Iosonde, tmp_path: Path) -> None:
    leave(tmp_path / "left")
    leave(tmp_path / "kept", keep=True)
    done = iosonde("cleanup")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.replace(str(tmp_path), "DIR").splitlines()) == [
        "DIR/kept: was kept (`--kept PATH` removes it as well)",
        "DIR/left: removed",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert iosonde("cleanup", "--kept", tmp_path / "kept", "--yes").stdout.splitlines() == [
        f"would remove the kept directory {tmp_path}/kept (0 B)",
        f"{tmp_path}/kept: removed",
    ]
    assert iosonde("cleanup").stdout == "nothing to remove\n"


def test_other_kept_files_remain_and_none_is_removed_without_confirmation(iosonde: Iosonde, tmp_path: Path) -> None:
    for name in ("one", "other"):
        leave(tmp_path / name, keep=True)
    done = iosonde("cleanup", "--kept", tmp_path / "one")
    assert done.returncode == 1
    assert done.stdout == f"would remove the kept directory {tmp_path}/one (0 B)\n"
    assert "standard input is not a terminal" in done.stderr
    assert "add `--yes` in scripts" in done.stderr
    (tmp_path / "none").mkdir()
    assert iosonde("cleanup", "--kept", tmp_path / "none", "--yes").stdout.splitlines() == [
        f"no kept files at or below {tmp_path}/none",
        "nothing was removed",
    ]
    (tmp_path / "none").rmdir()
    done = iosonde("cleanup", "--kept", tmp_path / "one", "--kept", tmp_path / "none", "--yes")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.replace(str(tmp_path), "DIR") == snapshot("""\
error: `DIR/none` does not exist: it was moved or removed, or its file system is not mounted
  in `--kept`

hint: `iosonde cleanup` without `--kept` lists all kept files that exist
""")
    iosonde("cleanup", "--kept", tmp_path / "one", "--yes")
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_failed_cleanup_has_an_exit_code(iosonde: Iosonde, tmp_path: Path) -> None:
    leave(tmp_path / "left")
    (tmp_path / "left" / "precious").mkdir()
    done = iosonde("cleanup")
    assert done.returncode == 1 and "could not be removed" in done.stdout
    assert (tmp_path / "left" / "precious").exists()
