"""The events of an engine: checked, due within a time, and collected as rows of the tables of a record.

The tables are those in `results/schema.py`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import numpy as np
import polars as pl

from iosonde.engine import protocol
from iosonde.engine.protocol import Event
from iosonde.engine.protocol.validation import event_parser
from iosonde.execution.stop import Start
from iosonde.results.column import BUCKETS
from iosonde.results.schema import HISTOGRAMS, INTERVALS, NAMED_VALUES, STORE_STATISTICS, USAGE, Failure, check_numbers
from iosonde.study.workload import described


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """In seconds."""

    hello_s: float = 30
    """Until `hello`."""
    silence_s: float = 120
    """Without an event under load, beyond the length of an interval."""
    stop_s: float = 0.3
    """To exit after `stop`; then it gets SIGTERM."""
    terminate_s: float = 0.15
    """To exit after SIGTERM; then it gets SIGKILL. Ctrl-C must take less than a second in all."""
    end_s: float = 120
    """To end a measurement that is kept: I/O in flight completes, and the state of a simulated drive is written."""
    exit_s: float = 5
    """To exit after its last event."""


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


@dataclass(kw_only=True)
class EngineRun:
    """The output of an engine, and the kernel's account of its process; only a failure if none was started."""

    started_at: str = field(default_factory=_now)
    ended_at: str = field(default_factory=_now)
    hello: dict[str, Any] = field(default_factory=dict)
    phases: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    failure: Failure | None = None
    """None if there is a result."""
    child: dict[str, Any] = field(default_factory=dict)
    """From `wait4(2)`: times, switches, faults, file-system I/O, peak memory, exit status."""
    intervals: pl.DataFrame = field(default_factory=INTERVALS.to_frame)
    histograms: pl.DataFrame = field(default_factory=HISTOGRAMS.to_frame)
    usage: pl.DataFrame = field(default_factory=USAGE.to_frame)
    store_statistics: pl.DataFrame = field(default_factory=STORE_STATISTICS.to_frame)
    values: pl.DataFrame = field(default_factory=NAMED_VALUES.to_frame)
    """Values that an external command printed."""
    was_enough: bool = False
    """True if it was stopped because it had lasted long enough."""

    @property
    def is_complete(self) -> bool:
        """Return True if the measurement lasted as long as its spec asks."""
        return self.result is not None and self.result["outcome"] == "complete"


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
        self.run = EngineRun()
        self._start = start
        self._start_unix_ns: int | None = spec.get("start", {}).get("unix_ns")
        self._is_ready = False
        self._is_enough = is_enough
        self._parse = event_parser(of_command=described(spec["workload"]).io == "command")
        self._collector = Collector(spec["run_id"])
        self._named = spec["workload"].get("metrics", {})
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
        return self.run.failure is not None and self.run.failure.code == "protocol"

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
        if self._is_enough and not self.run.was_enough:
            self.run.was_enough = self._is_enough(event)
        self._wait_for_next(event)

    def _note(self, event: Event) -> None:
        # An engine that cannot read the spec writes `error` and nothing else.
        if bool(self.run.hello) == (event["event"] == "hello") and event["event"] != "error":
            raise ValueError("`hello` must be first, and occur once")
        if self.run.result or self.run.failure:
            raise ValueError("an event after `result` or `error`")
        if event["event"] == "hello":
            if event["protocol"] != protocol.VERSION:
                raise ValueError(f"its protocol is {event['protocol']}, that of iosonde is {protocol.VERSION}")
            self.run.hello = _recorded(event)
        elif event["event"] == "phase":
            self.run.phases.append(_recorded(event))
        elif event["event"] == "interval":
            self._collector.add(event)
        elif event["event"] == "warning":
            self.run.warnings.append(_recorded(event))
        elif str(event["event"]) == "values":  # Of the supervisor; the engine's schema has no such event.
            self._collector.add_values(cast("Any", event)["values"], self._named)
        elif event["event"] == "result":
            if event["begin_ns"] > event["end_ns"]:
                raise ValueError("the measurement ends before it starts")
            self.run.result = _recorded(event)
        elif event["event"] == "error":
            self.run.failure = Failure(
                code=event["code"], message=event["message"], context=event["context"], hint=event["hint"]
            )
        # Others are in the result too; instruments receive them as they happen.

    def _refuse(self, line: bytes, error: Exception) -> None:
        shown = line[:80].decode(errors="backslashreplace") + ("..." if len(line) > 80 else "")
        self.run.result = None
        self.run.failure = Failure(
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
        is_over = self._is_stopping or self.run.result or self.run.failure
        if self._is_ready and self._start_unix_ns is not None and not is_over:
            left_s = max(0.0, (self._start_unix_ns - time.time_ns()) / 1e9)
            self._deadline = time.monotonic() + left_s + self._silence_s

    def should_end(self) -> bool:
        """Return True if the engine must be asked now to stop measuring."""
        return self.run.was_enough and not (self._is_stopping or self.run.result or self.run.failure)

    def stopped(self, *, keeping: bool) -> None:
        """The engine was asked to stop; a measurement that is kept gets more time."""
        self._is_stopping = True
        self._deadline = time.monotonic() + (self._timeouts.end_s if keeping else self._timeouts.stop_s)

    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def escalate(self, send: Callable[[signal.Signals], None]) -> bool:
        """The deadline has passed: send SIGTERM. False when the engine has to be killed."""
        if self._is_stopping and not self._was_terminated:
            send(signal.SIGTERM)
            self._was_terminated = True
            self._deadline = time.monotonic() + self._timeouts.terminate_s
            return True
        if not (self._is_stopping or self.run.result or self.run.failure):
            self.run.failure = self._timed_out()
        return False

    def over(self, account: dict[str, Any], last_error_line: str) -> EngineRun:
        """The run once the engine has exited; numbers that no result set may have are a protocol violation."""
        run, collector = self.run, self._collector
        try:
            tables = collector.frames()
            for table in tables:
                check_numbers(table)
            run.intervals, run.histograms, run.usage = tables
        except (ValueError, OverflowError, pl.exceptions.PolarsError):
            self._refuse(b"interval", ValueError("a number of an interval is out of range"))
        run.store_statistics = pl.DataFrame(collector.statistics, schema=STORE_STATISTICS)
        run.values = pl.DataFrame(collector.named_values, schema=NAMED_VALUES)
        if not run.result and not run.failure:
            run.failure = self._exited(account["exit_status"], last_error_line)
        run.child, run.ended_at = account, _now()
        return run

    def _exited(self, exit_status: int, last_error_line: str) -> Failure:
        """The failure of an engine that exited without a result or an error."""
        ending = signal.Signals(-exit_status).name if exit_status < 0 else f"exit status {exit_status}"
        context = "; ".join(filter(None, (self._last_phase, last_error_line)))
        if exit_status == -signal.SIGKILL:
            code, message, context = "killed", "the engine was killed (SIGKILL)", self._last_phase
            hint = "if memory ran out, the kernel log shows it: `dmesg`"
        elif not self.run.hello:
            code, message = "not_started", f"the engine exited before its first event ({ending})"
            hint = "start it by hand: `iosonde-engine --version`"
        elif exit_status:
            code, message = "crashed", f"the engine crashed ({ending})"
            hint = "this is a defect of the engine: please report it with the spec in `record.json`"
        else:
            code, message, context = "protocol", "the engine exited without a result", last_error_line
            hint = "engine and iosonde may be of different versions: `iosonde doctor` shows both"
        return Failure(code=code, message=message, context=context, hint=hint)

    @property
    def _last_phase(self) -> str:
        return f"phase `{self.run.phases[-1]['phase']}`" if self.run.phases else ""

    def _timed_out(self) -> Failure:
        if not self.run.hello:
            message = f"no output from the engine for {self._timeouts.hello_s:g} s after its start"
            return Failure(code="not_started", message=message, hint="start it by hand: `iosonde-engine --version`")
        message = f"no event from the engine for {self._silence_s:g} s; it was killed"
        hint = "the device may hang: check the kernel's log with `dmesg`"
        return Failure(code="silent", message=message, context=self._last_phase, hint=hint)


def _recorded(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "event"}


_TOO_LARGE = np.array([BUCKETS, 1 << 63], dtype=np.uint64)
"""Bounds of the number of a bucket and of its count."""


class Collector:
    """The intervals of one run; a histogram that cannot be stored raises `ValueError`."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._intervals: list[dict[str, Any]] = []
        self._histograms: list[dict[str, Any]] = []
        self._buckets: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
        self._usage: list[dict[str, Any]] = []
        self.statistics: list[dict[str, Any]] = []
        self.named_values: list[dict[str, Any]] = []

    def add(self, event: Event) -> None:
        """Add an `interval` event."""
        place = {"run_id": self._run_id, "phase": event["phase"], "interval": event["index"]}
        timed = {**place, "begin_ns": event["begin_ns"], "end_ns": event["end_ns"]}
        stalled_ns = event.get("stalled_ns", 0)
        for stream in event["streams"]:
            shared = {**timed, "stream": stream["stream"], "backlog_max": stream["backlog_max"]}
            shared["engine_stalled_ns"] = stalled_ns
            # A stalled stream leaves a row without an operation; `frames` gives it those that the stream has.
            counts = [_counts(operation) for operation in stream["operations"]] or [{"operation": None}]
            self._intervals += [shared | each for each in counts]
            for operation in stream["operations"]:
                self._add_histograms({**place, "stream": stream["stream"]}, operation)
        self._usage.append({**timed, "device": "process", **event["process"]})
        for device in event["devices"]:
            # With counters of its media (simulated drives).
            counters = {name: value for name, value in device.items() if name != "media"}
            self._usage.append({**timed, **counters, **(device.get("media") or {})})

        statistics = event.get("store", {}).items()
        if any(value >> 63 for _, value in statistics):
            raise ValueError("a statistic of the store is out of range")
        self.statistics += [
            {**place, "end_ns": event["end_ns"], "statistic": name, "value": value} for name, value in statistics
        ]

    def add_values(self, values: Iterable[Mapping[str, Any]], metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Add values of an external command, whose metrics the study defines."""
        for each in values:
            definition = {name: metrics[each["metric"]][name] for name in ("title", "unit", "better", "aggregate")}
            self.named_values.append({"run_id": self._run_id, **definition, **each})

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Intervals, histograms and usage so far."""
        intervals = _with_stalls(pl.DataFrame(self._intervals, schema=INTERVALS))
        return intervals, self._histogram_frame(), pl.DataFrame(self._usage, schema=USAGE)

    def _add_histograms(self, place: dict[str, Any], operation: Mapping[str, Any]) -> None:
        for latency, histogram in _histograms(operation):
            if histogram["buckets"]:
                self._histograms.append({**place, "operation": operation["operation"], "latency": latency})
                # NumPy holds a bucket in 16 bytes, the parsed list in ten times that.
                buckets = np.array(histogram["buckets"], dtype=np.uint64)
                if (buckets >= _TOO_LARGE).any():
                    raise ValueError("a bucket of a histogram is out of range")
                self._buckets.append(buckets)

    def _histogram_frame(self) -> pl.DataFrame:
        keys = {name: dtype for name, dtype in HISTOGRAMS.items() if name not in ("bucket", "count")}
        lengths = [len(buckets) for buckets in self._buckets]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        buckets = np.concatenate([np.empty((0, 2), dtype=np.uint64), *self._buckets])
        frame = pl.DataFrame(self._histograms, schema=keys)[rows]
        return frame.with_columns(
            pl.Series("bucket", buckets[:, 0], dtype=pl.UInt64).cast(pl.UInt32),
            pl.Series("count", buckets[:, 1], dtype=pl.UInt64),
        )


def _counts(operation: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "operation": operation["operation"],
        "count": operation["count"],
        "bytes": operation["bytes"],
        "errors": operation["errors"],
    }
    for latency, histogram in _histograms(operation):
        row[f"{latency}_latency_ns_sum"] = histogram["sum_ns"]
        row[f"{latency}_latency_ns_min"] = histogram["min_ns"] if histogram["count"] else None
        row[f"{latency}_latency_ns_max"] = histogram["max_ns"] if histogram["count"] else None
    return row


def _histograms(operation: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The latencies that were measured; a closed loop has no response latency."""
    yield "completion", operation["completion_latency"]
    response = operation.get("response_latency")
    if response:
        yield "response", response


def _with_stalls(intervals: pl.DataFrame) -> pl.DataFrame:
    """Add rows of 0 for operations of a stream that did not complete in an interval.

    The engine reports only operations that completed, and a time series must show stalls.
    """
    occurred = intervals.filter(pl.col("operation").is_not_null())
    place = ("run_id", "phase", "interval", "begin_ns", "end_ns", "stream", "backlog_max", "engine_stalled_ns")
    slots = intervals.select(place).unique()
    kinds = occurred.group_by("stream", "operation").agg(response=pl.col("response_latency_ns_sum").is_not_null().any())
    silent = slots.join(kinds, on="stream").join(occurred, on=["phase", "interval", "stream", "operation"], how="anti")
    zeros = silent.with_columns(
        *(pl.lit(0).alias(name) for name in ("count", "bytes", "errors", "completion_latency_ns_sum")),
        response_latency_ns_sum=pl.when("response").then(0),
    ).drop("response")
    filled = pl.concat([occurred, zeros.cast({name: INTERVALS[name] for name in zeros.columns})], how="diagonal")
    order = pl.col("begin_ns", "stream", "operation")
    return filled.select(INTERVALS.names()).sort(order)
