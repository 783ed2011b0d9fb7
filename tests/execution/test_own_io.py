"""The engine's own device bytes, others that use the device, a stopped engine, and media counters of drives (those of an
NVMe drive are in `lab/guest_nvme.py`)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import control_groups
import polars as pl
import pytest
from mounted import LoopFileSystem
from test_sustained import one_case

from iosonde.engine.protocol import Event
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.findings import quality
from iosonde.metrics.metrics import run_metrics, stalled_intervals
from iosonde.plan import Run
from iosonde.planning import expand, parse
from iosonde.report import figures
from iosonde.report.content import collect
from iosonde.results import ResultSet
from iosonde.results.accounting import Foreign, foreign
from iosonde.storage import open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_stack import stack_of
from iosonde.storage.control_groups import counted, io_hierarchy

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
    assert counted(tmp_path, version) == {"7:0": (4096, 8192)}


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
    """Processes that exited before they were looked at write more than the engine dirtied."""
    buffered, little = block("buffered"), {"dirtied_bytes": 10 * MIB}
    assert foreign(facts(others=others(0), **little), buffered).write_share == 0.5
    assert foreign(facts(others=others(0, are_present=False), **little), buffered).write_share == 0.0


@pytest.mark.parametrize("durability", ["flush", "dsync"])
def test_what_the_journal_of_the_own_file_system_may_have_written_is_nobody_else_s(durability: str) -> None:
    """With each fdatasync on ext4, jbd2 writes more than the engine: 27 % of all bytes of a qualification."""
    on_files, little = block(durability=durability), {"dirtied_bytes": 10 * MIB}
    for workload in (on_files, {"kind": "kv"}):
        assert foreign(facts(others=others(0), **little), workload).write_share == 0.0
        assert foreign(facts(**little), workload).write_share == 0.1, "what others wrote"
    on_device = {**on_files, "target": {"kind": "device"}}
    assert foreign(facts(others=others(0), **little), on_device).write_share == 0.5, "it has no journal"


def test_without_a_group_reads_are_unknown_and_a_megabyte_is_ignored() -> None:
    assert foreign(facts(version=None), block()).read_share is None
    assert foreign(facts(version=None), block()).write_share == 0.1
    assert foreign(None, block()) == Foreign()
    row = {"device": "7:0", "read_bytes": 0, "write_bytes": MIB, "own_read_bytes": 0, "own_write_bytes": 1}
    assert foreign(facts(measure=[row]), block()).write_share == 0.0


BLOCK = {"span": "32MiB", "block_size": "64KiB", "read_fraction": 0.5, "arrival": "constant", "rate": 100,
         "ramp": "0s", "duration": "60s", "limit_operations": 200, "interval": "100ms"}  # fmt: skip
KV = {"phase": "load", "store": "lmdb", "records": "20000", "value_size": 1000}


def amplifications(done: ResultSet) -> dict[str, float]:
    rows = run_metrics(done).filter(pl.col("operation") == "all", pl.col("metric").is_in(AMPLIFICATIONS))
    return dict(rows.select("metric", "value").iter_rows())


@pytest.mark.alone  # It failed once in a run whose engine was stalled by other tests, for a reason that is not known.
@pytest.mark.system
@pytest.mark.parametrize(("workload", "parameters"), [("block", BLOCK), ("kv", KV)])
def test_a_quiet_device_s_bytes_are_the_engine_s(
    loop_file_system: Mounts, tmp_path: Path, workload: str, parameters: dict[str, Any]
) -> None:
    done = execute(one_case(loop_file_system(size="400M").directory, workload, **parameters), tmp_path / "set")
    [record] = done.records()
    assert record.failure is None
    assert record.own_io and record.own_io["version"] in (1, 2), record.own_io
    assert "device_write_amplification" in amplifications(done)
    assert "other_io" not in {warning.code for warning in record.warnings}
    directory = io_hierarchy().directory
    assert control_groups.created(directory)
    assert control_groups.remaining(directory) == []


@pytest.mark.system
def test_with_a_neighbour_on_the_device_its_amplification_is_withheld(loop_file_system: Mounts, tmp_path: Path) -> None:
    """A parallel `dd` once turned a write amplification of 0.65 into 6.1."""
    mounted = loop_file_system(size="400M")
    file = mounted.directory / "theirs"
    file.write_bytes(bytes(16 * MIB))
    loop = (
        f"exec 3<>{file}; echo ready; while true; do "
        f"dd if=/dev/zero of={file} bs=1M count=16 oflag=direct conv=notrunc status=none; "
        f"dd if={file} of=/dev/null bs=1M iflag=direct status=none; done"
    )
    neighbour = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert neighbour.stdout and neighbour.stdout.readline() == b"ready\n"
        done = execute(one_case(mounted.directory, "block", **BLOCK), tmp_path / "set")
    finally:
        os.killpg(neighbour.pid, signal.SIGKILL)
        neighbour.communicate()
    [record] = done.records()
    assert record.failure is None
    assert "other_io" in {warning.code for warning in record.warnings}
    assert record.verdict and record.verdict.kind != "device-limited"
    assert not {"device_write_amplification", "file_system_write_amplification"} & set(amplifications(done))
    found = quality.find(run_metrics(done), outcomes=done.runs, warnings=done.warnings)
    [finding] = [each for each in found if isinstance(each, quality.WithheldAmplification)]
    assert (finding.count, finding.total) == (1, 1) and finding.share > 0.05


STUDY = """
name = "stopped"
title = "A stopped engine"
question = "How fast is it?"
repeats = 1
measurement = { span = "16MiB", ramp = "0s", duration = "6s", interval = "250ms", arrival = "constant", rate = 500 }
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
STOPPED_S = 2.0


class Stops(Observer):
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
def test_an_engine_that_was_stopped_is_no_slow_device(tmp_path: Path) -> None:
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
    assert len(marked) >= STOPPED_S / 0.25 - 1
    [figure] = [each for each in figures([done]) if each.title == "IOPS over time"]
    assert figure.rows["stalled"].sum() == len(marked)
    assert "stalled" in figure.caption


MEDIA = """
name = "media"
title = "Media"
question = "?"
repeats = 1
[measurement]
access = "random"
read_fraction = 0
block_size = "256KiB"
span = "48MiB"
limit_bytes = "48MiB"
ramp = 0
duration = "60s"
interval = "100ms"
[[parts]]
name = "writes"
[[views]]
kind = "accounts"
title = "Media"
part = "writes"
metrics = ["device_write_amplification", "media_write_amplification"]
[profiles.standard]
"""


def findings(done: ResultSet) -> dict[str, str]:
    [chapter] = collect([done]).chapters
    return {found.sentence: found.evidence for _, each in chapter.findings for found in each}


def amplification(done: ResultSet) -> list[float]:
    return run_metrics(done).filter(pl.col("metric") == "media_write_amplification")["value"].to_list()


@pytest.mark.needs("disk without NVMe")
def test_a_disk_without_counters_has_a_reason_in_record_and_report(tmp_path: Path) -> None:
    [disk] = block_stack.drives(stack_of(tmp_path))
    (tmp_path / "target").mkdir()
    done = execute(expand(parse(MEDIA), open_target(str(tmp_path / "target"))), tmp_path / "results")
    reason = f"`{block_stack.name_of(disk)}` is not an NVMe drive"
    [record] = done.records()
    assert record.drives[0]["start"] == record.drives[0]["end"] == {"not_reported": reason}
    assert done.runs["run_media_not_reported"].to_list() == [reason]
    assert amplification(done) == []
    assert findings(done)["Device write amplification is not known"] == reason


def test_simulated_drives_have_exact_counters(tmp_path: Path) -> None:
    """Random writes over a full drive of flash cost more at the media than the host writes."""
    done = execute(expand(parse(SIMULATED), open_target("sim:sp900,capacity=256MiB")), tmp_path / "results")
    usage = done.sql(
        "SELECT sum(media_write_bytes) / sum(write_bytes) FROM usage WHERE media_write_bytes IS NOT NULL AND phase = 'measure'"
    ).item()
    assert usage > 1 and amplification(done) == [pytest.approx(usage)]
    assert any(title.startswith("Device write amplification: ") for title in findings(done))
    [table] = [table for table in collect([done]).chapters[0].tables if table.title == "Media"]
    place = list(table.heads).index("Device to media")
    assert table.rows[0][place].number == pytest.approx(usage, rel=0.03)


SIMULATED: str = (
    MEDIA.replace('span = "48MiB"', 'span = "90%"')
    .replace('limit_bytes = "48MiB"\n', "")
    .replace('"60s"', '"1s"')
    .replace('"256KiB"', '"4KiB"')
)
