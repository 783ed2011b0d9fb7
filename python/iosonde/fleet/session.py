"""Carries out the result sets of a fleet, in parallel where the targets share nothing.

Each target has a process of its own. Only simulated ones share it one after the other: starting Python and importing
iosonde takes most of the time of a short simulation.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import IosondeError
from iosonde.execution.stop import Stop, stop_on_signals
from iosonde.fleet import worker
from iosonde.fleet.directory import FleetDirectory
from iosonde.fleet.process import WorkerProcess
from iosonde.fleet.sharing import hardware_of
from iosonde.python_process import module_command
from iosonde.storage.safety.consent import Consent


@dataclass(kw_only=True)
class Outcome:
    """Targets of a fleet after a session, by name."""

    ended: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With the reason."""
    stopped: bool = False


class FleetSession:
    """One `fleet` or `resume`."""

    def __init__(
        self,
        fleet: FleetDirectory,
        pending: Mapping[str, Path],
        *,
        parallel: int,
        consent: Consent,
        retry_failed: bool,
        time_limit_s: float | None,
        note: Callable[[str], None],
    ) -> None:
        self._parallel, self._note = parallel, note
        self._pending = dict(pending)
        self._outcome = Outcome()
        self._hardware = dict(self._found(fleet, pending))
        self._request = {
            "retry_failed": retry_failed,
            "destroy": list(consent.destroy),
            "confirm": list(consent.confirm),
        }
        self._end = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._running: list[WorkerProcess] = []

    def _found(self, fleet: FleetDirectory, names: Iterable[str]) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the hardware of each target; one that is gone has failed."""
        for name in names:
            try:
                yield name, hardware_of(fleet.target(name))
            except IosondeError as error:
                self._failed(name, str(error))
                del self._pending[name]

    def carry_out(self) -> Outcome:
        """Carry out all; Ctrl-C stops every session within seconds and keeps completed runs."""
        with stop_on_signals() as stop, selectors.DefaultSelector() as selector:
            selector.register(stop, selectors.EVENT_READ)
            try:
                self._start_next(selector, stop)
                while self._running:
                    for key, _ in selector.select():
                        self._handle(key, selector, stop)
                    self._start_next(selector, stop)
            finally:
                for process in self._running:  # Only after an error or a second Ctrl-C.
                    process.request_stop()
                for process in self._running:
                    process.end()
        return self._outcome

    def _handle(self, key: selectors.SelectorKey, selector: selectors.BaseSelector, stop: Stop) -> None:
        process: WorkerProcess | None = key.data
        if process is None:
            if stop.woken():
                selector.unregister(stop)
                self._outcome.stopped = True
                for each in self._running:
                    each.request_stop()
        elif (messages := process.read()) is not None:
            for message in messages:
                self._take(process, message)
        else:
            selector.unregister(key.fileobj)
            self._running.remove(process)
            is_stopped, reason = process.is_stopping, process.end()
            if process.target and is_stopped:
                self._outcome.stopped = True
            elif process.target:
                self._failed(process.target, reason)

    def _take(self, process: WorkerProcess, message: Mapping[str, Any]) -> None:
        name = process.target
        if message["is"] == worker.NOTE:
            self._note(f"{name}: {message['text']}")
            return
        process.target = ""
        if message["is"] == worker.STOPPED:
            self._outcome.stopped = True
        elif message["is"] == worker.FAILED:
            self._failed(name, message["because"])
        else:
            self._outcome.ended.append(name)
            done = len(self._outcome.ended) + len(self._outcome.failed)
            self._note(f"{name}: ended ({done} of {len(self._hardware)} targets)")

    def _failed(self, name: str, reason: str) -> None:
        self._outcome.failed[name] = reason
        self._note(f"{name}: failed: {reason}")

    def _start_next(self, selector: selectors.BaseSelector, stop: Stop) -> None:
        """Start as many sessions as may run; a target waits while another one that it shares hardware with runs."""
        left = None if self._end is None else self._end - time.monotonic()
        may_start = not stop.is_set() and (left is None or left > 0)
        busy = {part for each in self._running for part in each.hardware}
        idle = [each for each in self._running if each.is_idle]
        simulated = [each for each in idle if not each.hardware]
        for name in list(self._pending) if may_start else ():
            hardware = self._hardware[name]
            if len(self._running) >= self._parallel and not simulated:
                break
            if busy & hardware:
                continue
            if simulated and not hardware:
                process = simulated.pop()
                idle.remove(process)
            elif len(self._running) < self._parallel:
                process = self._started(selector)
            else:
                continue
            request = {"directory": str(self._pending.pop(name)), "time_limit_s": left, **self._request}
            process.measure(name, hardware, request)
            busy |= hardware
        for process in idle:
            process.request_stop()

    def _started(self, selector: selectors.BaseSelector) -> WorkerProcess:
        process = WorkerProcess.start(module_command("iosonde.fleet.worker"))
        self._running.append(process)
        assert process.process.stdout
        selector.register(process.process.stdout, selectors.EVENT_READ, process)
        return process
