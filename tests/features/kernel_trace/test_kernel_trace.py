"""The instrument that traces a run: when it records, and which reason the record has where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mounted import LoopFileSystem

from iosonde.execution import execute
from iosonde.execution.engine import without_engine
from iosonde.features.kernel_trace import instruments as kernel_trace
from iosonde.features.kernel_trace.instance import JOURNALED, Point
from iosonde.features.kernel_trace.instruments import KernelTrace
from iosonde.features.kernel_trace.mount import NoTracingError
from iosonde.features.kernel_trace.ring_buffer import Event
from iosonde.planning import expand, parse
from iosonde.results.schema import Failure
from iosonde.storage import open_target
from iosonde.storage.safety import journal

JOB = 1000
DONE: Any = SimpleNamespace(failure=None)
EVENTS = [
    ("syscalls/sys_enter_pread64", 10, {}),
    ("block/block_bio_queue", 12, {"sector": 8}),
    ("block/block_rq_issue", 15, {"sector": 8}),
    ("block/block_rq_complete", 90, {"sector": 8}),
    ("syscalls/sys_exit_pread64", 99, {}),
]


class FakeInstance:
    """Records what is asked of it; its events are those of one read."""

    lacks: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.log: list[str] = []
        self.points: Sequence[Point] = ()
        self.conditions: Mapping[str, str] = {}

    def has(self, event: str) -> bool:
        return event not in self.lacks

    def enable(self, points: Sequence[Point]) -> None:
        self.points = points

    def restrict(self, conditions: Mapping[str, str]) -> None:
        self.conditions = conditions

    def record(self) -> None:
        self.log.append("record")

    def stop(self) -> None:
        self.log.append("stop")

    def remove(self) -> None:
        self.log.append("remove")

    recorded: Sequence[tuple[str, int, Mapping[str, int | str]]] = EVENTS

    def events(self) -> list[Event]:
        return [
            Event(time_ns=time, cpu=0, pid=JOB, in_interrupt=False, name=name, values=values)
            for name, time, values in self.recorded
        ]


def instrument(path: Path, *, backend: str = "sync", depth: int = 1, is_asked: bool = True) -> KernelTrace:
    workload = {
        "kind": "block",
        "target": {"path": str(path)},
        "backend": {"kind": backend},
        "streams": [{"queue_depth": depth}],
    }
    context: Any = SimpleNamespace(
        parameters={"kernel_trace": is_asked}, run=SimpleNamespace(spec={"workload": workload})
    )
    return KernelTrace(context)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> FakeInstance:
    """An instance without a kernel, and a target on the block device 8:1 of the disk 8:0."""
    fake = FakeInstance()
    monkeypatch.setattr(kernel_trace.TraceInstance, "create", lambda: fake)
    monkeypatch.setattr(kernel_trace, "_threads", lambda pid: ((JOB,), ()))
    monkeypatch.setattr(kernel_trace, "_traceable", lambda spec: (("pread64", "pwrite64"), "8:1"))
    monkeypatch.setattr(kernel_trace, "whole_disk", lambda device: "8:0")
    monkeypatch.setattr(kernel_trace.time, "clock_gettime_ns", lambda clock: 5)
    return fake


def intervals(instrument: KernelTrace) -> None:
    for phase in ("ramp", "ramp", "measure", "measure"):
        instrument.event({"event": "interval", "phase": phase})  # type: ignore[typeddict-item]
    instrument.event({"event": "result"})  # type: ignore[typeddict-item]


@pytest.mark.unit
def test_it_records_from_the_ramp_to_the_result_and_relates_what_the_measurement_did(
    traced: FakeInstance, tmp_path: Path
) -> None:
    trace = instrument(tmp_path)
    trace.start()
    trace.engine_started(JOB - 1)
    intervals(trace)
    facts = trace.stop(DONE).parts[0].model_dump()
    trace.close()
    assert traced.log == ["record", "stop", "stop", "remove"]
    assert facts["reason"] == ""
    assert (facts["related"], facts["incomplete"]) == (1, 0)
    assert facts["stages"]["device"] == [75]
    assert traced.conditions["syscalls/sys_enter_pread64"] == f"common_pid == {JOB}"
    of_device = {point.event: point.condition for point in traced.points}
    assert of_device["block/block_rq_issue"] == f"dev == {8 << 20}"
    assert of_device["block/block_bio_queue"] == f"dev == {8 << 20 | 1} || dev == {8 << 20}"


@pytest.mark.unit
def test_a_stage_without_its_tracepoint_has_the_reason(traced: FakeInstance, tmp_path: Path) -> None:
    traced.lacks = ("irq/irq_handler_entry",)
    trace = instrument(tmp_path)
    trace.start()
    intervals(trace)
    facts = trace.stop(DONE).parts[0].model_dump()
    assert facts["unseen"] == {"interrupt": "the kernel has no tracepoint `irq:irq_handler_entry`"}
    assert facts["related"] == 1


@pytest.mark.unit
def test_a_recording_that_began_too_late_for_any_io_has_a_reason(traced: FakeInstance, tmp_path: Path) -> None:
    traced.recorded = EVENTS[:1]
    trace = instrument(tmp_path)
    trace.start()
    intervals(trace)
    facts = trace.stop(DONE).parts[0].model_dump()
    assert (facts["related"], facts["reason"]) == (0, kernel_trace.NO_IO)


@pytest.mark.unit
def test_without_tracepoints_of_system_calls_there_are_no_stages(traced: FakeInstance, tmp_path: Path) -> None:
    traced.lacks = ("syscalls/sys_enter_pread64",)
    trace = instrument(tmp_path)
    trace.start()
    assert traced.log == ["remove"]
    intervals(trace)
    assert trace.stop(DONE).parts[0].model_dump()["reason"] == (
        "the kernel has no tracepoint `syscalls:sys_enter_pread64`"
    )


@pytest.mark.unit
def test_a_run_that_is_not_to_be_traced_has_no_facts(tmp_path: Path) -> None:
    trace = instrument(tmp_path, is_asked=False)
    trace.start()
    intervals(trace)
    assert trace.stop(DONE).facts == {}
    trace = instrument(tmp_path, depth=4)
    trace.start()
    assert trace.stop(without_engine(Failure(code="unsupported", message="no"))).facts == {}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("backend", "depth", "reason"),
    [("null", 1, "does no I/O through the kernel"), ("uring", 4, "at queue depth 1 only")],
)
def test_what_cannot_be_traced_has_the_reason(backend: str, depth: int, reason: str, tmp_path: Path) -> None:
    trace = instrument(tmp_path, backend=backend, depth=depth)
    trace.start()
    assert reason in trace.stop(DONE).parts[0].model_dump()["reason"]


@pytest.mark.unit
def test_without_permission_the_run_is_measured_and_has_the_reason(
    traced: FakeInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise NoTracingError("no permission to read `/sys/kernel/tracing`: tracepoints need root")

    monkeypatch.setattr(kernel_trace.TraceInstance, "create", refuse)
    trace = instrument(tmp_path)
    trace.start()
    intervals(trace)
    assert "tracepoints need root" in trace.stop(DONE).parts[0].model_dump()["reason"]


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
    """The number of related I/Os depends on scheduling; `test_tracing.py` relates all of a fixed number."""
    plan = expand(parse(STUDY), open_target(str(loop_file_system().directory)))
    [record] = execute(plan, tmp_path / "set").records()
    assert record.outcome == "complete"
    trace = record.parts["kernel_trace"]
    assert trace is not None
    assert trace["reason"] in ("", kernel_trace.NO_INTERVAL, kernel_trace.NO_IO)
    assert trace["unseen"] == {}
    assert len({len(times) for times in trace.get("stages", {"none": []}).values()}) == 1
    assert JOURNALED not in [entry.what for entry in journal.entries()]
