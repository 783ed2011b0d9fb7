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
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.errors import TargetError
from iosonde.features.many_hosts import tls
from iosonde.features.many_hosts.named_hosts import check_scheduler
from iosonde.storage.targets import temporary_files

if TYPE_CHECKING:
    from distributed import Security

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

CONNECTED_FROM = "iosonde: connected from "
"""Starts the line in which a worker over SSH reports the coordinator's address, as its host sees it."""


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


def bracketed(host: str) -> str:
    """An IP address, as Dask takes it."""
    return f"[{host}]" if ":" in host else host


def _configured(scheduler: str) -> Security:
    try:
        check_scheduler(scheduler)
        return tls.configured("worker")
    except TargetError as error:
        sys.exit(f"error: {error}")


def _ordered(carrier: str) -> tuple[dict[str, Any], int | None]:
    """The order of a coordinator, and the connection with which the worker ends; none in a job of Slurm."""
    if carrier == "ssh":
        address = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
        print(f"\n{CONNECTED_FROM}{address}", flush=True)  # What a login prints may have no end of line.
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
    from distributed.comm.addressing import get_address_host
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
        own = bracketed(get_address_host(connection.local_address))
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
                if agent := getattr(worker, "iosonde_agent", None):
                    await agent.end()


if __name__ == "__main__":
    main()
