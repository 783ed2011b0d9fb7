"""The engine against an independent witness: fio reads what the engine wrote, and both do the same I/O on one file.

Nothing here is about time. What the kernel accounts to a process, what the disk counted and the contents of the file do
not depend on how busy the machine is.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from mounted import LoopFileSystem
from plans import null_spec

from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.storage import open_target

Mounts = Callable[..., LoopFileSystem]

pytestmark = [
    pytest.mark.system,
    pytest.mark.needs("fio", "disk"),
]

MIB = 1 << 20
BLOCK = 4096
SIZE = 32 * MIB
URING = {
    **{"kind": "uring", "registered_files": True, "registered_buffers": True},
    **{"submission_polling": False, "completion_polling": False},
}
ONCE_EACH = {"kind": "random", "coverage": "each_once", "distribution": {"kind": "uniform"}}
TOLERANCE = 0.05


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    write(path)
    return path


def write(path: Path) -> None:
    fio(path, "--rw=write", "--bs=1m", "--buffer_pattern=0xff", "--end_fsync=1")


def engine(path: Path, *, backend: dict[str, Any] = URING, **stream: Any) -> EngineRun:
    """One pass of random direct I/O over the file, each block once, unless `stream` changes it."""
    target = {"kind": "file", "path": str(path), "size_bytes": SIZE}
    spec = null_spec("witnessed", target=target, backend=backend, page_cache="drop", duration_ns=None)
    spec["workload"]["streams"][0] |= {
        "queue_depth": 16 if backend == URING else 1,
        "access": ONCE_EACH,
        "span": {"offset_bytes": 0, "bytes": SIZE, "sharing": "shared"},
        "payload": {"kind": "zeros"},
        "limit_operations": SIZE // BLOCK,
        **stream,
    }
    spec["observe"] = {"block_devices": open_target(str(path.parent)).block_devices()[:1]}
    stop = Stop()
    try:
        done = drive(spec, on_event=lambda event: None, stop=stop, engine=real_engine())
    finally:
        stop.close()
    assert done.failure is None
    return done


def fio(path: Path, *options: str) -> dict[str, Any]:
    """A job of fio over the file; an error of it, such as data that is not as expected, is ours."""
    common = ["fio", "--name=witness", f"--filename={path}", f"--size={SIZE}", "--direct=1", "--output-format=json"]
    done = subprocess.run([*common, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert job["error"] == 0, done.stderr
    return job


def holds(path: Path, pattern: str, *, offset: int = 0, size: int = SIZE) -> None:
    verify = ("--verify=pattern", f"--verify_pattern={pattern}", "--verify_fatal=1")
    fio(path, "--rw=read", f"--bs={BLOCK}", f"--offset={offset}", f"--size={size}", *verify)


def writes(fraction: float = 1.0) -> dict[str, float]:
    return {"read_fraction": 1 - fraction, "trim_fraction": 0.0}


def test_fio_would_notice_a_wrong_block(file: Path) -> None:
    with file.open("r+b") as data:
        data.seek(17 * BLOCK)
        data.write(b"\0")
    with pytest.raises(AssertionError):
        holds(file, "0xff")


@pytest.mark.parametrize("backend", [URING, {"kind": "sync"}], ids=["uring", "sync"])
def test_fio_finds_every_block_of_the_span_written_none_outside_and_trimmed_ones_empty(
    file: Path, backend: dict[str, Any]
) -> None:
    span = {"offset_bytes": 8 * MIB, "bytes": 16 * MIB, "sharing": "split"}
    engine(file, backend=backend, jobs=4, mix=writes(), span=span, limit_operations=16 * MIB // BLOCK)
    holds(file, "0xff", size=8 * MIB)
    holds(file, "0x00", offset=8 * MIB, size=16 * MIB)
    holds(file, "0xff", offset=24 * MIB, size=8 * MIB)
    engine(file, mix={"read_fraction": 0.0, "trim_fraction": 1.0}, limit_operations=SIZE // BLOCK)
    holds(file, "0x00")


def test_fio_finds_strided_writes_where_they_belong(file: Path) -> None:
    # 64 KiB apart, over the first half, in one pass: blocks 0, 16, 32 and so on.
    access = {"kind": "strided", "stride_bytes": 16 * BLOCK}
    span = {"offset_bytes": 0, "bytes": SIZE // 2, "sharing": "shared"}
    engine(file, access=access, mix=writes(), span=span, limit_operations=SIZE // 2 // (16 * BLOCK))
    for block in range(0, 64, 16):
        holds(file, "0x00", offset=block * BLOCK, size=BLOCK)
        holds(file, "0xff", offset=(block + 1) * BLOCK, size=15 * BLOCK)
    holds(file, "0xff", offset=SIZE // 2, size=SIZE // 2)


@pytest.mark.parametrize(("operation", "fraction"), [("read", 0.0), ("write", 1.0)])
def test_the_disk_counts_what_the_engine_counts(loop_file_system: Mounts, operation: str, fraction: float) -> None:
    """The disk is a loop device of its own, of which tools in other tests read a little."""
    path = loop_file_system(size="96M").directory / "data"
    write(path)
    done = engine(path, mix=writes(fraction))
    assert done.result
    assert sum(job["bytes"] for job in done.result["jobs"]) == SIZE
    assert done.intervals["operation"].unique().to_list() == [operation]
    (device,) = done.result["devices"]
    assert (1 - TOLERANCE) * SIZE <= device[f"{operation}_bytes"] < 1.5 * SIZE
