"""Carries out the result sets of a fleet: each in a process of its own, in parallel where the targets share nothing."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from iosonde.errors import IosondeError
from iosonde.execution.stop import Stop, stop_on_signals
from iosonde.fleet import worker
from iosonde.fleet.directory import FleetDirectory
from iosonde.fleet.sharing import hardware_of
from iosonde.python_process import module_command
from iosonde.storage.safety.consent import Consent

END_S = 20.0
"""For a stopped session to restore its target, before its process is killed."""


@dataclass(kw_only=True)
class Outcome:
    """Targets of a fleet after a session, by name."""

    ended: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """With the reason."""
    stopped: bool = False


@dataclass(kw_only=True, eq=False)
class _Session:
    """A process that carries out one result set."""

    name: str
    hardware: frozenset[str]
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    received: bytes = b""
    last: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, name: str, hardware: frozenset[str], request: Mapping[str, Any]) -> _Session:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # It is open as long as the process runs.
        process = subprocess.Popen(
            module_command("iosonde.fleet.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,  # Ctrl-C goes to the whole group of a terminal; stopping sessions is up to this process.
        )
        assert process.stdin
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return cls(name=name, hardware=hardware, process=process, errors=errors)

    def read(self, note: Callable[[str], None]) -> bool:
        """Take the messages that have arrived; False at their end."""
        assert self.process.stdout
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["is"] == worker.NOTE:
                note(f"{self.name}: {message['text']}")
            else:
                self.last = message
        return bool(data)

    def request_stop(self) -> None:
        """Close its input, at which it stops."""
        assert self.process.stdin
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for its exit; return the reason if it failed."""
        self.request_stop()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # Its engine stops at the end of its input.
            status = self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.errors.seek(0)
        last_line = self.errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        self.errors.close()
        if not self.last:
            return f"its process exited with status {status}: {last_line}"
        return str(self.last.get("because", ""))


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
        self._running: list[_Session] = []

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
                for session in self._running:  # Only after an error or a second Ctrl-C.
                    session.request_stop()
                for session in self._running:
                    session.end()
        return self._outcome

    def _handle(self, key: selectors.SelectorKey, selector: selectors.BaseSelector, stop: Stop) -> None:
        session: _Session | None = key.data
        if session is None:
            if stop.woken():
                selector.unregister(stop)
                self._outcome.stopped = True
                for each in self._running:
                    each.request_stop()
        elif not session.read(self._note):
            selector.unregister(key.fileobj)
            self._running.remove(session)
            self._ended(session)

    def _ended(self, session: _Session) -> None:
        reason = session.end()
        if session.last.get("is") == worker.STOPPED:
            self._outcome.stopped = True
        elif reason:
            self._failed(session.name, reason)
        else:
            self._outcome.ended.append(session.name)
            done = len(self._outcome.ended) + len(self._outcome.failed)
            self._note(f"{session.name}: ended ({done} of {len(self._hardware)} targets)")

    def _failed(self, name: str, reason: str) -> None:
        self._outcome.failed[name] = reason
        self._note(f"{name}: failed: {reason}")

    def _start_next(self, selector: selectors.BaseSelector, stop: Stop) -> None:
        """Start as many sessions as may run; a target waits while another one that it shares hardware with runs."""
        left = None if self._end is None else self._end - time.monotonic()
        if stop.is_set() or (left is not None and left <= 0):
            return
        busy = {part for each in self._running for part in each.hardware}
        for name in list(self._pending):
            if len(self._running) >= self._parallel:
                return
            if busy & self._hardware[name]:
                continue
            request = {"directory": str(self._pending.pop(name)), "time_limit_s": left, **self._request}
            session = _Session.start(name, self._hardware[name], request)
            self._running.append(session)
            busy |= session.hardware
            assert session.process.stdout
            selector.register(session.process.stdout, selectors.EVENT_READ, session)
