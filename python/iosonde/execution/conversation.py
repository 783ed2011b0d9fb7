"""The events of an engine: checked, collected, and due within a time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, cast

import polars as pl

from iosonde import protocol
from iosonde.execution.child_process import ChildProcess
from iosonde.execution.collect import Collector
from iosonde.execution.start import Start
from iosonde.execution.timeouts import Timeouts
from iosonde.protocol.event import Event
from iosonde.protocol.validation import event_parser
from iosonde.results.schema import Failure
from iosonde.results.stored_tables import check_numbers
from iosonde.workload import described


class Conversation:
    """The events received so far, and the deadline of the next one."""

    def __init__(
        self,
        spec: dict[str, Any],
        on_event: Callable[[Event], None],
        timeouts: Timeouts,
        is_enough: Callable[[Event], bool] | None,
        start: Start | None = None,
    ) -> None:
        self._start = start
        self._start_unix_ns: int | None = spec.get("start", {}).get("unix_ns")
        self._is_ready = False
        self._is_enough = is_enough
        self.was_enough = False
        """True if the measurement was ended because it had lasted long enough."""
        self._parse = event_parser(of_command=described(spec["workload"]).is_external)
        self.collector = Collector(spec["run_id"])
        self._named = spec["workload"].get("metrics", {})
        self.hello: dict[str, Any] = {}
        self.phases: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.result: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self._on_event = on_event
        self._timeouts = timeouts
        self._silence_s = timeouts.silence_s + spec["workload"].get("interval_ns", 0) / 1e9
        self._rest = bytearray()
        self._is_stopping = False
        self._was_terminated = False
        self._deadline: float | None = time.monotonic() + timeouts.hello_s

    def receive(self, data: bytes) -> None:
        """Process output of the engine, up to the first invalid line."""
        # A line may come in many pieces; only the new piece is searched for its end.
        *ends, rest = data.split(b"\n")
        for end in ends:
            line, self._rest = bytes(self._rest) + end, bytearray()
            if not self.is_invalid:
                self._take(line)
        self._rest += rest

    @property
    def is_invalid(self) -> bool:
        """Return True if the engine violated the protocol."""
        return self.failure is not None and self.failure.code == "protocol"

    def _take(self, line: bytes) -> None:
        try:
            event = self._parse(line)
            self._note(event)
        except ValueError as error:
            self._refuse(line, error)
            return
        self._on_event(event)
        if event["event"] == "ready" and self._start:
            self._start.on_ready()
        if self._is_enough and not self.was_enough:
            self.was_enough = self._is_enough(event)
        self._wait_for_next(event)

    def _note(self, event: Event) -> None:
        # An engine that cannot read the spec writes `error` and nothing else.
        if bool(self.hello) == (event["event"] == "hello") and event["event"] != "error":
            raise ValueError("`hello` must be first, and occur once")
        if self.result or self.failure:
            raise ValueError("an event after `result` or `error`")
        if event["event"] == "hello":
            if event["protocol"] != protocol.VERSION:
                raise ValueError(f"its protocol is {event['protocol']}, that of iosonde is {protocol.VERSION}")
            self.hello = _recorded(event)
        elif event["event"] == "phase":
            self.phases.append(_recorded(event))
        elif event["event"] == "interval":
            self.collector.add(event)
        elif event["event"] == "warning":
            self.warnings.append(_recorded(event))
        elif str(event["event"]) == "values":  # Of the supervisor; the engine's schema has no such event.
            self.collector.add_values(cast("Any", event)["values"], self._named)
        elif event["event"] == "result":
            if event["begin_ns"] > event["end_ns"]:
                raise ValueError("the measurement ends before it starts")
            self.result = _recorded(event)
        elif event["event"] == "error":
            self.failure = Failure(
                code=event["code"], message=event["message"], context=event["context"], hint=event["hint"]
            )
        # Others are in the result too; instruments receive them as they happen.

    def _refuse(self, line: bytes, error: Exception) -> None:
        shown = line[:80].decode(errors="backslashreplace") + ("..." if len(line) > 80 else "")
        self.result = None
        self.failure = Failure(
            code="protocol",
            message=f"invalid output from the engine: {error}",
            context=f"`{shown}`",
            hint="engine and iosonde may be of different versions: `iosonde doctor` shows both",
        )

    def _wait_for_next(self, event: Event) -> None:
        """Preparation has no deadline; under load every interval has an event."""
        if self._is_stopping:
            return
        if event["event"] in ("result", "error"):
            self._deadline = time.monotonic() + self._timeouts.exit_s
        elif event["event"] == "interval" or event.get("phase") in ("ramp", "measure"):
            self._deadline = time.monotonic() + self._silence_s
        else:
            self._deadline = None
        if event["event"] == "ready":
            self._is_ready = True
            self._wait_for_start()

    def starts_at(self, unix_ns: int) -> None:
        """The engine received the instant at which its load starts."""
        self._start_unix_ns = unix_ns
        self._wait_for_start()

    def _wait_for_start(self) -> None:
        """From `ready` to the start of its load the engine is silent."""
        is_over = self._is_stopping or self.result or self.failure
        if self._is_ready and self._start_unix_ns is not None and not is_over:
            left_s = max(0.0, (self._start_unix_ns - time.time_ns()) / 1e9)
            self._deadline = time.monotonic() + left_s + self._silence_s

    def should_end(self) -> bool:
        """Return True if the engine must be asked now to stop measuring."""
        return self.was_enough and not (self._is_stopping or self.result or self.failure)

    def stopped(self, *, keeping: bool) -> None:
        """The engine was asked to stop; a measurement that is kept gets more time."""
        self._is_stopping = True
        self._deadline = time.monotonic() + (self._timeouts.end_s if keeping else self._timeouts.stop_s)

    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def escalate(self, child: ChildProcess) -> bool:
        """The deadline has passed: send SIGTERM. False when the engine has to be killed."""
        if self._is_stopping and not self._was_terminated:
            child.signal(signal.SIGTERM)
            self._was_terminated = True
            self._deadline = time.monotonic() + self._timeouts.terminate_s
            return True
        if not (self._is_stopping or self.result or self.failure):
            self.failure = self._timed_out()
        return False

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Intervals, histograms and usage; numbers that no result set may have are a protocol violation."""
        try:
            tables = self.collector.frames()
            for table in tables:
                check_numbers(table)
        except (ValueError, OverflowError, pl.exceptions.PolarsError):
            self._refuse(b"interval", ValueError("a number of an interval is out of range"))
            return Collector("").frames()
        return tables

    def _timed_out(self) -> Failure:
        if not self.hello:
            return Failure(
                code="not_started",
                message=f"no output from the engine for {self._timeouts.hello_s:g} s after its start",
                hint="start it by hand: `iosonde-engine --version`",
            )
        return Failure(
            code="silent",
            message=f"no event from the engine for {self._silence_s:g} s; it was killed",
            context=f"phase `{self.phases[-1]['phase']}`" if self.phases else "",
            hint="the device may hang: check the kernel's log with `dmesg`",
        )


def _recorded(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "event"}
