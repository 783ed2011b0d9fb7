"""Carries out the result sets of a fleet, in parallel where the targets share nothing.

Each target has a process of its own. Only simulated ones share it one after the other: starting Python and importing
iosonde takes most of the time of a short simulation.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.base.ssh_hosts import OF_SSH, SshHost, WorkerProcess, close_all, described_exit
from iosonde.collections.fleet import hosts, messages
from iosonde.collections.fleet.directory import FleetDirectory
from iosonde.errors import IosondeError, ResultsError
from iosonde.execution.stop import Stop, stop_on_signals
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.storage.safety.guard import Consent


@dataclass(kw_only=True, eq=False)
class TargetProcess(WorkerProcess):
    """The process that measures a target, and another one after it."""

    target: str = ""
    """Name of the target; empty once its session has ended."""
    hardware: frozenset[str] = frozenset()
    """Of the target, until the process has exited or measures another one."""

    @property
    def host_name(self) -> str:
        """Name of its host; empty: this machine."""
        return self.host.called if self.host else ""

    @property
    def is_idle(self) -> bool:
        """True if it may measure another target."""
        return not self.target and not self.is_stopping


@dataclass(kw_only=True)
class Outcome:
    """Targets of a fleet after a session, by name."""

    ended: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With the reason."""
    stopped: bool = False


class FleetSession:
    """One `fleet` or `resume`, on hosts that the command line names."""

    def __init__(
        self,
        fleet: FleetDirectory,
        pending: Mapping[str, Path],
        listed: Sequence[SshHost],
        *,
        parallel: int | None,
        consent: Consent,
        retry_failed: bool,
        time_limit_s: float | None,
        note: Callable[[str], None],
    ) -> None:
        self._note = note
        self._pending = dict(pending)
        self._outcome = Outcome()
        self._fleet, self._parallel = fleet, parallel
        self._hosts = {host.called: host for host in listed}
        self._host_of = {each.name: each.host for each in fleet.targets(pending)}
        self._hardware: dict[str, frozenset[str]] = {}
        self._plans: dict[str, Plan] = {}
        """Of targets on hosts, once they are started."""
        self._room = {"": parallel or most_at_a_time(len(os.sched_getaffinity(0)))}
        """Sessions that each host, and this machine, may carry out at a time."""
        self._retry_failed = retry_failed
        self._consent = {host: hosts.consent_on(host, consent) for host in self._hosts}
        self._consent[""] = Consent(destroy=tuple(hosts.here(listed, consent.destroy)), confirm=consent.confirm)
        self._end = None if time_limit_s is None else time.monotonic() + time_limit_s
        self._running: list[TargetProcess] = []

    def _describe(self) -> None:
        """Find the hardware of each target; one that is gone has failed."""
        found, cpus = hosts.describe([*self._hosts.values()], self._fleet.targets(self._pending), None, {})
        self._room |= {host: self._parallel or most_at_a_time(count) for host, count in cpus.items()}
        for name, each in found.items():
            if isinstance(each, IosondeError):
                self._failed(name, str(each))
                del self._pending[name]
            else:
                self._hardware[name] = each.hardware

    def carry_out(self) -> Outcome:
        """Carry out all; Ctrl-C stops every session within seconds and keeps completed runs."""
        self._describe()
        with stop_on_signals() as stop, selectors.DefaultSelector() as selector:
            selector.register(stop, selectors.EVENT_READ)
            try:
                self._start_next(selector, stop)
                while self._running:
                    for key, _ in selector.select(hosts.LEASE_S / 4 if self._hosts else None):
                        self._handle(key, selector, stop)
                    for process in self._running:
                        if process.host:
                            process.send()
                    self._start_next(selector, stop)
            finally:
                close_all(self._running)  # Some run only after an error or a second Ctrl-C.
        return self._outcome

    def _handle(self, key: selectors.SelectorKey, selector: selectors.BaseSelector, stop: Stop) -> None:
        process: TargetProcess | None = key.data
        if process is None:
            if stop.woken():
                selector.unregister(stop)
                self._outcome.stopped = True
                for each in self._running:
                    each.request_stop()
        elif (lines := process.read()) is not None:
            for line in lines:
                self.take(process, line)
        else:
            selector.unregister(key.fileobj)
            self._running.remove(process)
            is_stopped, status = process.is_stopping, process.end()
            if process.target and is_stopped:
                self._outcome.stopped = True
            elif process.target:
                self._lost(process, described_exit("its process", status, process.errors()))
            process.close()

    def take(self, process: TargetProcess, line: bytes) -> None:
        """Handle a line of a process; one that is no message fails the target, and the others continue."""
        name = process.target
        if not name:
            return  # It has failed here, and stops.
        sender = f"host `{process.host.called}`" if process.host else "its process"
        try:
            message = messages.read(messages.PROGRESS, line, sender)
            if isinstance(message, messages.Files):
                if not process.host:
                    raise ResultsError("a session on this machine sent files, which are here already")
                hosts.keep(self._fleet.path / name, self._plan(name), message)
        except (OSError, IosondeError) as error:
            process.target = ""
            process.request_stop()
            hint = getattr(error, "hint", "")
            self._failed(name, f"{getattr(error, 'what', error)}" + f" ({hint})" * bool(hint))
            return
        if isinstance(message, messages.Note):
            self._note(f"{name}: {message.text}")
        elif isinstance(message, messages.Ended):
            process.target = ""
            self._ended(name, message)

    def _ended(self, name: str, message: messages.Ended) -> None:
        if message.stopped:
            self._outcome.stopped = True
        elif message.failed:
            self._failed(name, message.failed)
        else:
            self._outcome.ended.append(name)
            done = len(self._outcome.ended) + len(self._outcome.failed)
            self._note(f"{name}: ended ({done} of {len(self._hardware)} targets)")

    def _lost(self, process: TargetProcess, reason: str) -> None:
        """A target without an end has failed; if its host cannot be reached, those that wait for it too."""
        if not process.host:
            self._failed(process.target, reason)
            return
        waiting = [name for name in self._pending if self._host_of[name] == process.host_name]
        is_reached = process.process.returncode != OF_SSH
        for name in [process.target, *([] if is_reached else waiting)]:
            self._pending.pop(name, None)
            self._failed(name, f"host `{process.host_name}` was lost: {reason}")

    def _failed(self, name: str, reason: str) -> None:
        self._outcome.failed[name] = reason
        self._note(f"{name}: failed: {reason}")

    def _start_next(self, selector: selectors.BaseSelector, stop: Stop) -> None:
        """Start as many sessions as may run; a target waits while another one that it shares hardware with runs."""
        left = None if self._end is None else self._end - time.monotonic()
        may_start = not stop.is_set() and (left is None or left > 0)
        busy = {part for each in self._running for part in each.hardware}
        room = dict(self._room)
        for each in self._running:
            room[each.host_name] -= 1
        idle = [each for each in self._running if each.is_idle and not each.hardware]
        for name in list(self._pending) if may_start else ():
            host, hardware = self._host_of[name], self._hardware[name]
            if busy & hardware:
                continue
            process = None if hardware else next((each for each in idle if each.host_name == host), None)
            if process is not None:
                idle.remove(process)
            elif room[host] > 0:
                process = self._started(host, selector)
                room[host] -= 1
            if process is not None:
                process.target, process.hardware = name, hardware
                process.send(self._request_for(name, left))
                busy |= hardware
            elif not idle and max(room.values()) <= 0:
                break
        for process in self._running:
            if process.is_idle:
                process.request_stop()

    def _request_for(self, name: str, left: float | None) -> dict[str, Any]:
        directory, host = self._pending.pop(name), self._host_of[name]
        consent = self._consent[host]
        request = {
            "do": "run",
            "retry_failed": self._retry_failed,
            "directory": str(directory),
            "time_limit_s": left,
            "destroy": consent.destroy,
            "confirm": consent.confirm,
        }
        if host:
            plan = self._plan(name).model_dump(mode="json")
            request |= {"plan": plan, "known": hosts.known(directory)}
        return request

    def _plan(self, name: str) -> Plan:
        if name not in self._plans:
            self._plans[name] = ResultSet.open(self._fleet.path / name).plan
        return self._plans[name]

    def _started(self, host: str, selector: selectors.BaseSelector) -> TargetProcess:
        lease = [str(hosts.LEASE_S)] * bool(host)
        process = TargetProcess.start("iosonde.collections.fleet.worker", *lease, host=self._hosts.get(host))
        self._running.append(process)
        selector.register(process.output, selectors.EVENT_READ, process)
        return process


def most_at_a_time(cpus: int) -> int:
    """Sessions that share the CPUs of a machine without another limit."""
    return max(1, cpus // 2)
