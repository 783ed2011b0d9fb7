"""The engine's own device bytes, and others that use the device; an engine that is stopped while it measures."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import control_groups
import polars as pl
import pytest
from mounted import LoopFileSystem

from iosonde.execution import execute
from iosonde.execution.observer import Silent
from iosonde.findings.observations import quality
from iosonde.metrics.metrics import run_metrics, stalled_intervals
from iosonde.plan import Run
from iosonde.planning import expand, parse
from iosonde.protocol.event import Event
from iosonde.report import figures
from iosonde.results import ResultSet
from iosonde.results.run_facts.own_io import Foreign, foreign
from iosonde.storage import open_target
from iosonde.storage.control_groups import io_group
from iosonde.study.model import Study

Mounts = Callable[..., LoopFileSystem]

MIB = 1 << 20
AMPLIFICATIONS = ("device_read_amplification", "device_write_amplification", "file_system_write_amplification")


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        (1, "blkio.throttle.io_service_bytes", "7:0 Read 4096\n7:0 Write 8192\n7:0 Sync 9\n7:0 Total 9\nTotal 12800\n"),
        (2, "io.stat", "7:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n254:0\n"),
    ],
)
def test_groups_of_both_versions_count_reads_and_writes_by_disk(
    tmp_path: Path, version: int, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert io_group.counted(tmp_path, version) == {"7:0": (4096, 8192)}


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


def test_without_a_group_reads_are_unknown_and_a_megabyte_is_ignored() -> None:
    assert foreign(facts(version=None), block()).read_share is None
    assert foreign(facts(version=None), block()).write_share == 0.1
    assert foreign(None, block()) == Foreign()
    row = {"device": "7:0", "read_bytes": 0, "write_bytes": MIB, "own_read_bytes": 0, "own_write_bytes": 1}
    assert foreign(facts(measure=[row]), block()).write_share == 0.0


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., ResultSet]:
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
    loop_file_system: Mounts,
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
def test_with_a_neighbour_on_the_device_its_amplification_is_withheld(
    measure: Callable[..., ResultSet],
    loop_file_system: Mounts,
    neighbour: Callable[[LoopFileSystem], None],
) -> None:
    """A parallel `dd` once turned a write amplification of 0.65 into 6.1."""
    mounted = loop_file_system(size="400M")
    neighbour(mounted)
    done = measure(mounted.directory, "block", **BLOCK)
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


STUDY = """
name = "stopped"
title = "A stopped engine"
question = "How fast is it?"
repeats = 1
measurement = { span = "16MiB", ramp = "0s", duration = "20s", interval = "500ms", arrival = "constant", rate = 500 }
[[parts]]
name = "main"
factors.queue_depth = [16]
[profiles.standard]
[[views]]
kind = "timeseries"
title = "IOPS over time"
part = "main"
x = "queue_depth"
y = "iops"
"""
STOPPED_S = 3.0


class Stops(Silent):
    """Stops the engine after its first interval."""

    pid = 0

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "hello":
            self.pid = event["pid"]
        elif event["event"] == "interval" and self.pid:
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(self.pid, signal.SIGCONT)
            self.pid = 0


@pytest.mark.needs("disk")
def test_an_engine_stopped_for_three_seconds_is_no_slow_device(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    done = execute(expand(parse(STUDY), open_target(str(tmp_path / "data"))), tmp_path / "results", observer=Stops())
    [record] = done.records()
    assert record.verdict
    assert record.verdict.kind == "undetermined", record.verdict
    assert "engine_stalled" in {warning.code for warning in record.warnings}
    assert (record.verdict.evidence["longest_stall_ns"] or 0) > 0.9 * STOPPED_S * 1e9
    stalled = done.intervals.filter(pl.col("engine_stalled_ns") > 0)
    assert stalled["engine_stalled_ns"].sum() > 0.9 * STOPPED_S * 1e9
    marked = stalled_intervals(done)
    assert len(marked) >= STOPPED_S / 0.5 - 1
    [figure] = [each for each in figures([done]) if each.title == "IOPS over time"]
    assert figure.rows["stalled"].sum() == len(marked)
    assert "stalled" in figure.caption
