"""The engine's own device bytes: control groups of both versions, and a busy neighbour on the same device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import control_groups
import polars as pl
import pytest
from engines import real_engine
from mounted import LoopFileSystem

from iosonde.execution import execute
from iosonde.findings.observations import quality
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.run_facts.own_io import Foreign, foreign
from iosonde.storage import open_target
from iosonde.storage.block_layer.other_processes import OtherProcesses
from iosonde.storage.control_groups import io_group
from iosonde.study.model import Study

MIB = 1 << 20
AMPLIFICATIONS = ("device_read_amplification", "device_write_amplification", "file_system_write_amplification")


def test_version_1_counts_reads_and_writes_by_disk() -> None:
    text = "7:0 Read 4096\n7:0 Write 8192\n7:0 Sync 12288\n7:0 Total 12288\n254:0 Read 512\nTotal 12800\n"
    assert io_group.parse_version_1(text) == {"7:0": (4096, 8192), "254:0": (512, 0)}


def test_version_2_counts_reads_and_writes_by_disk() -> None:
    text = "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:0\n"
    assert io_group.parse_version_2(text) == {"254:0": (4096, 8192)}


@pytest.mark.parametrize(("version", "name"), [(1, "blkio.throttle.io_service_bytes"), (2, "io.stat")])
def test_groups_of_both_versions_are_read_from_their_own_file(tmp_path: Path, version: int, name: str) -> None:
    text = {1: "7:0 Read 1\n7:0 Write 2\n", 2: "7:0 rbytes=1 wbytes=2\n"}[version]
    (tmp_path / name).write_text(text)
    assert io_group.counted(tmp_path, version) == {"7:0": (1, 2)}


def others(write_bytes: int, *, are_present: bool = True) -> dict[str, Any]:
    return {"are_present": are_present, "write_bytes": write_bytes, "unreadable": 0}


def facts(**changes: Any) -> dict[str, Any]:
    """A device that wrote 100 MiB, 40 of them attributed to the engine, which dirtied 95."""
    row = {"device": "7:0", "read_bytes": 0, "write_bytes": 100 * MIB, "own_read_bytes": 0, "own_write_bytes": 40 * MIB}
    same = {"run": [row], "measure": [row], "others": others(10 * MIB), "dirtied_bytes": 95 * MIB}
    return {"version": 1, "reason": "", **same, **changes}


def block(io_mode: str = "direct", durability: str = "none") -> dict[str, Any]:
    return {"kind": "block", "streams": [{"io_mode": io_mode, "durability": {"kind": durability}}]}


def test_direct_writes_are_attributed_exactly() -> None:
    assert foreign(facts(), block()).write_share == 0.6


@pytest.mark.parametrize("workload", [block("buffered"), block(durability="flush"), {"kind": "kv"}])
def test_writes_that_the_kernel_writes_back_are_bounded_by_what_others_wrote(workload: dict[str, Any]) -> None:
    """60 MiB are not attributed to the engine; others with files on the device wrote 10 MiB."""
    assert foreign(facts(), workload).write_share == 0.1
    assert foreign(facts(others=others(0)), workload).write_share == 0.0
    assert foreign(facts(version=None, others=others(0) | {"unreadable": 9}), workload).write_share is None


def test_unexplained_writes_count_only_while_other_processes_are_present() -> None:
    """A journal writes more than the engine dirtied, and so do processes that exited before they were looked at."""
    buffered, little = block("buffered"), {"dirtied_bytes": 10 * MIB}
    assert foreign(facts(others=others(0), **little), buffered).write_share == 0.5
    assert foreign(facts(others=others(0, are_present=False), **little), buffered).write_share == 0.0


def test_without_a_group_reads_are_unknown() -> None:
    assert foreign(facts(version=None), block()).read_share is None
    assert foreign(facts(version=None), block()).write_share == 0.1
    assert foreign(None, block()) == Foreign()


def test_a_megabyte_is_ignored() -> None:
    row = {"device": "7:0", "read_bytes": 0, "write_bytes": MIB, "own_read_bytes": 0, "own_write_bytes": 1}
    assert foreign(facts(measure=[row]), block()).write_share == 0.0


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("ready", flush=True)
sys.stdin.readline()
os.write(file, bytes(1 << 20)); os.fsync(file)
print("written", flush=True)
sys.stdin.readline()
"""


def test_a_process_is_found_by_its_file_and_its_bytes_are_counted(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    watched, elsewhere = (
        OtherProcesses(devices=[device]) for device in (f"{os.major(number)}:{os.minor(number)}", "999:0")
    )
    command = [sys.executable, "-c", WRITER, str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as writer:
        assert writer.stdin and writer.stdout
        assert writer.stdout.readline() == b"ready\n"
        for each in (watched, elsewhere):
            each.look()
        before = watched.written_bytes
        writer.stdin.write(b"\n")
        assert writer.stdout.readline() == b"written\n"
        for each in (watched, elsewhere):
            each.look()
        writer.kill()
    assert watched.are_present
    assert watched.written_bytes - before >= MIB
    assert not elsewhere.are_present
    assert elsewhere.written_bytes == 0


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ResultSet]:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    numbers = iter(range(10))

    def run(directory: Path, workload: str, **measurement: Any) -> ResultSet:
        study = Study.model_validate(
            {
                "name": "one", "title": "One case", "question": "What moved the device?", "repeats": 1,
                "workload": workload, "measurement": measurement, "parts": [{"name": "main"}],
                "profiles": {"standard": {}},
            }
        )  # fmt: skip
        return execute(expand(study, open_target(str(directory))), tmp_path / f"set{next(numbers)}")

    return run


BLOCK = {"span": "32MiB", "block_size": "64KiB", "read_fraction": 0.5, "ramp": "0s", "duration": "3s",
         "interval": "100ms"}  # fmt: skip
KV = {"phase": "load", "store": "lmdb", "records": "20000", "value_size": 1000}


@pytest.fixture
def neighbour() -> Iterator[Callable[[LoopFileSystem], None]]:
    """`dd` that reads and writes a file on the same device until the test ends."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mounted: LoopFileSystem) -> None:
        file = mounted.directory / "theirs"
        file.write_bytes(bytes(16 * MIB))
        loop = (
            f"exec 3<>{file}; echo ready; while true; do "
            f"dd if=/dev/zero of={file} bs=1M count=16 oflag=direct conv=notrunc status=none; "
            f"dd if={file} of=/dev/null bs=1M iflag=direct status=none; done"
        )
        process = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout and process.stdout.readline() == b"ready\n"

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def amplifications(done: ResultSet) -> dict[str, float]:
    rows = run_metrics(done).filter(pl.col("operation") == "all", pl.col("metric").is_in(AMPLIFICATIONS))
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.alone  # It failed once in a run whose engine was stalled by other tests, for a reason that is not known.
@pytest.mark.system
@pytest.mark.parametrize(("workload", "parameters"), [("block", BLOCK), ("kv", KV)])
def test_a_quiet_device_s_bytes_are_the_engine_s(
    measure: Callable[..., ResultSet],
    loop_file_system: Callable[..., LoopFileSystem],
    workload: str,
    parameters: dict[str, Any],
) -> None:
    done = measure(loop_file_system(size="400M").directory, workload, **parameters)
    [record] = done.records()
    assert record.failure is None
    assert record.own_io and record.own_io["version"] in (1, 2), record.own_io
    assert "device_write_amplification" in amplifications(done)
    assert "other_io" not in {warning.code for warning in record.warnings}
    directory, _ = io_group.hierarchy()
    assert control_groups.created(directory)
    assert control_groups.remaining(directory) == []


@pytest.mark.system
@pytest.mark.parametrize(("workload", "parameters"), [("block", BLOCK), ("kv", KV | {"records": "100000"})])
def test_with_a_neighbour_on_the_device_its_amplification_is_withheld(
    measure: Callable[..., ResultSet],
    loop_file_system: Callable[..., LoopFileSystem],
    neighbour: Callable[[LoopFileSystem], None],
    workload: str,
    parameters: dict[str, Any],
) -> None:
    """A parallel `dd` once turned a write amplification of 0.65 into 6.1."""
    mounted = loop_file_system(size="400M")
    neighbour(mounted)
    done = measure(mounted.directory, workload, **parameters)
    [record] = done.records()
    assert record.failure is None
    assert "other_io" in {warning.code for warning in record.warnings}
    assert record.verdict and record.verdict.kind != "device-limited"
    assert "device_write_amplification" not in amplifications(done)
    assert "file_system_write_amplification" not in amplifications(done)
    [finding] = [each for each in quality.find(run_metrics(done), outcomes=done.runs, warnings=done.warnings)
                 if each.kind == "withheld amplification"]  # fmt: skip
    assert isinstance(finding, quality.WithheldAmplification)
    assert (finding.count, finding.total) == (1, 1)
    assert finding.share > 0.05
