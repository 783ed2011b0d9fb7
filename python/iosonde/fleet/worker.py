"""Sessions of targets, one after the other: requests as JSON Lines in, progress and outcomes as JSON Lines out.

Standard input stays open as long as a session may run: at the end of input, also because the parent was killed, it
stops like after Ctrl-C, and completed runs are kept.
"""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iosonde.errors import IosondeError
from iosonde.execution import Interrupted, resume
from iosonde.execution.run_loop import Observer
from iosonde.fleet import on_host
from iosonde.fleet.messages import Ended, Note, Outbox
from iosonde.fleet.on_host import Sender
from iosonde.plan import Plan, Run
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage.safety.consent import Consent


class Relay(Observer):
    """Passes notes of the session on, and from a host its records."""

    def __init__(self, outbox: Outbox, sender: Sender | None) -> None:
        self._outbox, self._sender = outbox, sender

    def run_ended(self, run: Run, record: Record) -> None:
        """Send the record from a host; here it is on disk."""
        if self._sender:
            self._sender.send()

    def note(self, text: str) -> None:
        """Report a message for the user."""
        self._outbox.send(Note(text=text))


class Requests:
    """Requests, read in a thread: a session occupies the main thread."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._state = threading.Lock()
        self._is_over = self._is_running = False
        self._heard = time.monotonic()
        self._lease_s = math.inf
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

    def lease(self, lease_s: float) -> None:
        """End when nothing was read for so long, not even an empty line."""
        if math.isinf(self._lease_s):
            self._lease_s = lease_s
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while (left_s := self._heard + self._lease_s - time.monotonic()) > 0:
            time.sleep(left_s)
        self._end()

    def _read(self) -> None:
        for line in sys.stdin:
            self._heard = time.monotonic()
            if line.strip():
                self._lines.put(line)
        self._end()

    def _end(self) -> None:
        self._lines.put(None)
        with self._state:
            self._is_over = True
            if self._is_running:
                os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Carry out the missing runs of each result set that is requested."""
    outbox = Outbox()
    requests = Requests()
    for request in requests:
        if request["do"] == "run":
            outbox.send(_run(request, requests, outbox))
        else:
            outbox.send({"describe": on_host.describe, "check": on_host.check}[request["do"]](request))
    outbox.close()


def _run(request: dict[str, Any], requests: Requests, outbox: Outbox) -> Ended:
    try:
        with requests.running():
            resume(
                request["directory"],
                observer=Relay(outbox, _sender(request, requests, outbox)),
                retry_failed=request["retry_failed"],
                time_limit_s=request["time_limit_s"],
                consent=Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"])),
            )
    except (Interrupted, KeyboardInterrupt):
        return Ended(stopped=True)
    except IosondeError as error:
        return Ended(failed=str(error))
    return Ended()


def _sender(request: dict[str, Any], requests: Requests, outbox: Outbox) -> Sender | None:
    """On a host: what sends its records, after those of an earlier session."""
    if "plan" not in request:
        return None
    requests.lease(request["lease_s"])
    directory = Path(request["directory"])
    ResultSet.create_or_open(directory, Plan.model_validate(request["plan"]))
    sender = Sender(directory, request["known"], outbox.send)
    sender.send()
    return sender


if __name__ == "__main__":
    main()
