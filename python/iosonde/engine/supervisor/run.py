"""One run: preparation, background commands, the measured command, its values, and the events about it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from iosonde.base import directory_tree
from iosonde.base.python_process import installed_version
from iosonde.engine.protocol import VERSION
from iosonde.engine.supervisor import NAME, processes
from iosonde.engine.supervisor.account import Account, between, devices_between
from iosonde.engine.supervisor.parse import values
from iosonde.engine.supervisor.processes import Programs
from iosonde.engine.supervisor.watch import (
    SHOWN_BYTES,
    FailedError,
    Finished,
    Output,
    check_exit,
    close,
    first_lines,
    free_port,
    wait_for,
    watch,
)

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION_NS = 10_000_000_000
READY_S = 30.0
SEEDS = 1 << 31
"""Seeds of commands are smaller than this: many programs read a signed 32-bit number."""
STREAM = "main"
OPERATION = "command"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z_]+)\}")


class CommandRun:
    """The run of a spec, in the working directory that the spec names."""

    def __init__(self, spec: Mapping[str, Any], events: Events, identities: Mapping[str, str]) -> None:
        self._workload = spec["workload"]
        self._events = events
        self._path = Path(self._workload["target"]["path"])
        self._directory = _opened(self._path, identities.get(str(self._path)))
        self._filled = {
            "directory": str(self._path),
            "seed": str(spec["seed"] % SEEDS),
            **_of_server(self._workload.get("server")),
        }
        if "port" in _placeholders(self._workload):
            processes.enter_private_network()
            self._filled["port"] = str(free_port())
        self._account = Account(spec["observe"]["block_devices"])
        self._background: list[subprocess.Popen[bytes]] = []
        self._discarded: list[Output] = []
        self._index = 0

    def carry_out(self) -> None:
        """Run everything; whatever was started has ended when this returns or raises."""
        processes.adopt_descendants()
        self._empty()
        try:
            self._programs = Programs(self._workload["programs"])
            versions = self._versions()
            self._prepare()
            done, usage, devices = self._measure()
            self._left_behind()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # It would interrupt the removal.
            _, remaining = processes.kill_descendants()
        if remaining:
            raise FailedError(
                "not_killed",
                f"{remaining} processes did not end within {processes.KILL_S:g} s of SIGKILL",
                hint="they wait for a device: look at `ps` and `dmesg`",
            )
        self._report(done, usage, devices, versions)
        self._empty()

    def _empty(self) -> None:
        """Remove everything in the working directory, so that each run starts with an empty one."""
        directory_tree.empty(self._directory)

    def _versions(self) -> dict[str, str]:
        """The first line that each program prints when its version is requested."""
        found = {}
        for name, command in self._workload["versions"].items():
            done = self._version_of(command)
            lines = first_lines(bytes(done.stdout.data)) or first_lines(bytes(done.stderr.data))
            found[name] = lines.splitlines()[0] if lines else ""
        processes.kill_descendants()
        self._empty()
        return found

    def _version_of(self, command: Sequence[str]) -> Finished:
        """The output of a program whose version is requested."""
        try:
            return self._wait(command, VERSION_NS)
        except FailedError as error:
            if error.code != "timeout":
                raise
            raise FailedError(
                "timeout",
                f"`{' '.join(command)}` must print the version, but did not exit within {VERSION_NS / 1e9:g} s",
                context=error.context,
                hint="set `version` to the arguments that print the version, or to `[]` if the program has none",
            ) from error

    def _prepare(self) -> None:
        """Carry out the preparing commands, then start the background commands."""
        self._events.phase("layout", "begin")
        for command in self._workload["prepare"]:
            done = self._wait(command, self._workload["timeout_ns"])
            check_exit(done, command[0], [0])
        for each in self._workload["background"]:
            process = self._start(each["command"])
            self._background.append(process)
            pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe]
            self._discarded += [Output(pipe.fileno(), limit=SHOWN_BYTES) for pipe in pipes]
            if each["ready"]:
                wait_for(self._fill(each["ready"]), process, each["command"][0], READY_S, self._discarded)
        self._events.phase("layout", "end")

    def _measure(self) -> tuple[Finished, dict[str, int], list[dict[str, Any]]]:
        """Carry out the measured command; returns what it and the devices did meanwhile."""
        command = self._workload["command"]
        self._events.phase("measure", "begin")
        before = self._last = self._account.read()
        self._last_ns = self._events.now_ns()
        done = self._wait(command, self._workload["timeout_ns"], every_ns=self._workload["interval_ns"])
        after = self._interval()
        self._events.phase("measure", "end")
        check_exit(done, command[0], self._workload["exit_codes"])
        return done, between(before[0], after[0]), devices_between(before[1], after[1])

    def _interval(self) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        """Write the event of an interval that ends now."""
        now, now_ns = self._account.read(), self._events.now_ns()
        self._events.write(
            "interval",
            phase="measure",
            index=self._index,
            begin_ns=self._last_ns,
            end_ns=now_ns,
            process=between(self._last[0], now[0]),
            devices=devices_between(self._last[1], now[1]),
            streams=[{"stream": STREAM, "backlog_max": 0, "operations": [_UNKNOWN]}],
        )
        self._index += 1
        self._last, self._last_ns = now, now_ns
        return now

    def _left_behind(self) -> None:
        """Kill what the command left running, and warn of it."""
        killed, _ = processes.kill_descendants(keep=[each.pid for each in self._background])
        if killed:
            self._events.write(
                "warning",
                code="processes_left",
                message=f"the command left {killed} processes running, which were killed",
                hint="start a server that must outlive its starter as a background command",
            )
        for process in self._background:
            if process.poll() is not None:
                raise FailedError(
                    "background_failed", f"a background command ended with status {process.returncode} during the run"
                )

    def _report(
        self, done: Finished, usage: dict[str, int], devices: list[dict[str, Any]], versions: Mapping[str, str]
    ) -> None:
        text, lines = self._output(done)
        found = values(self._workload["metrics"], text, lines, done.begin_ns, done.end_ns)
        self._events.write("values", values=found)
        programs = self._workload["programs"]
        self._events.write(
            "result",
            outcome="complete",
            begin_ns=done.begin_ns,
            end_ns=done.end_ns,
            backend={"kind": "command", "features": [], "fallbacks": []},
            buffer_bytes=0,
            devices=devices,
            jobs=[],
            layout={"kept_bytes": 0, "written_bytes": 0},
            peak_memory_bytes=done.peak_bytes,
            process=usage,
            command={
                "exit_status": done.exit_status,
                "stdout_bytes": done.stdout.total,
                "stderr_bytes": done.stderr.total,
                "first_lines": first_lines(text.encode()),
                "cpu_from": self._account.source,
                "programs": {name: {**each, "version": versions.get(name, "")} for name, each in programs.items()},
            },
        )

    def _output(self, done: Finished) -> tuple[str, list[tuple[int, str]]]:
        """Return the output to parse: that of the command, or a file that it wrote."""
        named = self._workload["output"]
        if named in ("stdout", "stderr"):
            output = done.stdout if named == "stdout" else done.stderr
            return bytes(output.data).decode(errors="replace"), list(output.lines())
        limit = self._workload["output_limit_bytes"]
        try:
            descriptor = os.open(named, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._directory)
            with os.fdopen(descriptor, "rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise FailedError(
                "unparsable_output",
                f"cannot read `{named}`, which the command should have written: {error.strerror}",
                context=first_lines(bytes(done.stderr.data)),
            ) from error
        if len(data) > limit:
            raise FailedError("output_limit", f"`{named}` has more than {limit} bytes", hint="raise `output_limit`")
        text = data.decode(errors="replace")
        return text, [(done.end_ns, line) for line in text.splitlines()]

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        home = {"PATH": PATH, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self._path), "TMPDIR": str(self._path)}
        given = {name: self._fill(value) for name, value in self._workload["environment"].items()}
        filled = [command[0], *(self._fill(each) for each in command[1:])]
        return self._programs.start(filled, home | given, self._directory)

    def _wait(self, command: Sequence[str], timeout_ns: int, *, every_ns: int = 0) -> Finished:
        """Start a command and wait until it has exited."""
        begin_ns = self._events.now_ns()
        process = self._start(command)
        try:
            return watch(
                process,
                name=command[0],
                begin_ns=begin_ns,
                timeout_ns=timeout_ns,
                limit_bytes=self._workload["output_limit_bytes"],
                now_ns=self._events.now_ns,
                every_ns=every_ns,
                on_interval=self._interval,
                discarded=self._discarded,
            )
        finally:
            close(process)

    def _fill(self, text: str) -> str:
        """The text with the placeholders that are known only now, and without escapes of braces."""
        return _PLACEHOLDER.sub(lambda match: self._filled.get(match[1], match[0]) if match[1] else match[0][0], text)


_UNKNOWN = {
    "operation": OPERATION,
    "count": 0,
    "bytes": 0,
    "errors": 0,
    "completion_latency": {"buckets": [], "count": 0, "sum_ns": 0, "min_ns": 0, "max_ns": 0},
    "response_latency": None,
}
"""Operations of the command in an interval, which are not known."""


def _placeholders(workload: Mapping[str, Any]) -> set[str]:
    """Names of the placeholders in the commands and their environment."""
    commands = [workload["command"], *workload["prepare"], *workload["versions"].values()]
    commands += [[*each["command"], each["ready"]] for each in workload["background"]]
    texts = [*chain.from_iterable(commands), *workload["environment"].values()]
    return {match[1] for text in texts for match in _PLACEHOLDER.finditer(text) if match[1]}


def _of_server(server: Mapping[str, Any] | None) -> dict[str, str]:
    """Placeholders of the server that iosonde has started."""
    if server is None:
        return {}
    socket = Path(server["address"]["path"])
    return {
        "server_directory": str(socket.parent),
        "server_socket": str(socket),
        "server_user": server["user"],
        "server_database": server["database"],
    }


def _opened(path: Path, identity: str | None) -> int:
    """The working directory, which must be the one that was checked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise FailedError("io", f"cannot open the working directory `{path}`: {error.strerror}") from error
    found = os.fstat(descriptor)
    number = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}:{found.st_ino}"
    if identity is not None and identity != number:
        raise FailedError(
            "wrong_target",
            f"`{path}` is not the directory that was checked",
            context=f"it is {number}, checked was {identity}",
            hint="another process replaced it: find out which, and start the study again",
        )
    return descriptor


class Events:
    """Events on standard output, with times in nanoseconds since the creation of this object."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._begin_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns

    def write(self, event: str, **fields: Any) -> None:
        text = json.dumps({"event": event, **fields}).encode() + b"\n"
        while text:
            text = text[os.write(self._descriptor, text) :]

    def hello(self) -> None:
        self.write(
            "hello",
            engine=NAME,
            version=installed_version("iosonde") or "unknown",
            build="python",
            clock="monotonic",
            clock_read_ns=_clock_read_ns(),
            pid=os.getpid(),
            protocol=VERSION,
            realtime_ns=time.time_ns() - self.now_ns(),
        )

    def phase(self, phase: str, edge: str) -> None:
        self.write("phase", phase=phase, edge=edge, at_ns=self.now_ns(), bytes=0)


def _clock_read_ns() -> float:
    count = 1000
    begin = time.monotonic_ns()
    for _ in range(count):
        time.monotonic_ns()
    return (time.monotonic_ns() - begin) / count
