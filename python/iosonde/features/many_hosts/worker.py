"""A Dask worker that uses next to no CPU while an engine measures: `python -m iosonde.features.many_hosts.worker`.

With ADDRESS and NAME it serves a scheduler of the user, with the certificate of Dask's configuration. With `--carrier`
it serves a coordinator, whose order is the first line of its standard input, a JSON object:

    scheduler       address of the scheduler
    certificate     of the session, and its own authority
    key             of the certificate
    name            of this host in results; absent: that of the Slurm node
    role            `client` or `server`; absent: `client`
    scratch         existing directory for Dask's own files; absent: one that the worker creates and removes

A worker listens on one address, the one from which its host reaches the scheduler, and answers holders of a certificate
of the scheduler's authority only. An idle worker with Dask's defaults uses 3.4 % of a core and wakes up 100 times a
second; with these settings 0.25 %.

It passes messages to and from the agent of its host, a process of its own, by functions that the coordinator calls with
`Client.run`. Unlike a task, such a call is never repeated when a worker dies, so no measurement is carried out twice.
No call waits for a run: the worker is idle while an engine measures. On a host with the role `server`, it reads
a few files of /proc twice a second, without an agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.base.python_process import module_command
from iosonde.engine.supervisor.account import nfs_server_counters
from iosonde.errors import TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.features.many_hosts import tls
from iosonde.storage.safety.journal import boot_id
from iosonde.storage.targets import temporary_files

if TYPE_CHECKING:
    from distributed import Security, Worker

SETTINGS: Mapping[str, Any] = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.http.routes": [],  # Their modules take time to import.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.monitor-interval": "10s",
}
"""Of schedulers and workers."""

CONNECT_S = 20
"""For a scheduler that does not answer, yet or any more."""
HEARTBEAT_S = 10
"""Between two messages of an idle worker; the coordinator asks every 2 s anyway."""

CONNECTED_FROM = b"iosonde: connected from "
"""Starts the line in which a worker over SSH reports the coordinator's address, as its host sees it."""

SILENT_S = 20.0
"""An agent that reports nothing for so long hangs: it reports every second, on a busy machine later."""
IMPORT_S = 120.0
"""The same before its first report, while Python imports its modules."""
END_S = 15.0
"""For an agent to stop its engine and to restore the host."""

_LINE_BYTES = 1 << 20

PERIOD_S = 0.5
MOST_SAMPLES = 10_000
SECTOR_BYTES = 512
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")
_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
"""Path of an NVMe namespace with native multipath."""
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_VIRTUAL = ("loop", "ram", "zram", "sr", "fd", "nbd")


def main() -> None:
    """Serve a scheduler until it has gone, or the connection to the coordinator has."""
    parser = argparse.ArgumentParser(prog="python -m iosonde.features.many_hosts.worker")
    parser.add_argument("address", nargs="?", help="address of the scheduler, such as `tls://10.0.0.1:8786`")
    parser.add_argument("name", nargs="?", help="name of this host in results")
    parser.add_argument("--role", choices=("client", "server"), default="client", help="`server`: counters, no load")
    parser.add_argument("--carrier", choices=("local", "ssh", "slurm"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.carrier and not arguments.name:
        parser.error("ADDRESS and NAME are required")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if arguments.carrier:
        order, connection = _ordered(arguments.carrier)
        security = tls.of_session(order["certificate"], order["key"])
    else:
        order, connection = {"scheduler": arguments.address, "name": arguments.name, "role": arguments.role}, None
        security = _configured(arguments.address)
    with nullcontext(order["scratch"]) if "scratch" in order else temporary_files.scratch() as scratch:
        # Dask writes the key to a file for a moment: `cleanup` finds that of a killed worker.
        tempfile.tempdir = str(scratch)
        if connection is not None:
            own = None if "scratch" in order else Path(scratch)
            threading.Thread(target=_end_with, args=(connection, own), daemon=True).start()
        name, role = order.get("name") or os.environ["SLURMD_NODENAME"], order.get("role", "client")
        asyncio.run(_serve(order["scheduler"], name, role, str(scratch), security))


def _configured(scheduler: str) -> Security:
    try:
        tls.check_scheduler(scheduler)
        return tls.configured("worker")
    except TargetError as error:
        sys.exit(f"error: {error}")


def _ordered(carrier: str) -> tuple[dict[str, Any], int | None]:
    """The order of a coordinator, and the connection with which the worker ends; none in a job of Slurm."""
    if carrier == "ssh":
        address = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
        print(f"\n{CONNECTED_FROM.decode()}{address}", flush=True)  # What a login prints may have no end of line.
    if carrier != "slurm":
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Nobody reads it any more.
    line = sys.stdin.readline()
    if not line:
        sys.exit("error: the coordinator closed the connection")
    connection = os.dup(sys.stdin.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # Not for processes that the worker starts.
    return json.loads(line), None if carrier == "slurm" else connection


def _end_with(connection: int, scratch: Path | None) -> None:
    while os.read(connection, 4096):
        pass
    if scratch:
        temporary_files.remove_scratch(scratch)
    os._exit(0)  # The agent restores the host: this is the end of its input.


async def _serve(scheduler: str, name: str, role: str, scratch: str, security: Security) -> None:
    import dask
    from distributed import Worker
    from distributed.comm.addressing import get_address_host, unparse_host_port
    from distributed.comm.core import connect

    class QuietWorker(Worker):
        """The scheduler asks for two heartbeats a second, which use 0.25 % of a core."""

        async def heartbeat(self) -> None:
            await super().heartbeat()
            self.periodic_callbacks["heartbeat"].callback_time = 1000 * HEARTBEAT_S

        def start_http_server(self, *arguments: Any, **settings: Any) -> None:
            """Start none: Dask's would listen on all addresses, without authentication."""

    with dask.config.set(SETTINGS):
        try:
            arguments = security.get_connection_args("worker")  # type: ignore[no-untyped-call]
            connection = await connect(scheduler, timeout=CONNECT_S, **arguments)  # type: ignore[no-untyped-call]
        except OSError as error:
            sys.exit(f"error: cannot connect to the scheduler at `{scheduler}`: {error.__cause__ or error}")
        own = unparse_host_port(get_address_host(connection.local_address))
        connection.abort()
        worker = QuietWorker(
            scheduler,
            name=name,
            nthreads=1,
            memory_limit=0,
            dashboard=False,
            local_directory=scratch,
            death_timeout=CONNECT_S,
            security=security,
            host=own,
        )
        worker.iosonde_role = role  # type: ignore[attr-defined]
        async with worker:
            try:
                await worker.finished()  # type: ignore[no-untyped-call]
            finally:
                # It restores the host. Slurm would kill it when this process has ended.
                if started := getattr(worker, "iosonde_agent", None):
                    await started.end()


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Return what has to be the same on all hosts, which machine this is, its role, and facts for servers' records."""
    return {
        "machine": boot_id(),
        "software": software(),
        "role": getattr(dask_worker, "iosonde_role", "client"),
        "cpus": os.cpu_count() or 1,
        "can_drop": os.access(DROP_CACHES, os.W_OK),
    }


def software() -> dict[str, Any]:
    """Return the versions that have to be the same on all hosts."""
    found: dict[str, Any] = environment.capture(find_engine())["software"]
    return found | {name: version(name) for name in ("dask", "distributed")}


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
    return agent.process.pid


async def agent(method: str, *arguments: Any, dask_worker: Worker) -> Any:
    """Call a method of the agent."""
    found: Agent | None = getattr(dask_worker, "iosonde_agent", None)
    if found is None:
        raise RuntimeError("the worker was restarted during the study")
    return await getattr(found, method)(*arguments)


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


async def watch(drop: bool, dask_worker: Worker) -> None:
    """Start to read the counters, after the page cache was dropped if wanted."""
    await watched(dask_worker)  # What a lost coordinator has left.
    if drop:
        await asyncio.to_thread(os.sync)
        await asyncio.to_thread(DROP_CACHES.write_text, "1", encoding="ascii")
    samples: list[dict[str, int]] = []
    dask_worker.iosonde_samples = samples  # type: ignore[attr-defined]
    dask_worker.iosonde_watch = asyncio.create_task(_sample(samples))  # type: ignore[attr-defined]


async def watched(dask_worker: Worker) -> list[dict[str, int]]:
    """Stop, and return what was read."""
    task: asyncio.Task[None] | None = getattr(dask_worker, "iosonde_watch", None)
    if task is None:
        return []
    task.cancel()
    dask_worker.iosonde_watch = None  # type: ignore[attr-defined]
    samples: list[dict[str, int]] = dask_worker.iosonde_samples  # type: ignore[attr-defined]
    return [*samples, read_counters(Path("/"))]


async def _sample(samples: list[dict[str, int]]) -> None:
    """Never more than `MOST_SAMPLES`: in a long run, and if nobody stops it, they become rarer."""
    period_s = PERIOD_S
    while True:
        samples.append(read_counters(Path("/")))
        if len(samples) >= MOST_SAMPLES:
            del samples[1::2]
            period_s *= 2
        await asyncio.sleep(period_s)


def read_counters(root: Path) -> dict[str, int]:
    """Counters of the machine now, by name, and the time."""
    found: dict[str, int] = {"time_ns": time.time_ns()}
    for source in (_cpu, _disks, _interfaces, _nfsd_pools):
        with suppress(OSError, ValueError, IndexError, KeyError):
            found |= source(root)
    return found | nfs_server_counters(root / "proc/net/rpc/nfsd")


def _cpu(root: Path) -> dict[str, int]:
    """All but idle time and waits for I/O (proc_stat(5)); guests are part of user time."""
    fields = [int(each) for each in (root / "proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    return {"cpu_ns": (sum(fields) - fields[3] - fields[4]) * _NS_PER_TICK}


def _disks(root: Path) -> dict[str, int]:
    """Drives: devices that are neither partitions nor made of others (kernel `Documentation/admin-guide/iostats`)."""
    found = dict.fromkeys(("disk_reads", "disk_writes", "disk_read_bytes", "disk_write_bytes"), 0)
    found |= dict.fromkeys(("disk_read_ms", "disk_write_ms"), 0)
    lines = [line.split() for line in (root / "proc/diskstats").read_text(encoding="ascii").splitlines()]
    # Since Linux 6.2 an I/O counts twice with native multipath: on the path and on the device above its paths.
    over_paths = {_PATH.sub(r"\1\2", fields[2]) for fields in lines if _PATH.fullmatch(fields[2])}
    for fields in lines:
        name, counts = fields[2], [int(each) for each in fields[3:14]]
        device = root / "sys/block" / name
        if name.startswith(_VIRTUAL) or name in over_paths or not device.exists() or not any(counts):
            continue
        if any((device / "slaves").glob("*")):
            continue
        found["disk_reads"] += counts[0]
        found["disk_read_bytes"] += counts[2] * SECTOR_BYTES
        found["disk_read_ms"] += counts[3]
        found["disk_writes"] += counts[4]
        found["disk_write_bytes"] += counts[6] * SECTOR_BYTES
        found["disk_write_ms"] += counts[7]
        found[f"busy_ms.{name}"] = counts[9]
    return found


def _interfaces(root: Path) -> dict[str, int]:
    """All but loopback (proc_pid_net(5))."""
    found = dict.fromkeys(("nic_rx_bytes", "nic_rx_dropped", "nic_tx_bytes", "nic_tx_dropped"), 0)
    for line in (root / "proc/net/dev").read_text(encoding="utf-8", errors="replace").splitlines()[2:]:
        name, _, counts = line.partition(":")
        if name.strip() != "lo":
            values = [int(each) for each in counts.split()]
            for counter, value in zip(found, (values[0], values[3], values[8], values[11]), strict=True):
                found[counter] += value
    return found


def _nfsd_pools(root: Path) -> dict[str, int]:
    """Connections with data, and those for which no thread was idle (kernel `net/sunrpc/svc_xprt.c`).

    Kernels count a connection as enqueued if no thread was idle, later ones always; then it is woken less often.
    """
    lines = (root / "proc/fs/nfsd/pool_stats").read_text(encoding="ascii").splitlines()
    pools = [[int(each) for each in line.split()] for line in lines if not line.startswith("#")]
    arrived, enqueued, woken = (sum(pool[field] for pool in pools) for field in (1, 2, 3))
    ready = max(enqueued, min(arrived, enqueued + woken))
    return {"nfsd_arrived": ready, "nfsd_without_thread": max(0, ready - woken)}


class Agent:
    """The process of an agent, and its messages since they were last asked for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
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
    def is_running(self) -> bool:
        """False once it has exited, also because its coordinator has gone."""
        return self.process.returncode is None

    async def send(self, message: Mapping[str, Any] | None = None) -> None:
        """Write a request, or an empty line; nothing if it has exited, which `receive` reports."""
        assert self.process.stdin
        with suppress(ConnectionError):
            self.process.stdin.write((json.dumps(message) if message else "").encode() + b"\n")
            await self.process.stdin.drain()

    async def receive(self, wait_s: float) -> list[dict[str, Any]]:
        """Return the messages so far, after the first one or the time to wait; `silent` if the process hangs.

        The process learns that its coordinator still asks.
        """
        await self.send()
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
        assert self.process.stdin
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), END_S)
        except TimeoutError:
            self.process.kill()  # The engine stops at the end of its input.
            await self.process.wait()
        self._reading.cancel()

    async def kill(self) -> None:
        """Kill a process that hangs."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def _read(self) -> None:
        assert self.process.stdout and self.process.stderr
        errors = asyncio.create_task(self.process.stderr.read())
        async for line in self.process.stdout:
            self._silent_at = time.monotonic() + SILENT_S
            message = json.loads(line)
            if message["is"] == "progress":
                self._progress = message
            elif message["is"] != "alive":
                self._messages.put_nowait(message)
        last = (await errors).decode(errors="replace").strip().splitlines()[-1:]
        status = await self.process.wait()
        self._messages.put_nowait({"is": "exited", "status": status, "because": "".join(last)})


if __name__ == "__main__":
    main()
