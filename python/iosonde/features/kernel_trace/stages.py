"""Stages of an I/O on its way through the kernel, from events of tracepoints on one clock.

    begin --submission-- queued --block layer-- issued --device-- interrupt --interrupt-- waking --wake-up-- running
    --return-- end

*begin* is the system call of the thread that submits the I/O, or with submission polling the moment at which the
kernel's thread takes it; *queued* when the block layer receives it; *issued* when the driver does; *waking* when the
waiting thread is made runnable, *running* when it has a CPU, *end* the return of the system call that fetches the
completion. With polling there is no interrupt and no wake-up. A stage that did not occur takes 0 ns.

Only I/Os that are alone in their thread are related: at queue depth 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from iosonde.features.kernel_trace.ring_buffer import Event

STAGES = ("submission", "block_layer", "device", "interrupt", "wake_up", "return")
"""In the order of time."""

MOST = 4000
"""I/Os that a record has at most: the newest."""

ENTER, EXIT = "syscalls/sys_enter_", "syscalls/sys_exit_"
QUEUED, ISSUED, COMPLETED = "block/block_bio_queue", "block/block_rq_issue", "block/block_rq_complete"
INTERRUPT, WAKING, SWITCH = "irq/irq_handler_entry", "sched/sched_waking", "sched/sched_switch"
TAKEN = ("io_uring/io_uring_submit_req", "io_uring/io_uring_submit_sqe")
"""The kernel takes a submission; newer and older kernels."""
SUBMITS_ONLY = "io_submit"
"""The system call whose return is not that of an I/O: `io_getevents` fetches the completion."""
_NO_SECTOR = 2**64 - 1


@dataclass(kw_only=True)
class _Io:
    """An I/O on its way."""

    begin: int
    waiter: int
    issued: int
    queued: int | None
    interrupt: int | None = None
    completed: int | None = None
    waking: int | None = None
    running: int | None = None

    def stages(self, end: int) -> dict[str, int]:
        """Nanoseconds of each stage."""
        assert self.completed is not None
        queued = self.issued if self.queued is None else self.queued
        interrupt = self.completed if self.interrupt is None else self.interrupt
        waking = self.completed if self.waking is None else self.waking
        running = waking if self.running is None else self.running
        times = (self.begin, queued, self.issued, interrupt, waking, running, end)
        return {name: after - before for name, before, after in zip(STAGES, times, times[1:], strict=False)}


@dataclass(kw_only=True)
class Stages:
    """The related I/Os of a trace."""

    ios: list[dict[str, int]] = field(default_factory=list)
    """Nanoseconds of each stage, the oldest I/O first."""
    incomplete: int = 0
    """I/Os of the engine with missing events, or that were not alone."""

    def facts(self) -> dict[str, Any]:
        """The newest I/Os, as the record has them."""
        kept = self.ios[-MOST:]
        return {
            "related": len(self.ios),
            "incomplete": self.incomplete,
            "stages": {name: [each[name] for each in kept] for name in STAGES},
        }


def relate(events: Sequence[Event], *, jobs: Sequence[int], helpers: Sequence[int] = (), since_ns: int = 0) -> Stages:
    """Relate the events of I/Os that began after `since_ns`.

    `jobs` are the engine's threads, `helpers` the kernel's threads that submit for them. Threads without a system call
    do no I/O.
    """
    active = {event.pid for event in events if event.name.startswith(ENTER)}.intersection(jobs)
    relating = _Relating(frozenset(active), frozenset(helpers), since_ns)
    for event in events:
        relating.take(event)
    return relating.found


class _Relating:
    def __init__(self, jobs: frozenset[int], helpers: frozenset[int], since_ns: int) -> None:
        self.found = Stages()
        self._jobs, self._helpers, self._since_ns = jobs, helpers, since_ns
        self._entered: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._queued: dict[int, tuple[int, int]] = {}
        self._interrupts: dict[int, int] = {}
        self._on_device: dict[int, _Io] = {}
        self._of_waiter: dict[int, _Io] = {}

    def take(self, event: Event) -> None:
        """Take the next event in time."""
        now = event.time_ns
        if event.name.startswith(ENTER):
            self._entered[event.pid] = now
        elif event.name in TAKEN:
            self._taken[event.pid] = now
        elif event.name == QUEUED:
            if event.pid in self._jobs | self._helpers:
                self._queued[_sector(event)] = (now, event.pid)
        elif event.name == ISSUED:
            self._take_issued(event)
        elif event.name == INTERRUPT:
            self._interrupts[event.cpu] = now
        elif event.name == COMPLETED:
            self._take_completed(event)
        elif event.name == WAKING:
            io = self._of_waiter.get(event.values["pid"])
            if io and io.completed is not None and io.waking is None:
                io.waking = now
        elif event.name == SWITCH:
            io = self._of_waiter.get(event.values["next_pid"])
            if io and io.waking is not None and io.running is None:
                io.running = now
        elif event.name.startswith(EXIT):
            self._take_exit(event)

    def _take_issued(self, event: Event) -> None:
        sector = _sector(event)
        queued, owner = self._queued.pop(sector, (None, event.pid))
        begin = self._entered.get(owner) if owner in self._jobs else self._taken.get(owner)
        # Of several jobs, the one that a helper submits for is not known.
        helped = next(iter(self._jobs)) if owner in self._helpers and len(self._jobs) == 1 else None
        waiter = owner if owner in self._jobs else helped
        if begin is None or waiter is None:
            return
        if self._of_waiter.pop(waiter, None) is not None:
            self.found.incomplete += 1  # Another one is in flight, or the I/O has several requests.
        io = _Io(begin=begin, waiter=waiter, issued=event.time_ns, queued=queued)
        self._on_device[sector] = self._of_waiter[waiter] = io

    def _take_completed(self, event: Event) -> None:
        io = self._on_device.pop(_sector(event), None)
        if io is None:
            return
        io.completed = event.time_ns
        # The device interrupts the CPU that completes the I/O, or another that passes it on.
        if event.in_interrupt:
            own = self._interrupts.get(event.cpu, 0)
            latest = own if own > io.issued else max(self._interrupts.values(), default=0)
            io.interrupt = latest if latest > io.issued else None

    def _take_exit(self, event: Event) -> None:
        io = self._of_waiter.get(event.pid)
        if io is None or io.completed is None or event.name == EXIT + SUBMITS_ONLY:
            return
        del self._of_waiter[event.pid]
        if io.begin >= self._since_ns:
            self.found.ios.append(io.stages(event.time_ns))


def _sector(event: Event) -> int:
    """The sector of a request; NVMe passthrough has 0 when it is issued, and none when it is completed."""
    sector = event.values["sector"]
    return 0 if sector == _NO_SECTOR else sector
