"""Functions that a Dask worker runs: they pass messages to and from the agent of its host, a process of its own.

They are called with `Client.run`, each on one named worker. Unlike a task, such a call is never repeated when a worker
dies, so no measurement is carried out twice. No call waits for a run: the worker is idle while an engine measures.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.python_process import module_command

if TYPE_CHECKING:
    from distributed import Worker

SILENT_S = 20.0
"""An agent that reports nothing for so long hangs: it reports every second, on a busy machine later."""
IMPORT_S = 120.0
"""The same before its first report, while Python imports its modules."""
END_S = 15.0
"""For an agent to stop its engine and to restore the host."""

_LINE_BYTES = 1 << 20


class Agent:
    """The process of an agent, and its messages since they were last asked for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._progress: dict[str, Any] | None = None
        """The latest one. It waits for the next answer: each answer takes CPU time while an engine measures."""
        self._silent_at = time.monotonic() + IMPORT_S
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, lease_s: float) -> Agent:
        """Start the process, which ends when its coordinator has not asked for so long."""
        process = await asyncio.create_subprocess_exec(
            *module_command("iosonde.features.many_hosts.agent", str(lease_s)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            process_group=0,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """False once it has exited, also because its coordinator has gone."""
        return self._process.returncode is None

    async def send(self, message: Mapping[str, Any]) -> None:
        """Write a request; nothing if it has exited, which `receive` reports."""
        assert self._process.stdin
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def receive(self, wait_s: float) -> list[dict[str, Any]]:
        """Return the messages so far, after the first one or the time to wait; `silent` if the process hangs.

        The process learns that its coordinator still asks.
        """
        await self.send({"do": "continue"})
        found = []
        with suppress(TimeoutError):
            found.append(await asyncio.wait_for(self._messages.get(), wait_s))
        while not self._messages.empty():
            found.append(self._messages.get_nowait())
        if self._progress:
            found.insert(0, self._progress)
            self._progress = None
        if not found and time.monotonic() > self._silent_at:
            found.append({"is": "silent"})
        return found

    async def end(self) -> None:
        """Close its input, so that it stops its engine and restores the host; kill it if it does not."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()  # The engine stops at the end of its input.
            await self._process.wait()
        self._reading.cancel()

    async def ended(self) -> None:
        """Wait until it has exited."""
        await self._process.wait()

    def kill(self) -> None:
        """Kill a process that hangs."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout and self._process.stderr
        errors = asyncio.create_task(self._process.stderr.read())
        async for line in self._process.stdout:
            self._silent_at = time.monotonic() + SILENT_S
            message = json.loads(line)
            if message["is"] == "progress":
                self._progress = message
            elif message["is"] != "alive":
                self._messages.put_nowait(message)
        last = (await errors).decode(errors="replace").strip().splitlines()[-1:]
        status = await self._process.wait()
        self._messages.put_nowait({"is": "exited", "status": status, "because": "".join(last)})


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Return what has to be the same on all hosts, which machine this is, and its role."""
    return {"machine": machine(), "software": software(), "role": getattr(dask_worker, "iosonde_role", "client")}


def software() -> dict[str, Any]:
    """Return the versions that have to be the same on all hosts."""
    found: dict[str, Any] = environment.capture(find_engine())["software"]
    return found | {name: version(name) for name in ("dask", "distributed")}


def machine() -> str:
    """Return the boot id: processes with the same one have the same clocks, CPUs and devices."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def unix_ns() -> int:
    """Return the time on the clock of the host."""
    return time.time_ns()


async def start(lease_s: float, dask_worker: Worker) -> int:
    """Start an agent; returns its process number."""
    earlier: Agent | None = getattr(dask_worker, "iosonde_agent", None)
    if earlier is not None and earlier.is_running:
        raise RuntimeError("another study uses this host")
    agent = await Agent.start(lease_s)
    dask_worker.iosonde_agent = agent  # type: ignore[attr-defined]
    return agent.pid


async def send(message: Mapping[str, Any], dask_worker: Worker) -> None:
    """Pass a request to the agent."""
    await _agent(dask_worker).send(message)


async def receive(wait_s: float, dask_worker: Worker) -> list[dict[str, Any]]:
    """Return messages of the agent."""
    return await _agent(dask_worker).receive(wait_s)


async def end(dask_worker: Worker) -> None:
    """End the agent."""
    agent = _agent(dask_worker)
    try:
        await agent.end()
    finally:
        dask_worker.iosonde_agent = None  # type: ignore[attr-defined]


def kill(dask_worker: Worker) -> None:
    """Kill an agent that hangs."""
    _agent(dask_worker).kill()


def read_record(directory: str, name: str) -> dict[str, bytes]:
    """Return the files of a record of this host."""
    return {path.name: path.read_bytes() for path in (Path(directory) / "records" / name).iterdir()}


async def cleanup() -> list[dict[str, Any]]:
    """Remove leftovers of killed sessions on the host, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *module_command("iosonde", "cleanup", "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if not output:
        raise RuntimeError(errors.decode(errors="replace").strip())
    found: list[dict[str, Any]] = json.loads(output)
    return found


def _agent(worker: Worker) -> Agent:
    agent: Agent | None = getattr(worker, "iosonde_agent", None)
    if agent is None:
        raise RuntimeError("the worker was restarted during the study")
    return agent
