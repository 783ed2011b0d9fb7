"""The agent of a host: a session that carries out the runs that the coordinator names, and keeps their records here.

Requests and answers are JSON Lines on standard input and output, in this order:

    {"do": "check", "plan": ...}                                       checked, or refused; before anything is written
    {"do": "open", "directory": ..., "plan": ..., "session": ...,
     "destroy": ..., "confirm": ..., "shares_claims": ...}             opened, or refused
    {"do": "remove_setup", "target": ...}                              removed: so has each host before the next one
    {"do": "run", "run": ...}                                          ready, unless it ends before; later ended
    {"do": "start", "unix_ns": ...}                                    the load of that run starts at this instant
    {"do": "stop"}                                                     the run in progress is discarded, and ends
    an empty line                                                      nothing: the coordinator is there

An answer has the name of what happened in `is`; `note`, `alive` and `progress` (once a second) may come at any time. At
the end of input, or without a line for the time that is the argument of this program, the run in progress is
discarded and the session ends, so no load outlives its coordinator, also where a worker hangs.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from iosonde.base.python_process import Requests
from iosonde.engine.protocol import Event
from iosonde.errors import IosondeError, TargetError
from iosonde.execution.attempt import carry_out
from iosonde.execution.run_loop import Observer, RunLoop
from iosonde.execution.session import opened, remove_leftovers
from iosonde.execution.stop import Start, Stop, stop_on_signals
from iosonde.features.many_hosts import same_device
from iosonde.features.many_hosts.progress import Progress
from iosonde.plan import Plan, Run
from iosonde.planning import require_feasible
from iosonde.results.reading import record_name
from iosonde.results.result_set import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import guard
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.device_target import DeviceTarget

ALIVE_S = 1.0

Message = Mapping[str, Any]

_written = threading.Lock()


def answer(name: str, **facts: Any) -> None:
    """Write one message to the coordinator."""
    line = json.dumps({"is": name, **facts}) + "\n"
    with _written:
        sys.stdout.write(line)
        sys.stdout.flush()


class Inbox(Requests):
    """Requests, of which start and stop concern the run in progress."""

    def __init__(self, stop: Stop, lease_s: float) -> None:
        self._stop = stop
        self._start: Start | None = None
        self._running = threading.Lock()
        self._run_id = ""
        self._is_run_stopped = False
        super().__init__(lease_s)

    def next(self) -> Message | None:
        """Return the next request; None at the end of input, or after a signal."""
        while not self._stop.is_set():
            with suppress(queue.Empty):
                request: Message | None = self._waiting.get(timeout=ALIVE_S)
                return request
        return None

    def start(self) -> Start:
        """Return the start of the run in progress, which the coordinator sets once all hosts are ready."""
        self._start = Start(on_ready=lambda: answer("ready"))
        return self._start

    def run_ended(self) -> None:
        """Forget a request to stop this run; one that arrives later is for no run."""
        with self._running:
            self._run_id = ""
            if self._is_run_stopped:
                self._is_run_stopped = False
                self._stop.clear()
        if self._start:
            self._start.close()
            self._start = None

    def end(self) -> None:
        """End the session: there is no coordinator any more."""
        with self._running:
            self._is_run_stopped = False
            self._stop.set()

    def take(self, request: Message) -> None:
        """Start or stop the run in progress at once; the main thread handles anything else."""
        if request["do"] == "start" and self._start:
            self._start.at(request["unix_ns"])
        elif request["do"] == "stop":
            with self._running:
                if self._run_id and not self._stop.is_set():
                    self._is_run_stopped = True
                    self._stop.set()
        elif request["do"] != "start":
            self._run_id = request.get("run", {}).get("run_id", "")
            super().take(request)


class Relay(Observer):
    """Reports a session to the coordinator."""

    def __init__(self) -> None:
        self._progress = Progress(lambda sums: answer("progress", **sums))

    def event(self, run: Run, event: Event) -> None:
        """Reported as sums of intervals."""
        if event["event"] == "interval":
            self._progress.add(event)

    def note(self, text: str) -> None:
        """Report a message for the user."""
        answer("note", text=text)


def main() -> None:
    """Serve one coordinator."""
    with stop_on_signals() as stop:
        inbox = Inbox(stop, float(sys.argv[1]))
        threading.Thread(target=_report_alive, daemon=True).start()
        try:
            request = inbox.next()
            if request and request["do"] == "check":
                require_feasible(Plan.model_validate(request["plan"]))
                answer("checked")
                request = inbox.next()
            if request:
                with guard.shared_claims() if request["shares_claims"] else nullcontext():
                    _serve(request, inbox, stop)
        except IosondeError as error:
            answer("refused", what=error.what, where=error.where, hint=error.hint)


def _serve(request: Message, inbox: Inbox, stop: Stop) -> None:
    plan = Plan.model_validate(request["plan"])
    result_set = ResultSet.create_or_open(Path(request["directory"]), plan)
    with result_set.lock():
        for part in plan.by_target():
            remove_leftovers(part)
        targets = [open_target(part.target) for part in plan.by_target()]
        consent = Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"]))
        observer = Relay()
        with opened(result_set, observer, stop, request["session"], consent, inbox.start) as sessions:
            loop = RunLoop(result_set, observer, stop, partial(carry_out, sessions))
            devices = {each.name: same_device.seen(each) for each in targets if isinstance(each, DeviceTarget)}
            answer("opened", devices=devices)
            while (message := inbox.next()) is not None:
                if message["do"] == "remove_setup":
                    with suppress(TargetError):  # The next run tries it again, and fails for the same reason.
                        for each in sessions:
                            if each.plan.target == message["target"]:
                                each.remove_setup()
                    answer("removed")
                    continue
                _carry_out(Run.model_validate(message["run"]), loop, inbox, result_set)


def _carry_out(run: Run, loop: RunLoop, inbox: Inbox, result_set: ResultSet) -> None:
    is_recorded = loop.carry_out(run)
    inbox.run_ended()  # Before the answer, after which the next run may arrive.
    record = result_set.record(run.run_id) if is_recorded else None
    name = record_name(run.run_id, record.attempt) if record else None
    answer("ended", record=name, is_complete=record is not None and record.outcome == "complete")


def _report_alive() -> None:
    while True:
        answer("alive")
        time.sleep(ALIVE_S)


if __name__ == "__main__":
    main()
