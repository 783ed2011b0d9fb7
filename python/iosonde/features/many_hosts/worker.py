"""A Dask worker that uses next to no CPU while an engine measures: `python -m iosonde.features.many_hosts.worker`.

An idle worker with Dask's defaults uses 3.4 % of a core and wakes up 100 times a second; with these settings 0.25 %.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from iosonde.errors import TargetError
from iosonde.features.many_hosts import tls
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
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.monitor-interval": "10s",
}
"""Of schedulers and workers."""

HEARTBEAT_S = 10
"""Between two messages of an idle worker; the coordinator asks every 2 s anyway."""

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve a scheduler until it has gone, or the process that started this one has."""
    parser = argparse.ArgumentParser(prog="python -m iosonde.features.many_hosts.worker")
    parser.add_argument("address", help="address of the scheduler, such as `tls://10.0.0.1:8786`")
    parser.add_argument("name", help="name of this host in results")
    parser.add_argument("--role", choices=("client", "server"), default="client", help="`server`: counters, no load")
    parser.add_argument("--parent", type=int, help="process with which the worker ends")
    parser.add_argument("--scratch", help="existing directory for Dask's own files; without it a temporary one")
    arguments = parser.parse_args()
    if arguments.parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != arguments.parent:
            return  # It died before prctl(2).
    try:
        security = tls.configured("worker") if arguments.address.startswith("tls:") else None
    except TargetError as error:
        sys.exit(f"error: {error}")
    with ExitStack() as stack:
        scratch = arguments.scratch or str(stack.enter_context(temporary_files.scratch()))
        asyncio.run(serve(arguments.address, arguments.name, scratch, role=arguments.role, security=security))


def address(host: str, port: int) -> str:
    """The address of a scheduler with TLS."""
    return f"tls://[{host}]:{port}" if ":" in host else f"tls://{host}:{port}"


async def serve(
    scheduler: str,
    name: str,
    scratch: str,
    *,
    role: str = "client",
    security: Security | None = None,
    host: str | None = None,
) -> None:
    """Serve a scheduler until it has gone; `host` is the address on which the worker listens."""
    import dask
    from distributed import Worker

    class QuietWorker(Worker):
        """The scheduler asks for two heartbeats a second, which use 0.25 % of a core."""

        async def heartbeat(self) -> None:
            await super().heartbeat()
            self.periodic_callbacks["heartbeat"].callback_time = 1000 * HEARTBEAT_S

    with dask.config.set(SETTINGS):
        worker = QuietWorker(
            scheduler,
            name=name,
            nthreads=1,
            memory_limit=0,
            dashboard=False,
            local_directory=scratch,
            death_timeout=20,
            security=security,
            host=host,
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
