"""Trace instances of tracefs: pages of the ring buffer, formats of events, and an instance of the running kernel."""

from __future__ import annotations

import base64
import ctypes
import mmap
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mounted import LoopFileSystem

from iosonde import planning
from iosonde.execution import execute
from iosonde.features.kernel_trace import instruments as kernel_trace
from iosonde.features.kernel_trace import mount, ring_buffer
from iosonde.features.kernel_trace import stages as io_path
from iosonde.features.kernel_trace.formats import Format, parse
from iosonde.features.kernel_trace.instance import JOURNALED, Point, TraceInstance
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal

TRACES = Path(__file__).parent / "traces"
FIELDS = {
    "block_bio_queue": ("block/block_bio_queue", ("sector",)),
    "block_rq_issue": ("block/block_rq_issue", ("sector",)),
    "block_rq_complete": ("block/block_rq_complete", ("sector",)),
    "sched_switch": ("sched/sched_switch", ("next_pid", "next_comm")),
}


def formats() -> dict[int, Format]:
    """As Linux 6.18 has them."""
    texts = ("name: " + each for each in (TRACES / "formats.txt").read_text().split("name: ")[1:])
    found = [parse(text, *FIELDS[text.split()[1]]) for text in texts]
    return {each.id: each for each in found}


def page() -> bytes:
    """A page that was read from `trace_pipe_raw`."""
    return zlib.decompress(base64.b64decode((TRACES / "page.txt").read_text()))


@pytest.mark.unit
def test_a_recorded_page_is_read() -> None:
    found = list(ring_buffer.events(page(), formats(), cpu=0))
    assert len(found) == 58
    assert (found[0].time_ns, found[0].name) == (80_938_129_131_670, "block/block_bio_queue")
    assert found[0].values == {"sector": 319_326_208}
    assert (found[-1].time_ns, found[-1].name) == (80_938_157_676_914, "sched/sched_switch")
    assert found[-1].values["next_pid"] == 13_646
    times = [each.time_ns for each in found]
    assert times == sorted(times)


@pytest.mark.unit
def test_a_truncated_or_damaged_page_ends_early() -> None:
    whole, known = page(), formats()
    for length in range(0, len(whole), 37):
        assert len(list(ring_buffer.events(whole[:length], known, cpu=0))) <= 58
    assert list(ring_buffer.events(b"\xff" * 4096, known, cpu=0)) == []


@pytest.mark.unit
def test_a_field_that_the_kernel_lacks_is_left_out() -> None:
    [issue] = [each for each in formats().values() if each.name == "block/block_rq_issue"]
    assert {each.name for each in issue.fields} == {"common_pid", "common_flags", "sector"}


@pytest.mark.system
@pytest.mark.needs("root", "tracepoints")
def test_an_instance_traces_direct_reads_and_is_removed(loop_file_system: Callable[..., LoopFileSystem]) -> None:
    device = Path(loop_file_system().device)
    thread = threading.get_native_id()
    number = device.stat().st_rdev
    dev = f"dev == {os.major(number) << 20 | os.minor(number)}"
    own = f"common_pid == {thread}"
    instance = TraceInstance.create()
    try:
        assert JOURNALED in [entry.what for entry in journal.entries()]
        instance.enable(
            [
                Point(event="syscalls/sys_enter_pread64", condition=own),
                Point(event="syscalls/sys_exit_pread64", condition=own),
                *(
                    Point(event=event, fields=("sector",), condition=dev)
                    for event in (io_path.QUEUED, io_path.ISSUED, io_path.COMPLETED)
                ),
                Point(event=io_path.WAKING, fields=("pid",), condition=f"pid == {thread}"),
                Point(event=io_path.SWITCH, fields=("next_pid",), condition=f"next_pid == {thread}"),
            ]
        )
        instance.record()
        read_directly(device, times=20)
        instance.stop()
        found = io_path.relate(instance.events(), jobs=[thread])
    finally:
        instance.remove()
    assert len(found.ios) == 20
    assert all(each["device"] > 0 for each in found.ios)
    assert JOURNALED not in [entry.what for entry in journal.entries()]


@pytest.mark.system
@pytest.mark.needs("root", "tracepoints")
def test_cleanup_removes_the_instance_of_a_killed_process() -> None:
    process = os.fork()
    if process == 0:
        TraceInstance.create()
        os._exit(0)
    os.waitpid(process, 0)
    [left] = [Path(entry.path) for entry in journal.entries() if entry.what == JOURNALED]
    instance = mount.directory() / "instances" / left.name
    assert instance.is_dir()
    assert f"the {JOURNALED} was removed" in [each.reason for each in cleanup() if each.path == str(left)]
    assert not instance.exists()


def read_directly(device: Path, *, times: int) -> None:
    """Read blocks of 4 KiB with `pread`, past the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = mmap.mmap(-1, 4096)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(buffer)))
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        for block in range(times):
            count = libc.pread(opened, address, ctypes.c_size_t(4096), ctypes.c_long(4096 * block))
            assert count == 4096, os.strerror(ctypes.get_errno())
    finally:
        os.close(opened)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("backend", "depth", "reason"),
    [("null", 1, "does no I/O through the kernel"), ("uring", 4, "at queue depth 1 only")],
)
def test_what_cannot_be_traced_has_the_reason(backend: str, depth: int, reason: str, tmp_path: Path) -> None:
    target, done = {"path": str(tmp_path)}, cast("Any", SimpleNamespace(failure=None))
    streams = [{"queue_depth": depth}]
    workload = {"kind": "block", "target": target, "backend": {"kind": backend}, "streams": streams}
    context: Any = SimpleNamespace(parameters={"kernel_trace": True}, run=SimpleNamespace(spec={"workload": workload}))
    trace = kernel_trace.KernelTrace(context)
    trace.start()
    assert reason in trace.stop(done).parts[0].model_dump()["reason"]
    context.parameters["kernel_trace"] = False
    trace = kernel_trace.KernelTrace(context)
    trace.start()
    assert trace.stop(done).facts == {}


STUDY = """
name = "traced"
title = "Traced"
question = "?"
repeats = 1

[measurement]
access = "random"
block_size = "4KiB"
span = "4MiB"
backend = "sync"
kernel_trace = true
ramp = "200ms"
duration = "300ms"
interval = "100ms"

[[parts]]

[profiles.standard]
"""


@pytest.mark.system
@pytest.mark.needs("root", "tracepoints")
def test_a_traced_run_is_complete_and_leaves_no_instance(
    loop_file_system: Callable[..., LoopFileSystem], tmp_path: Path
) -> None:
    """The number of related I/Os depends on scheduling; the test above relates all of a fixed number."""
    plan = planning.expand(planning.parse(STUDY), open_target(str(loop_file_system().directory)))
    [record] = execute(plan, tmp_path / "set").records()
    assert record.outcome == "complete"
    trace = record.parts["kernel_trace"]
    assert trace is not None
    assert trace["reason"] in ("", kernel_trace.NO_INTERVAL, kernel_trace.NO_IO)
    assert trace["unseen"] == {}
    assert len({len(times) for times in trace.get("stages", {"none": []}).values()}) == 1
    assert JOURNALED not in [entry.what for entry in journal.entries()]
