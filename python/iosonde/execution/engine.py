"""One run of an engine: started, listened to, ended, and accounted for by the kernel.

`drive` promises that the engine is gone when it returns or raises, whatever the engine did, and that its own way of
failing is told apart: it said why, it crashed, it was killed, it never started, it fell silent, it spoke nonsense.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
from pydantic_core import from_json

from iosonde import protocol
from iosonde.errors import EngineError
from iosonde.execution.collect import Collector
from iosonde.execution.stop import Stop
from iosonde.protocol.event import Event, ResultEvent
from iosonde.results.schema import Failure

ENGINE = "iosonde-engine"

_NONSENSE = (KeyError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)
"""What taking in an event raises when the event is not of the protocol."""

_PIPE_BYTES = 1 << 16
_STDERR_TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long an engine may take, in seconds."""

    hello_s: float = 30
    """To say hello."""
    silence_s: float = 120
    """Without any event while it applies load, beyond the length of an interval."""
    stop_s: float = 0.3
    """To end by itself after `stop`; then it gets SIGTERM."""
    terminate_s: float = 0.15
    """To end after SIGTERM; then it gets SIGKILL. Both together stay below the second that Ctrl-C may take."""
    end_s: float = 120
    """To end after it was told that it is enough: what is in flight completes, a simulated drive's state is written."""
    exit_s: float = 5
    """To end after its last event."""


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """What an engine said, and what the kernel says about it."""

    started_at: str
    ended_at: str
    hello: dict[str, Any]
    phases: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
    result: dict[str, Any] | None
    failure: Failure | None
    """None if there is a result."""
    child: dict[str, Any]
    """From `wait4(2)`: times, switches, faults, file-system I/O, peak memory, exit status."""
    intervals: pl.DataFrame
    histograms: pl.DataFrame
    usage: pl.DataFrame
    store_statistics: pl.DataFrame | None = None
    was_enough: bool = False
    """Whether it was stopped because it had lasted long enough."""

    @property
    def is_complete(self) -> bool:
        """Whether the measurement lasted as long as its spec asks."""
        return self.result is not None and self.result["outcome"] == "complete"


def find_engine() -> Path:
    """The engine: `$IOSONDE_ENGINE`, else beside this Python, else on PATH."""
    named = os.environ.get("IOSONDE_ENGINE")
    beside = str(Path(sys.executable).parent)
    found = shutil.which(named) if named else shutil.which(ENGINE, path=beside) or shutil.which(ENGINE)
    if found:
        return Path(found).absolute()
    if named:
        raise EngineError(
            f"`{named}` is not a program that can be run",
            where="named by the environment variable `IOSONDE_ENGINE`",
            hint="correct the variable, or remove it to use the engine that came with iosonde",
        )
    raise EngineError(
        f"the program `{ENGINE}` is not found",
        where=f"looked in `{beside}` and on PATH",
        hint="install iosonde with pip, which brings it, or name a build of it in the environment variable "
        "`IOSONDE_ENGINE`",
    )


def drive(
    spec: dict[str, Any],
    *,
    on_event: Callable[[Event], None],
    stop: Stop,
    engine: Path | None = None,
    patience: Patience | None = None,
    on_start: Callable[[int], None] = lambda pid: None,
    is_enough: Callable[[Event], bool] | None = None,
    inherited: Sequence[int] = (),
    identities: Mapping[str, str] | None = None,
) -> EngineRun:
    """Carry out one spec. `on_event` receives every event as it arrives; `stop` ends the run early.

    `on_start` receives the engine's process number before the engine gets its spec. `is_enough` is called after every
    event; once it returns true the engine is told to end its measurement. The engine inherits the descriptors
    `inherited`, and refuses to open a path of `identities` that leads to anything else.
    """
    conversation = _Conversation(spec, on_event, patience or Patience(), is_enough)
    started_at = _now()
    child = _Child(engine or find_engine(), inherited, identities or {})
    try:
        on_start(child.pid)
        child.send(_line(spec))
        _listen(child, conversation, stop)
    finally:
        account = child.end()
    intervals, histograms, usage = conversation.tables()
    failure = conversation.failure or _failure_of(conversation, account["exit_status"], child.complaint)
    return EngineRun(
        started_at=started_at,
        ended_at=_now(),
        hello=conversation.hello,
        phases=conversation.phases,
        warnings=conversation.warnings,
        result=conversation.result,
        failure=failure,
        was_enough=conversation.was_enough,
        child=account,
        intervals=intervals,
        histograms=histograms,
        usage=usage,
        store_statistics=conversation.store_statistics(),
    )


def without_engine(failure: Failure) -> EngineRun:
    """A run for which no engine was started."""
    now, (intervals, histograms, usage) = _now(), Collector("").frames()
    return EngineRun(
        started_at=now,
        ended_at=now,
        hello={},
        phases=[],
        warnings=[],
        result=None,
        failure=failure,
        child={},
        intervals=intervals,
        histograms=histograms,
        usage=usage,
    )


def _listen(child: _Child, conversation: _Conversation, stop: Stop) -> None:
    """Until the engine has ended, or has to be ended."""
    with selectors.DefaultSelector() as selector:
        for source in (child.stdout, child.stderr, child.exit, stop):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select(conversation.patience_left_s())}
            if stop.fileno() in ready:
                selector.unregister(stop)
                child.send(b'"stop"\n')
                conversation.stopping(keeping=stop.is_time_over)
            for source in ready & {child.stdout, child.stderr}:
                if not _take_in(child, conversation, source):
                    selector.unregister(source)
            if conversation.wants_end():
                child.send(b'"stop"\n')
                conversation.stopping(keeping=True)
            if child.exit in ready:
                while _take_in(child, conversation, child.stdout):
                    pass
                return
            if conversation.is_nonsense or (conversation.patience_left_s() == 0 and not conversation.insist(child)):
                return


def _take_in(child: _Child, conversation: _Conversation, source: int) -> bool:
    """Read what there is; False when there is no more."""
    data = child.read(source)
    if data and source == child.stdout:
        conversation.hear(data)
    return bool(data)


class _Conversation:
    """What the engine has said so far, and whether it may still take its time."""

    def __init__(
        self,
        spec: dict[str, Any],
        on_event: Callable[[Event], None],
        patience: Patience,
        is_enough: Callable[[Event], bool] | None,
    ) -> None:
        self._is_enough = is_enough
        self.was_enough = False
        """Whether the measurement was ended because it had lasted long enough."""
        self._collector = Collector(spec["run_id"])
        self.hello: dict[str, Any] = {}
        self.phases: list[dict[str, Any]] = []
        self.warnings: list[dict[str, Any]] = []
        self.result: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self._on_event = on_event
        self._patience = patience
        self._silence_s = patience.silence_s + spec["workload"].get("interval_ns", 0) / 1e9
        self._rest = bytearray()
        self._is_stopping = False
        self._was_terminated = False
        self._deadline: float | None = time.monotonic() + patience.hello_s

    def hear(self, data: bytes) -> None:
        """Take in what the engine wrote, up to the first nonsense."""
        # A line may come in many pieces; only the new piece is searched for its end.
        *ends, rest = data.split(b"\n")
        for end in ends:
            line, self._rest = bytes(self._rest) + end, bytearray()
            if not self.is_nonsense:
                self._take(line)
        self._rest += rest

    @property
    def is_nonsense(self) -> bool:
        """Whether the engine said something that is not of the protocol."""
        return self.failure is not None and self.failure.code == "protocol"

    def _take(self, line: bytes) -> None:
        try:
            event: Event = from_json(line)
            self._note(event)
        except _NONSENSE as error:
            self._refuse(line, error)
            return
        self._on_event(event)
        if self._is_enough and not self.was_enough:
            self.was_enough = self._is_enough(event)
        self._wait_for_next(event)

    def _note(self, event: Event) -> None:
        # An engine that cannot read the spec writes `error` and nothing else.
        if bool(self.hello) == (event["event"] == "hello") and event["event"] != "error":
            raise ValueError("`hello` comes first, and once")
        if self.result or self.failure:
            raise ValueError("nothing follows `result` or `error`")
        if event["event"] == "hello":
            if event["protocol"] != protocol.VERSION:
                raise ValueError(f"it speaks protocol {event['protocol']}, iosonde speaks {protocol.VERSION}")
            self.hello = _recorded(event, event["engine"], event["version"])
        elif event["event"] == "phase":
            self.phases.append(_recorded(event, event["phase"], event["edge"], event["at_ns"]))
        elif event["event"] == "interval":
            self._collector.add(event)
        elif event["event"] == "warning":
            self.warnings.append(_recorded(event, event["code"], event["message"]))
        elif event["event"] == "result":
            self.result = _checked_result(event)
        elif event["event"] == "error":
            self.failure = Failure(
                code=event["code"], message=event["message"], context=event["context"], hint=event["hint"]
            )
        else:
            raise ValueError("there is no such event")

    def _refuse(self, line: bytes, error: Exception) -> None:
        missing = f"it lacks {error}" if isinstance(error, KeyError) else str(error).split("\n", 1)[0]
        shown = line[:80].decode(errors="backslashreplace") + ("..." if len(line) > 80 else "")
        self.result = None
        self.failure = Failure(
            code="protocol",
            message=f"the engine wrote what iosonde does not understand: {missing}",
            context=f"`{shown}`",
            hint="engine and iosonde may be of different versions: `iosonde doctor` shows both",
        )

    def _wait_for_next(self, event: Event) -> None:
        """Layout takes as long as it takes; under load every interval brings an event."""
        if self._is_stopping:
            return
        if event["event"] in ("result", "error"):
            self._deadline = time.monotonic() + self._patience.exit_s
        elif event["event"] == "interval" or event.get("phase") in ("warmup", "measure"):
            self._deadline = time.monotonic() + self._silence_s
        else:
            self._deadline = None

    def wants_end(self) -> bool:
        """Whether the engine is to be told now that it is enough."""
        return self.was_enough and not (self._is_stopping or self.result or self.failure)

    def stopping(self, *, keeping: bool) -> None:
        """The engine was told to stop; where what it has measured is kept, it may take its time."""
        self._is_stopping = True
        self._deadline = time.monotonic() + (self._patience.end_s if keeping else self._patience.stop_s)

    def patience_left_s(self) -> float | None:
        """Seconds until something must have come; None for ever."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def insist(self, child: _Child) -> bool:
        """Its time is up: be firmer. False when it has to be killed."""
        if self._is_stopping and not self._was_terminated:
            child.signal(signal.SIGTERM)
            self._was_terminated = True
            self._deadline = time.monotonic() + self._patience.terminate_s
            return True
        if not (self._is_stopping or self.result or self.failure):
            self.failure = self._silent()
        return False

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Intervals, histograms and usage; what is not of their types is nonsense too."""
        try:
            return self._collector.frames()
        except _NONSENSE as error:
            self._refuse(b"interval", error)
            return Collector("").frames()

    def store_statistics(self) -> pl.DataFrame:
        """The store's own statistics; what is not of their type is nonsense too."""
        try:
            return self._collector.store_statistics()
        except _NONSENSE as error:
            self._refuse(b"interval", error)
            return Collector("").store_statistics()

    def _silent(self) -> Failure:
        if not self.hello:
            return Failure(
                code="not_started",
                message=f"the engine said nothing for {self._patience.hello_s:g} s after it was started",
                hint="try it by hand: `iosonde-engine --version`",
            )
        return Failure(
            code="silent",
            message=f"the engine said nothing for {self._silence_s:g} s, and was killed",
            context=f"phase `{self.phases[-1]['phase']}`" if self.phases else "",
            hint="the device may hang: look at the kernel's log with `dmesg`",
        )


class _Child:
    """The engine's process, its pipes, and its end."""

    def __init__(self, engine: Path, inherited: Sequence[int], identities: Mapping[str, str]) -> None:
        self._begin_ns = time.monotonic_ns()
        self._own_peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            # Its own process group: Ctrl-C in a terminal goes to a whole group, and what follows is ours to decide.
            self._process = subprocess.Popen(
                [engine, "--stop-at-eof", *(f"--identity={path}={each}" for path, each in identities.items())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                pass_fds=inherited,
            )
        except OSError as error:
            raise EngineError(
                f"cannot start `{engine}`: {error.strerror}", hint="see whether it runs: `iosonde-engine --version`"
            ) from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        self.stdout = self._process.stdout.fileno()
        self.stderr = self._process.stderr.fileno()
        self.exit = os.pidfd_open(self._process.pid)
        """Readable once the process has ended, whoever else may hold its pipes open."""
        for pipe in (self.stdout, self.stderr):
            os.set_blocking(pipe, False)
        self._tail = bytearray()

    def send(self, text: bytes) -> None:
        """Write to its standard input, if it still listens."""
        with suppress(BrokenPipeError):  # How it went is found out at its end.
            while text:
                text = text[os.write(self._stdin, text) :]

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; until it is reaped the process number is its own."""
        os.kill(self._process.pid, number)

    def read(self, source: int) -> bytes:
        """What it has written to one of its pipes; nothing if that is all for now."""
        try:
            data = os.read(source, _PIPE_BYTES)
        except BlockingIOError:
            return b""
        if source == self.stderr:
            self._tail += data
            del self._tail[:-_STDERR_TAIL_BYTES]
        return data

    @property
    def complaint(self) -> str:
        """The last line that it wrote to standard error."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> dict[str, Any]:
        """Make sure that it has ended, and say what it took."""
        self.signal(signal.SIGKILL)  # Means nothing to a process that has ended already.
        _, status, usage = os.wait4(self._process.pid, 0)
        wall_ns = time.monotonic_ns() - self._begin_ns
        self._process.returncode = os.waitstatus_to_exitcode(status)
        while self.read(self.stderr):
            pass
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        os.close(self.exit)
        return self._account(usage, wall_ns)

    def _account(self, usage: resource.struct_rusage, wall_ns: int) -> dict[str, Any]:
        # A child's peak memory begins with what its parent held when it became another program (exec_mmap in the
        # kernel's fs/exec.c), so only a larger figure is its own.
        is_its_own = usage.ru_maxrss > self._own_peak_kib
        return {
            "wall_ns": wall_ns,
            "user_ns": round(usage.ru_utime * 1e9),
            "system_ns": round(usage.ru_stime * 1e9),
            "voluntary_switches": usage.ru_nvcsw,
            "involuntary_switches": usage.ru_nivcsw,
            "minor_faults": usage.ru_minflt,
            "major_faults": usage.ru_majflt,
            "fs_inputs": usage.ru_inblock,
            "fs_outputs": usage.ru_oublock,
            "max_rss_bytes": usage.ru_maxrss * 1024 if is_its_own else None,
            "exit_status": self._process.returncode,
        }


def _failure_of(conversation: _Conversation, exit_status: int, complaint: str) -> Failure | None:
    """Why an engine that gave no reason has no result."""
    if conversation.result:
        return None
    last_phase = f"phase `{conversation.phases[-1]['phase']}`" if conversation.phases else ""
    if exit_status == -signal.SIGKILL:
        return Failure(
            code="killed",
            message="the engine was killed (SIGKILL)",
            context=last_phase,
            hint="if it was for want of memory, the kernel's log says so: `dmesg`",
        )
    if not conversation.hello:
        return Failure(
            code="not_started",
            message=f"the engine ended before it said hello ({_ending(exit_status)})",
            context=complaint,
            hint="try it by hand: `iosonde-engine --version`",
        )
    if exit_status:
        return Failure(
            code="crashed",
            message=f"the engine crashed ({_ending(exit_status)})",
            context="; ".join(filter(None, (last_phase, complaint))),
            hint="this is a defect of the engine: please report it with the spec in `record.json`",
        )
    return Failure(
        code="protocol",
        message="the engine ended without a result",
        context=complaint,
        hint="engine and iosonde may be of different versions: `iosonde doctor` shows both",
    )


def _ending(exit_status: int) -> str:
    return signal.Signals(-exit_status).name if exit_status < 0 else f"exit status {exit_status}"


def _checked_result(event: ResultEvent) -> dict[str, Any]:
    """The result, if it has what the tables need."""
    if event["outcome"] not in ("complete", "stopped"):
        raise ValueError(f"`{event['outcome']}` is not an outcome")
    if event["begin_ns"] > event["end_ns"]:
        raise ValueError("the measurement ends before it begins")
    needed = [(job["stream"], job["job"], job["usage"]) for job in event["jobs"]]
    return _recorded(event, *needed)


def _recorded(event: Event, *needed: object) -> dict[str, Any]:
    """The event as it is recorded; to read the fields `needed` checks that it has them."""
    return {name: value for name, value in event.items() if name != "event"}


def _line(spec: dict[str, Any]) -> bytes:
    return json.dumps(spec).encode() + b"\n"


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")
