"""A worker that ssh has started: `python -m iosonde.features.many_hosts.ssh_worker`.

The first line of standard input is a JSON object:

    name            of this host in results
    role            `client` or `server`
    scheduler       address of the scheduler; null for the one from which ssh has connected
    port            of the scheduler
    certificate     of the session, and its own authority
    key             of the certificate

The end of standard input is that of the connection, and of the worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from iosonde.features.many_hosts import tls, worker
from iosonde.storage.targets import temporary_files


def main() -> None:
    """Serve the scheduler until the connection ends."""
    order = json.loads(sys.stdin.readline())
    connection = os.dup(sys.stdin.fileno())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # Not for processes that the worker starts.
    with temporary_files.scratch() as scratch:
        threading.Thread(target=_end_with, args=(connection, scratch), daemon=True).start()
        asyncio.run(_serve(order, str(scratch)))


async def _serve(order: dict[str, Any], scratch: str) -> None:
    client, _, own, _ = os.environ["SSH_CONNECTION"].split()
    address = worker.address(order["scheduler"] or client, order["port"])
    security = tls.of_session(order["certificate"], order["key"])
    await worker.serve(address, order["name"], scratch, role=order["role"], security=security, host=own)


def _end_with(connection: int, scratch: Path) -> None:
    while os.read(connection, 4096):
        pass
    temporary_files.remove_scratch(scratch)
    os._exit(0)  # The agent restores the host: this is the end of its input.


if __name__ == "__main__":
    main()
