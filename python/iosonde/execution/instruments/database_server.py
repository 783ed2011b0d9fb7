"""The database server of a run: its statistics over time, CPU time, open files, and its end.

Statistics are polled when the engine reports an interval, over a connection that is opened before the load. For a run
that kills its server, it is restarted after the load, and acknowledged commits are looked up.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from threading import Timer
from typing import Any

from iosonde.base import memory
from iosonde.engine.protocol import Event
from iosonde.errors import ServerError
from iosonde.execution.context import ManagedServer, RunContext
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.instruments.counters import CounterSampler, device_of
from iosonde.execution.instruments.instrument import Instrument, NotStartedError, Reading
from iosonde.execution.servers import verification_spec
from iosonde.results.accounting import COUNTED_NS
from iosonde.results.run_facts import SERVER_STATES
from iosonde.results.schema import Failure, RecordWarning
from iosonde.study.servers.server import Connection, EventLog, summary


class DatabaseServer(Instrument):
    """Reads a server while the engine applies load to it."""

    @classmethod
    def is_needed(cls, context: RunContext) -> bool:
        return context.server is not None

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        assert context.server
        self._server = context.server
        self._instance = context.server.instance
        self._connection: Connection | None = None
        self._counters = CounterSampler(context.run.run_id, self._statistics)
        self._facts: dict[str, Any] = {}
        self._devices: set[str | None] = set()
        """Those that hold the server's directories, and not those below them."""
        self._timer: Timer | None = None
        self._log: EventLog | None = None
        self._killed = False
        self._companion = context.server.companion

    def start(self) -> None:
        """Connect, and read what the server is."""
        if self._instance:
            self._devices = {device_of(path) for path in self._instance.device_paths()} - {None}
            self._log = self._instance.event_log()
        try:
            self._connection = self._server.connect()
            self._facts = dict(self._server.facts) | self._description()
            self._counters.read()
        except ServerError as error:
            raise NotStartedError(error.code, error) from None

    def event(self, event: Event) -> None:
        """Read the statistics at the end of each interval; the last one of the ramp starts the measurement."""
        if self._companion:
            self._companion.event(event)
        if event["event"] == "phase" and event["edge"] == "end":  # A cache is loaded by the engine.
            self._counters.read()
        if event["event"] == "interval":
            found = self._counters.interval(event)
            if event["phase"] == "measure":
                self._schedule_kill(event["end_ns"] - event["begin_ns"])
                if found:
                    self._note_open_files()

    def stop(self, done: EngineRun) -> Reading:
        """Verify what a kill has left, shut the server down, and read its accounts."""
        self._cancel()
        warnings: list[RecordWarning] = []
        failure = self._cause(done.failure)
        self._add_times()
        facts = dict(self._facts)
        facts["statistics_mean"] = self._means()
        facts |= {"statistics_at_start": self._counters.at_start, "statistics_at_end": self._counters.at_end}
        if self._killed and done.failure is None and self._instance:
            facts["durability"] = self._verify(self._instance)
        memory = None
        if self._companion:
            found, noted = self._companion.finish(engine_failed=done.failure is not None)
            facts |= found
            warnings += noted
        if self._instance:
            memory = self._instance.group.facts()["memory"]
            facts["shutdown"] = self._shut_down(self._instance, warnings)
            facts["group"] = self._instance.group.facts()
        if self._log:
            facts |= self._log.facts()
        return Reading(
            facts={"server": facts, **({"memory": memory} if memory else {})},
            warnings=warnings,
            failure=failure,
            store_statistics=self._counters.table(),
        )

    def close(self) -> None:
        """Disconnect, and kill a server that an error has left running: its pages must not be in swap any more."""
        self._disconnect()
        if self._companion:
            self._companion.close()
        if self._instance:
            self._instance.kill()

    def _disconnect(self) -> None:
        self._cancel()
        if self._connection:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def _description(self) -> dict[str, Any]:
        if self._instance:
            return self._instance.describe()
        assert self._connection is not None
        description = self._server.server.describe(self._connection)
        title = {"kind": self._server.server.name, "title": self._server.server.title}
        return {**title, **description, "managed": False}

    def _statistics(self) -> dict[str, int]:
        """Those of the server, with what its control group counts; empty if it does not answer."""
        assert self._connection is not None
        try:
            found = self._server.server.statistics(self._connection)
        except ServerError:
            return {}
        if not found:
            return {}
        if self._log:
            found |= self._log.totals()
        if self._instance:
            found |= accounts_of(self._instance.group.facts(), self._devices)
            if self.context.swap_bytes:
                found |= {f"server_{name}": value for name, value in memory.swap_traffic().items()}
        found[COUNTED_NS] = time.monotonic_ns()
        return {name: value for name, value in found.items() if value >= 0}

    def _add_times(self) -> None:
        """Add times of the log to each poll: a pause that one of them interrupts is logged after it."""
        if self._log is None:
            return
        polls = [row for row in self._counters.rows if row["statistic"] == COUNTED_NS]
        found = self._log.times_until([row["value"] for row in polls])
        for row, times in zip(polls, found, strict=True):
            self._counters.rows += [row | {"statistic": name, "value": value} for name, value in times.items()]
        for counted in filter(None, (self._counters.at_start, self._counters.at_end)):
            counted.update(*self._log.times_until([counted[COUNTED_NS]]))

    def _means(self) -> dict[str, float]:
        """Mean number of sessions in each state over the intervals of the measurement."""
        found = self._counters.measured().items()
        return {name: sum(values) / len(values) for name, values in found if name in SERVER_STATES}

    def _note_open_files(self) -> None:
        """Files are open while transactions run; PostgreSQL closes them with the connections."""
        if self._instance and not self._facts.get("open_files_under_load"):
            files = self._instance.open_files()
            self._facts |= {"open_files": files, "io_modes": summary(files), "open_files_under_load": True}

    def _schedule_kill(self, elapsed_ns: int) -> None:
        """Start the timer at the end of the first interval of the measurement."""
        after_ns = self.context.parameters.get("kill_server_after")
        if after_ns and self._timer is None:
            self._timer = Timer(max(0, after_ns - elapsed_ns) / 1e9, self._kill)
            self._timer.daemon = True
            self._timer.start()

    def _kill(self) -> None:
        assert self._instance
        self._killed = True
        self._instance.kill()

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer.join()

    def _verify(self, instance: ManagedServer) -> dict[str, Any]:
        """Restart the server, which recovers, and look up every acknowledged commit."""
        started = time.monotonic()
        try:
            instance.start()
        except ServerError as error:
            return {"error": error.what, "where": error.where}
        recovery_s = time.monotonic() - started
        spec = verification_spec(self._server.spec)
        done = drive(spec, stop=self.context.session.stop, environment=self._server.environment)
        facts: dict[str, Any] = {"recovery_seconds": round(recovery_s, 3)}
        if done.failure:
            return facts | {"error": done.failure.message, "where": done.failure.context}
        result = (done.result or {}).get("oltp") or {}
        return facts | (result.get("durability") or {}) | {"consistency": result.get("consistency", [])}

    def _shut_down(self, instance: ManagedServer, warnings: list[RecordWarning]) -> dict[str, Any]:
        self._disconnect()
        started = time.monotonic()
        orderly = instance.stop()
        if not orderly:
            warnings.append(
                RecordWarning(
                    code="server_killed",
                    message=f"{self._server.server.title} did not shut down in order and was killed",
                    hint="its messages are in the record; the next run starts from the template",
                )
            )
        return {"orderly": orderly, "seconds": round(time.monotonic() - started, 3)}

    def _cause(self, failure: Failure | None) -> Failure | None:
        """Return evidence of the server's control group and messages about the failure of the engine."""
        if failure is None or self._instance is None:
            return None
        if failure.code not in ("server_vanished", "server_error", "no_space", "connection_refused", "timeout"):
            return None
        cause = self._instance.failure("failed under load")
        if cause.code not in ("out_of_memory", "no_space", "server_vanished"):
            return None
        return Failure(code=cause.code, message=cause.what, context=cause.where, hint=cause.hint)


def accounts_of(group: dict[str, Any], outermost: Collection[str | None]) -> dict[str, int]:
    """Counters of the control group that go with the server's own.

    The kernel counts the I/O of a stacked device, such as a loop device or an array, again at each device below it.
    """
    cpu = {"server_cpu_ns": group["cpu_ns"], "server_system_cpu_ns": group.get("system_cpu_ns")}
    found = {name: int(value) for name, value in cpu.items() if value is not None}
    devices = [device for device in group["devices"] if device["device"] in outermost] or group["devices"]
    for name in ("read_bytes", "write_bytes"):
        if devices:
            found[f"group_{name}"] = sum(int(device[name]) for device in devices)
    statistics = (group["memory"] or {}).get("statistics", {})
    if "pgmajfault" in statistics:
        found["server_major_faults"] = int(statistics["pgmajfault"])
    return found
