"""Tracepoints of the kernel during the measurement, for the stages of an I/O (`stages.py`).

The tracepoints are enabled before the engine starts, with filters that no event passes, so that the measurement does
not include the changes to the kernel's code. The filters get the engine's threads in the ramp. What cannot be traced
has a reason in the record, and the run is measured without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.engine.protocol import Event
from iosonde.execution.context import RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.counters import device_of
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.features.kernel_trace import stages
from iosonde.features.kernel_trace.instance import NoTracingError, Point, TraceInstance
from iosonde.features.kernel_trace.record import TraceReading
from iosonde.storage.block_layer.block_nodes import sys_path
from iosonde.storage.block_layer.block_stack import disk_of
from iosonde.study.workload import described, streams_of

SYSTEM_CALLS = {
    "sync": ("pread64", "pwrite64"),
    "preadv2": ("preadv2", "pwritev2"),
    "libaio": ("io_submit", "io_getevents"),
    "uring": ("io_uring_enter",),
    "uring_nvme": ("io_uring_enter",),
}
"""System calls of each backend."""

NO_INTERVAL = "the measurement had no complete interval"
NO_IO = "no I/O was recorded completely; a longer measurement leaves more time after the filters are set"
MOST_THREADS = 32
KERNEL_HELPERS = ("iou-sqp", "iou-wrk")
"""Names of the kernel's threads that carry out I/O of `io_uring`."""

OPTIONAL = {
    "block_layer": (stages.QUEUED,),
    "interrupt": (stages.INTERRUPT,),
    "wake_up": (stages.WAKING, stages.SWITCH),
}
"""Stages whose tracepoints may be missing; their time then counts to the stage before them."""


class KernelTrace(Instrument):
    """Traces runs whose parameters require it."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return bool(context.parameters.get("kernel_trace"))

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._instance: TraceInstance | None = None
        self._reason = ""
        self._unseen: dict[str, str] = {}
        self._pid = 0
        self._device = ""
        self._calls: tuple[str, ...] = ()
        self._points: list[Point] = []
        self._jobs: tuple[int, ...] = ()
        self._helpers: tuple[int, ...] = ()
        self._since_ns: int | None = None
        self._is_recording = False

    def start(self) -> None:
        """Create the instance and enable the tracepoints."""
        try:
            self._calls, self._device = _traceable(self.context.run.spec)
            self._instance = TraceInstance.create()
            self._enable(self._instance)
        except (NoTracingError, OSError) as error:
            self._reason = str(error)
            self.close()

    def engine_started(self, pid: int) -> None:
        """Keep the engine's process number."""
        self._pid = pid

    def event(self, event: Event) -> None:
        """Record from the first interval on; the measurement starts before its first interval is reported."""
        if self._instance is None:
            return
        if event["event"] == "interval":
            if not self._is_recording:
                self._record(self._instance)
            if self._since_ns is None and event["phase"] == "measure":
                self._since_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        elif event["event"] == "result" and self._is_recording:
            self._instance.stop()

    def stop(self, done: EngineRun) -> Reading:
        """Relate what was recorded."""
        if done.failure:
            return Reading()
        reason, related = self._reason, dict[str, Any]()
        if self._instance and self._is_recording and self._since_ns is not None:
            self._instance.stop()
            events = self._instance.events()
            found = stages.relate(events, jobs=self._jobs, helpers=self._helpers, since_ns=self._since_ns)
            related = {"events": len(events), **found.facts()}
            if not found.ios:
                reason = reason or NO_IO
        elif not reason:
            reason = NO_INTERVAL
        return Reading(parts=[TraceReading(reason=reason, unseen=self._unseen, **related)])

    def close(self) -> None:
        """Remove the instance."""
        if self._instance:
            instance, self._instance = self._instance, None
            instance.remove()

    def _enable(self, instance: TraceInstance) -> None:
        required = [f"{stages.ENTER}{self._calls[0]}", stages.ISSUED, stages.COMPLETED]
        missing = next((each for each in required if not instance.has(each)), None)
        if missing:
            raise NoTracingError(f"the kernel has no tracepoint `{missing.replace('/', ':')}`")
        for stage, names in OPTIONAL.items():
            lacking = [name.replace("/", ":") for name in names if not instance.has(name)]
            if lacking:
                self._unseen[stage] = f"the kernel has no tracepoint `{lacking[0]}`"
        self._points = [point for point in self._wanted() if instance.has(point.event)]
        instance.enable(self._points)

    def _wanted(self) -> list[Point]:
        number, disk = _number(self._device), _number(disk_of(self._device))
        of_thread = [f"{prefix}{call}" for call in self._calls for prefix in (stages.ENTER, stages.EXIT)]
        return [
            *(Point(event=event, thread="common_pid") for event in (*of_thread, *stages.TAKEN)),
            Point(event=stages.QUEUED, fields=("sector",), condition=f"dev == {number} || dev == {disk}"),
            Point(event=stages.ISSUED, fields=("sector",), condition=f"dev == {disk}"),
            Point(event=stages.COMPLETED, fields=("sector",), condition=f"dev == {disk}"),
            Point(event=stages.INTERRUPT),
            Point(event=stages.WAKING, fields=("pid",), thread="pid"),
            Point(event=stages.SWITCH, fields=("next_pid",), thread="next_pid"),
        ]

    def _record(self, instance: TraceInstance) -> None:
        self._is_recording = True
        self._jobs, self._helpers = _threads(self._pid)
        threads = (*self._jobs, *self._helpers)[:MOST_THREADS]
        if not threads:
            return
        instance.restrict([point for point in self._points if point.thread], threads)
        instance.record()


def _traceable(spec: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """The system calls of a run, and the device whose requests are traced; `NoTracingError` if there is none."""
    workload = spec["workload"]
    if described(workload).io != "blocks":
        raise NoTracingError("stages are traced for block I/O only")
    calls = SYSTEM_CALLS.get(workload["backend"]["kind"])
    target = workload["target"]
    path = target.get("path") or target.get("directory")
    if calls is None or not path:
        raise NoTracingError(f"the backend `{workload['backend']['kind']}` does no I/O through the kernel")
    if any(stream["queue_depth"] != 1 for stream in streams_of(workload)):
        raise NoTracingError("stages are related at queue depth 1 only")
    device = device_of(Path(path))
    if device is None or not (system := sys_path(device)).exists():
        raise NoTracingError("the target is not on a block device")
    stacked = next((kind for kind in ("dm", "md", "bcache") if (system / kind).exists()), None)
    if stacked:
        raise NoTracingError(f"requests of a stacked device ({stacked}) are those of the devices below it")
    return calls, device


def _threads(pid: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The threads of a process except its first, and the kernel's threads that work for it."""
    jobs, helpers = [], []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            name = (task / "comm").read_text(encoding="utf-8").strip()
            if name.startswith(KERNEL_HELPERS):
                helpers.append(int(task.name))
            elif int(task.name) != pid:
                jobs.append(int(task.name))
    return tuple(sorted(jobs)), tuple(sorted(helpers))


def _number(device: str) -> int:
    """The kernel's own number of a device (kernel `include/linux/kdev_t.h`)."""
    major, minor = map(int, device.split(":"))
    return major << 20 | minor


INSTRUMENTS = (KernelTrace,)
