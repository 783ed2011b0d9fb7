"""One run of the engine, from the start of its process to its exit.

The process has exited when `drive` returns or raises, whatever it did. Failures are distinguished: an error that it
reported, a crash, a kill, a failed start, a timeout, a protocol violation.
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
from pathlib import Path
from typing import Any

from iosonde.base.python_process import module_command
from iosonde.engine.protocol import Event
from iosonde.errors import EngineError
from iosonde.execution.conversation import Conversation, EngineRun, Timeouts
from iosonde.execution.stop import Start, Stop
from iosonde.study.workload import described
from iosonde.study.workload.workload import Engine

ENGINE: Engine = "iosonde-engine"

_PIPE_BYTES = 1 << 16
_STDERR_TAIL_BYTES = 4096


def variable_of(program: Engine) -> str:
    """The environment variable that names another build of a program."""
    return program.upper().replace("-", "_")


def find_engine(program: Engine = ENGINE) -> Path:
    """A program of the engine: the one named in its variable, else next to this Python, else on PATH."""
    variable = variable_of(program)
    named = os.environ.get(variable)
    own = str(Path(sys.executable).parent)
    found = shutil.which(named) if named else shutil.which(program, path=own) or shutil.which(program)
    if found:
        return Path(found).absolute()
    if named:
        raise EngineError(
            f"`{named}` is not an executable program",
            where=f"named by the environment variable `{variable}`",
            hint="correct the variable, or remove it to use the installed engine",
        )
    raise EngineError(
        f"the program `{program}` was not found",
        where=f"looked in `{own}` and on PATH",
        hint="install iosonde with pip, which includes it, or name a build of it in the environment variable "
        f"`{variable}`",
    )


def drive(
    spec: dict[str, Any],
    *,
    stop: Stop,
    on_event: Callable[[Event], None] = lambda event: None,
    start: Start | None = None,
    engine: Path | None = None,
    timeouts: Timeouts | None = None,
    on_start: Callable[[int], None] = lambda pid: None,
    is_enough: Callable[[Event], bool] | None = None,
    inherited: Sequence[int] = (),
    identities: Mapping[str, str] | None = None,
    shims: Mapping[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> EngineRun:
    """Carry out one spec. `on_event` receives every event as it arrives; `stop` ends the run early.

    `on_start` receives the engine's process number before the engine gets its spec. `is_enough` is called after every
    event; once it returns true the engine is asked to stop measuring. The engine inherits the descriptors
    `inherited`, and refuses to open a path of `identities` that leads to anything else. `shims` has the
    descriptors of shims that it loads, by the name of their store. Variables of `environment` replace those of this
    process. With `start` the engine prepares, and its load starts at the instant that `start` is set to.
    """
    if start:
        spec = {**spec, "start": {"kind": "command"}}
    conversation = Conversation(spec, on_event, timeouts or Timeouts(), is_enough, start)
    child = ChildProcess(_command_line(spec, engine), inherited, identities or {}, shims or {}, environment or {})
    try:
        on_start(child.pid)
        child.send(_line(spec))
        _listen(child, conversation, stop, start)
    finally:
        account = child.end()
    return conversation.over(account, child.last_error_line)


def _command_line(spec: dict[str, Any], engine: Path | None) -> Sequence[str | Path]:
    """Return the command for a spec: a program of the engine, or the supervisor of external commands."""
    workload = spec["workload"]
    description = described(workload)
    if description.io == "command":
        return module_command("iosonde.engine.supervisor")
    return [engine or find_engine(description.engine(workload))]


def _listen(child: ChildProcess, conversation: Conversation, stop: Stop, start: Start | None) -> None:
    """Process events until the engine has exited, or has to be killed."""
    with selectors.DefaultSelector() as selector:
        for source in (child.stdout, child.stderr, child.exit, stop):
            selector.register(source, selectors.EVENT_READ)
        if start:
            selector.register(start, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select(conversation.seconds_left())}
            if stop.fileno() in ready and stop.woken():
                selector.unregister(stop)
                child.send(b'"stop"\n')
                conversation.stopped(keeping=stop.is_time_over)
            if start and start.fileno() in ready and start.unix_ns is not None:
                selector.unregister(start)
                child.send(_line({"start": {"unix_ns": start.unix_ns}}))
                conversation.starts_at(start.unix_ns)
            for source in ready & {child.stdout, child.stderr}:
                if not _take_in(child, conversation, source):
                    selector.unregister(source)
            if conversation.should_end():
                child.send(b'"stop"\n')
                conversation.stopped(keeping=True)
            if child.exit in ready:
                while _take_in(child, conversation, child.stdout):
                    pass
                return
            if conversation.is_invalid or (
                conversation.seconds_left() == 0 and not conversation.escalate(child.signal)
            ):
                return


def _take_in(child: ChildProcess, conversation: Conversation, source: int) -> bool:
    """Read available output; False at the end of the pipe."""
    data = child.read(source)
    if data and source == child.stdout:
        conversation.receive(data)
    return bool(data)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


class ChildProcess:
    """The engine's process and its pipes."""

    def __init__(
        self,
        engine: Sequence[str | Path],
        inherited: Sequence[int],
        identities: Mapping[str, str],
        shims: Mapping[str, int],
        environment: Mapping[str, str],
    ) -> None:
        self._begin_ns = time.monotonic_ns()
        self._own_peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            # Its own process group: Ctrl-C in a terminal goes to a whole group, and what follows is ours to decide.
            self._process = subprocess.Popen(
                [
                    *engine,
                    "--stop-at-eof",
                    *(f"--identity={path}={each}" for path, each in identities.items()),
                    *(f"--{store}-shim={descriptor}" for store, descriptor in shims.items()),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                pass_fds=[*inherited, *shims.values()],
                env={**os.environ, **environment},
            )
        except OSError as error:
            raise EngineError(
                f"cannot start `{engine[0]}`: {error.strerror}", hint=f"check that it runs: `{engine[0]} --version`"
            ) from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin.fileno()
        self.stdout = self._process.stdout.fileno()
        self.stderr = self._process.stderr.fileno()
        self.exit = os.pidfd_open(self._process.pid)
        """Readable once the process has ended, even if another process has its pipes open."""
        for pipe in (self.stdout, self.stderr):
            os.set_blocking(pipe, False)
        self._tail = bytearray()

    def send(self, text: bytes) -> None:
        """Write to its standard input; nothing if it has closed it."""
        with suppress(BrokenPipeError):  # Its exit status shows what happened.
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
        """Available output of one of its pipes; empty if there is none now."""
        try:
            data = os.read(source, _PIPE_BYTES)
        except BlockingIOError:
            return b""
        if source == self.stderr:
            self._tail += data
            del self._tail[:-_STDERR_TAIL_BYTES]
        return data

    @property
    def last_error_line(self) -> str:
        """The last line that it wrote to standard error."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def end(self) -> dict[str, Any]:
        """Kill it unless it has exited, and return the kernel's account."""
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
