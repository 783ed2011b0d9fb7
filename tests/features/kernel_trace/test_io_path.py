"""The path of an I/O through the kernel: its stages from traces, findings on them, and the trace instances themselves."""

from __future__ import annotations

import base64
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from hand_made import results
from mounted import LoopFileSystem
from study_texts import study_text

from iosonde import planning
from iosonde.execution.session import execute
from iosonde.features.kernel_trace import ring_buffer
from iosonde.features.kernel_trace import run as kernel_trace
from iosonde.features.kernel_trace import stages as io_path
from iosonde.features.kernel_trace.instance import JOURNALED, Point, TraceInstance, directory
from iosonde.features.kernel_trace.questions import LATENCY, PathStages, TracingCost, UntracedPath, find
from iosonde.features.kernel_trace.ring_buffer import Event, Format, parse
from iosonde.features.kernel_trace.stages import relate
from iosonde.findings.finding import Finding
from iosonde.findings.question import Question
from iosonde.planning import load
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal

TRACES = Path(__file__).parent / "traces"
JOB, HELPER = 1000, 1001
ENTER, EXIT = "syscalls/sys_enter_io_uring_enter", "syscalls/sys_exit_io_uring_enter"


def event(
    time_ns: int, name: str, fields: dict[str, int] | None = None, *, pid: int = JOB, cpu: int = 0, irq: bool = False,
    **values: int,
) -> Event:  # fmt: skip
    return Event(time_ns=time_ns, cpu=cpu, pid=pid, in_interrupt=irq, name=name, values=fields or values)


def recorded(name: str) -> list[Event]:
    found = []
    for line in (TRACES / f"{name}.txt").read_text().splitlines()[1:]:
        time_ns, cpu, pid, context, what, *values = line.split()
        fields = {key: int(value) for key, _, value in (each.partition("=") for each in values)}
        found.append(event(int(time_ns), what, fields, pid=int(pid), cpu=int(cpu), irq=context == "irq"))
    return found


def block(begin: int, *, sector: int = 8, pid: int = JOB, done_by: int = 0, irq: bool = False) -> list[Event]:
    """A request: 10 ns in the block layer, 100 ns on the device."""
    return [
        event(begin, "block/block_bio_queue", pid=pid, sector=sector),
        event(begin + 10, "block/block_rq_issue", pid=pid, sector=sector),
        event(begin + 110, "block/block_rq_complete", pid=done_by, irq=irq, sector=sector),
    ]


@pytest.mark.parametrize("name", ["sync", "libaio"])
def test_every_read_of_a_recorded_trace_is_related(name: str) -> None:
    found = relate(recorded(name), jobs=[JOB])
    assert len(found.ios) == 10
    assert found.incomplete == 0
    assert all(min(each.values()) >= 0 for each in found.ios)
    # Measured on a virtio disk: a read takes tens of microseconds there, and code of the kernel a few.
    assert all(30_000 < each["device"] < 1_000_000 for each in found.ios)
    assert all(0 < each["block_layer"] < 30_000 for each in found.ios)


def test_stages_add_up_to_the_time_between_the_system_calls() -> None:
    events = recorded("sync")
    begins = [each.time_ns for each in events if each.name.startswith("syscalls/sys_enter")]
    ends = [each.time_ns for each in events if each.name.startswith("syscalls/sys_exit")]
    totals = [sum(each.values()) for each in relate(events, jobs=[JOB]).ios]
    assert totals == [end - begin for begin, end in zip(begins, ends, strict=True)]
    first = relate(events, jobs=[JOB]).ios[0]
    assert (first["submission"], first["block_layer"], first["device"]) == (15_698, 3_645, 61_703)
    assert first["interrupt"] == 83_243 - 81_047


def test_io_of_other_threads_is_left_out() -> None:
    assert relate(recorded("sync"), jobs=[77]).ios == []
    events = [event(0, ENTER), *block(5), *block(6, sector=99, pid=5), event(200, EXIT)]
    assert len(relate(sorted(events, key=lambda each: each.time_ns), jobs=[JOB]).ios) == 1


def test_polled_io_has_no_interrupt_and_no_wake_up() -> None:
    [io] = relate([event(0, ENTER), *block(5, done_by=JOB), event(120, EXIT)], jobs=[JOB]).ios
    assert io == {"submission": 5, "block_layer": 10, "device": 100, "interrupt": 0, "wake_up": 0, "return": 5}


def test_with_submission_polling_the_io_begins_when_the_helper_takes_it() -> None:
    events = [
        event(0, ENTER),
        event(3, "io_uring/io_uring_submit_req", pid=HELPER),
        *block(5, pid=HELPER),
        event(120, EXIT),
    ]
    [io] = relate(events, jobs=[JOB, 1002], helpers=[HELPER]).ios
    assert io["submission"] == 2
    assert io["return"] == 5


def test_a_passthrough_command_has_no_block_layer_and_no_sector_at_its_end() -> None:
    events = [
        event(0, ENTER),
        event(10, "block/block_rq_issue", sector=0),
        event(110, "block/block_rq_complete", sector=2**64 - 1),
        event(112, EXIT),
    ]
    [io] = relate(events, jobs=[JOB]).ios
    assert io == {"submission": 10, "block_layer": 0, "device": 100, "interrupt": 0, "wake_up": 0, "return": 2}


def test_an_interrupt_on_another_cpu_that_passes_the_completion_on_counts() -> None:
    queued, issued, completed = block(5, irq=True)
    events = [
        event(0, ENTER),
        queued,
        issued,
        event(100, "irq/irq_handler_entry", cpu=3, irq=True),
        completed,
        event(117, "sched/sched_waking", {"pid": JOB}, pid=0, irq=True),
        event(120, "sched/sched_switch", {"next_pid": JOB}, pid=0),
        event(125, EXIT),
    ]
    [io] = relate(events, jobs=[JOB]).ios
    assert io == {"submission": 5, "block_layer": 10, "device": 85, "interrupt": 17, "wake_up": 3, "return": 5}


def test_two_requests_in_flight_are_not_related_and_what_began_before_the_measurement_is_left_out() -> None:
    found = relate([event(0, ENTER), *block(5)[:2], *block(16, sector=16), event(200, EXIT)], jobs=[JOB])
    assert (found.incomplete, len(found.ios)) == (1, 1)
    events = [event(50, ENTER), *block(55), event(200, EXIT)]
    assert len(relate(events, jobs=[JOB], since_ns=50).ios) == 1
    assert relate(events, jobs=[JOB], since_ns=51).ios == []


# Findings --------------------------------------------------------------------------------------------------------------

UNTRACED, TRACED = [10_000.0, 10_100.0, 9_900.0], [10_500.0, 10_605.0, 10_395.0]
PATH = {
    "path_submission_ns_mean": [500.0, 510.0, 490.0],
    "path_block_layer_ns_mean": [500.0, 490.0, 510.0],
    "path_device_ns_mean": [8_000.0, 8_080.0, 7_920.0],
    "path_interrupt_ns_mean": [0.0, 0.0, 0.0],
    "path_wake_up_ns_mean": [600.0, 606.0, 594.0],
    "path_return_ns_mean": [400.0, 404.0, 396.0],
    "path_total_ns_mean": [10_000.0, 10_090.0, 9_910.0],
    "path_related": [2_000.0, 1_900.0, 2_100.0],
}


def findings(
    path: Mapping[str, Sequence[float]], *, reason: str | None = None, unseen: str | None = None
) -> list[Finding]:
    """Of reads with `sync`: a case with tracing and one without."""
    study = load("kernel-tax")
    metrics: dict[str, Any] = {LATENCY: {(False,): UNTRACED, (True,): TRACED}}
    metrics |= {name: {(True,): values} for name, values in path.items()}
    same = {"interface": "sync", "operation": "read", "jobs": 1, "queue_depth": 1, "read_fraction": 1.0}
    cases, runs = results(["kernel_trace"], metrics, backend="sync", block_size=4096, access="random", **same)
    facts = {"path_reason": [None, reason], "path_unseen": [None, unseen]}
    outcomes = pl.DataFrame({"case_id": cases["case_id"], **facts}, schema_overrides=dict.fromkeys(facts, pl.String))
    return list(find(Question(study=study, analysis=study.analysis[0], cases=cases, runs=runs, outcomes=outcomes)))


def test_stages_are_listed_with_their_times_the_longest_first_and_the_cost_of_tracing() -> None:
    found = findings(PATH)
    [stages] = [each for each in found if isinstance(each, PathStages)]
    assert [(stage, time.value) for stage, time in stages.stages] == [
        ("device", 8_000.0),
        ("wake_up", 600.0),
        ("submission", 500.0),
        ("block_layer", 500.0),
        ("return", 400.0),
    ]
    assert stages.total.value == 10_000.0
    assert stages.total.low is not None and stages.total.high is not None
    assert stages.software.value == pytest.approx(0.2, abs=0.002)
    assert (stages.related, stages.repeats, stages.unseen) == (1_900, 3, ())
    assert stages.sentence.startswith("4 KiB random reads, sync: of 10 µs (95 % CI ")
    [cost] = [each for each in found if isinstance(each, TracingCost)]
    assert (cost.ratio.value, cost.backend) == (pytest.approx(1.05), "sync")


def test_a_backend_without_stages_has_the_reason() -> None:
    reason = "no permission to read `/sys/kernel/tracing`: tracepoints need root"
    found = findings({}, reason=reason)
    assert not any(isinstance(each, PathStages) for each in found)
    [untraced] = [each for each in found if isinstance(each, UntracedPath)]
    assert (untraced.backend, untraced.reason) == ("sync", reason)
    assert any(isinstance(each, TracingCost) for each in found)
    reason = "the kernel has no tracepoint `irq:irq_handler_entry`"
    [stages] = [each for each in findings(PATH, unseen=f"interrupt: {reason}") if isinstance(each, PathStages)]
    assert stages.unseen == (("interrupt", reason),) and reason in stages.evidence


# Trace instances of tracefs, and pages of their ring buffer ------------------------------------------------------------


FIELDS = {
    "block_bio_queue": ("block/block_bio_queue", ("sector",)),
    "block_rq_issue": ("block/block_rq_issue", ("sector",)),
    "block_rq_complete": ("block/block_rq_complete", ("sector",)),
    "sched_switch": ("sched/sched_switch", ("next_pid",)),
}


def formats() -> dict[int, Format]:
    """As Linux 6.18 has them."""
    texts = ("name: " + each for each in (TRACES / "formats.txt").read_text().split("name: ")[1:])
    found = [parse(text, *FIELDS[text.split()[1]]) for text in texts]
    return {each.id: each for each in found}


def test_a_recorded_page_is_read_and_a_truncated_or_damaged_one_ends_early() -> None:
    known = formats()
    page = zlib.decompress(base64.b64decode((TRACES / "page.txt").read_text()))  # As read from `trace_pipe_raw`.
    found = list(ring_buffer.events(page, known, cpu=0))
    assert len(found) == 58
    assert (found[0].time_ns, found[0].name) == (80_938_129_131_670, "block/block_bio_queue")
    assert found[0].values == {"sector": 319_326_208}
    assert (found[-1].time_ns, found[-1].name) == (80_938_157_676_914, "sched/sched_switch")
    assert found[-1].values["next_pid"] == 13_646
    times = [each.time_ns for each in found]
    assert times == sorted(times)
    for length in range(0, len(page), 37):
        assert len(list(ring_buffer.events(page[:length], known, cpu=0))) <= 58
    assert list(ring_buffer.events(b"\xff" * 4096, known, cpu=0)) == []


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
                Point(event="syscalls/sys_enter_preadv2", condition=own),
                Point(event="syscalls/sys_exit_preadv2", condition=own),
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
    instance = directory() / "instances" / left.name
    assert instance.is_dir()
    assert f"the {JOURNALED} was removed" in [each.reason for each in cleanup() if each.path == str(left)]
    assert not instance.exists()


def read_directly(device: Path, *, times: int) -> None:
    """Read blocks of 4 KiB past the page cache."""
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    for block in range(times):
        assert os.preadv(opened, [mmap.mmap(-1, 4096)], 4096 * block) == 4096
    os.close(opened)


@pytest.mark.parametrize(
    ("backend", "depth", "reason"),
    [("null", 1, "does no I/O through the kernel"), ("uring", 4, "at queue depth 1 only")],
)
def test_what_cannot_be_traced_has_the_reason(backend: str, depth: int, reason: str, tmp_path: Path) -> None:
    target, done = {"path": str(tmp_path)}, cast("Any", SimpleNamespace(failure=None))
    streams = [{"queue_depth": depth}]
    workload = {"kind": "block", "target": target, "backend": {"kind": backend}, "streams": streams}
    run = SimpleNamespace(spec={"workload": workload})
    context: Any = SimpleNamespace(parameters={"kernel_trace": True}, run=run, workload=workload)
    trace = kernel_trace.KernelTrace(context)
    trace.start()
    assert reason in trace.stop(done).parts[0].model_dump()["reason"]


STUDY = study_text(
    "block",
    """
access = "random"
block_size = "4KiB"
span = "4MiB"
backend = "sync"
kernel_trace = true
ramp = "200ms"
duration = "300ms"
interval = "100ms"
""",
)


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
