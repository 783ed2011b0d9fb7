"""All that tests look at in the lab's machine: `guest.py SIZES_PROGRAM FAILING_BYTE`.

One start of the machine and one process do it all: emulated, each costs half a minute. Steps follow one another. Their
results are `NAME.json` and result sets in the working directory. What can be computed from these is computed outside,
where nothing is emulated.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import guest_nvme_tcp
import guest_user_driver
from guest_nvme import try_backends, try_costs, try_drive
from guest_sessions import waiting_session

from iosonde.execution import environment
from iosonde.execution.engine import find_engine

BEGAN = time.monotonic()


def try_all(sizes_program: str, failing_byte: int) -> None:
    """Each step in turn; one that fails fails its own tests only."""
    environment.capture(Path(find_engine()))  # The digest of the engine takes seconds: once for all sessions.
    # A process forks before Polars starts threads, which it would not have.
    served = waiting_session(guest_nvme_tcp.CONSENT)
    driver = waiting_session(guest_user_driver.consent_for(guest_user_driver.DRIVE.resolve()))
    carry_out("drive", try_drive)
    carry_out("backends", try_backends)
    carry_out("costs", try_costs)
    for name, part in guest_user_driver.parts_of_user_driver(driver, failing_byte, sizes_program).items():
        carry_out(f"driver-{name}", part)
    carry_out("nvme-tcp", lambda: guest_nvme_tcp.try_nvme_tcp(served))


def carry_out(name: str, step: Callable[[], dict[str, Any] | None]) -> None:
    """Write the results of a step, or its traceback; and when it ended."""
    try:
        found = step()
    except Exception:
        found = {"broken": traceback.format_exc()}
        print(found["broken"], file=sys.stderr)
    if found is not None:
        Path(f"{name}.json").write_text(json.dumps(found))
    print(f"{time.monotonic() - BEGAN:.0f} s: {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # Not the host's journal.
    print(f"imported {time.clock_gettime(time.CLOCK_BOOTTIME):.0f} s after the start of the machine", file=sys.stderr)
    try_all(sys.argv[1], int(sys.argv[2]))
