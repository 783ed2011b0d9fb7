"""Sessions of targets, one after the other: requests as JSON Lines in, progress and outcomes as JSON Lines out.

Standard input stays open as long as a session may run: at the end of input, also because the parent was killed, it
stops like after Ctrl-C, and completed runs are kept.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from iosonde.errors import IosondeError
from iosonde.execution import Interrupted, resume
from iosonde.plan import Case, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import Record
from iosonde.storage.safety.consent import Consent

STOPPED, FAILED, ENDED, NOTE = "stopped", "failed", "ended", "note"


def answer(name: str, **facts: Any) -> None:
    """Write one message."""
    print(json.dumps({"is": name, **facts}), flush=True)


class Relay:
    """Passes notes of the session on."""

    def run_started(self, run: Run, case: Case) -> None:
        """Not reported."""

    def event(self, run: Run, event: Event) -> None:
        """Not reported."""

    def run_ended(self, run: Run, record: Record) -> None:
        """Not reported: records are on disk."""

    def note(self, text: str) -> None:
        """Report a message for the user."""
        answer(NOTE, text=text)


class Requests:
    """Requests, read in a thread: a session occupies the main thread."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._state = threading.Lock()
        self._is_over = self._is_running = False
        threading.Thread(target=self._read, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        while (line := self._lines.get()) is not None:
            yield json.loads(line)

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a session is in progress the end of input stops it; `KeyboardInterrupt` if that has come already."""
        with self._state:
            if self._is_over:
                raise KeyboardInterrupt
            self._is_running = True
        try:
            yield
        finally:
            with self._state:
                self._is_running = False

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put(None)
        with self._state:
            self._is_over = True
            if self._is_running:
                os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Carry out the missing runs of each result set that is requested."""
    requests = Requests()
    for request in requests:
        try:
            with requests.running():
                resume(
                    request["directory"],
                    observer=Relay(),
                    retry_failed=request["retry_failed"],
                    time_limit_s=request["time_limit_s"],
                    consent=Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"])),
                )
        except (Interrupted, KeyboardInterrupt):
            answer(STOPPED)
        except IosondeError as error:
            answer(FAILED, because=str(error))
        else:
            answer(ENDED)


if __name__ == "__main__":
    main()
