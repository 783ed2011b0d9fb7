"""A worker on a node of a Slurm job: `python -m iosonde.features.many_hosts.slurm_worker`.

The first line of standard input is a JSON object: address of the `scheduler`, `certificate` of the session, `key`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from iosonde.features.many_hosts import tls, worker
from iosonde.storage.targets import temporary_files


def main() -> None:
    """Serve the scheduler until it has gone, or Slurm ends the job."""
    order = json.loads(sys.stdin.readline())
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())  # Not for processes that the worker starts.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with temporary_files.scratch() as scratch:
        security = tls.of_session(order["certificate"], order["key"])
        name = os.environ["SLURMD_NODENAME"]
        asyncio.run(worker.serve(order["scheduler"], name, str(scratch), security=security))


if __name__ == "__main__":
    main()
