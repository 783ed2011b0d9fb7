"""All that tests look at in the lab's machine: `guest.py ENGINE SIZES_PROGRAM IOPS BANDWIDTH FAILING_BYTE`.

One start of the machine and one process do it all: emulated, each costs half a minute. Steps follow one another. Their
results are JSON Lines on standard output (`guest_md.send`), or `NAME.json` and result sets in the working directory.
What can be computed from these is computed outside, where nothing is emulated.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import guest_arrays
import guest_block_caches
import guest_nvme_tcp
import guest_user_driver
from guest_failures import fail_members
from guest_guard import try_guard
from guest_limits import try_io_max
from guest_md_builder import try_builder
from guest_memory import try_limits
from guest_nvme import try_backends, try_drive
from guest_rates import measure_all
from guest_sessions import waiting_session
from guest_unplug import try_unplug

from iosonde.execution import environment
from iosonde.storage.safety.consent import NO_CONSENT

BEGAN = time.monotonic()
SLOW_S = 150
"""A step that takes this long prints where it is, and again after the same time: a slow guest is not a silent one."""


def try_all(engine: str, sizes_program: str, iops: int, bandwidth: int, failing_byte: int) -> None:
    """Each step in turn; one that fails fails its own tests only."""
    environment.capture(Path(engine))  # The digest of the engine takes seconds: once for all sessions.
    remove_loop_devices()
    # A process forks before Polars starts threads, which it would not have.
    arrays = waiting_session(guest_arrays.CONSENT), waiting_session(guest_arrays.CONSENT)
    cache, limits = waiting_session(guest_block_caches.CONSENT), waiting_session(NO_CONSENT)
    served = waiting_session(guest_nvme_tcp.CONSENT)
    driver = waiting_session(guest_user_driver.consent_for(guest_user_driver.DRIVE.resolve()))
    carry_out("rates", lambda: measure_all(engine, iops, bandwidth))
    carry_out("failures", lambda: fail_members(engine))
    carry_out("guard", try_guard)
    carry_out("caches", lambda: guest_block_caches.try_caches(cache))
    carry_out("builder", try_builder)
    carry_out("arrays", lambda: guest_arrays.try_arrays(*arrays))
    carry_out("drive", try_drive)
    carry_out("backends", try_backends)
    for name, part in guest_user_driver.parts_of_user_driver(driver, failing_byte, sizes_program).items():
        carry_out(f"driver-{name}", part)
    carry_out("nvme-tcp", lambda: guest_nvme_tcp.try_nvme_tcp(served))
    carry_out("limits", lambda: try_limits(limits))  # Its control groups and file system stay mounted.
    carry_out("io-max", try_io_max)
    carry_out("unplug", try_unplug)  # Drives have other names after it.


def remove_loop_devices() -> None:
    """Remove those that the kernel creates before they are used: the guard looks at each of them, dozens of times.

    Source: kernel `include/uapi/linux/loop.h` (`LOOP_CTL_REMOVE`).
    """
    with Path("/dev/loop-control").open("rb") as control:
        for device in Path("/sys/block").glob("loop*"):
            fcntl.ioctl(control, 0x4C81, int(device.name.removeprefix("loop")))


def carry_out(name: str, step: Callable[[], dict[str, Any] | None]) -> None:
    """Write the results of a step, or its traceback; and when it ended."""
    try:
        with stack_printed_when_slow():
            found = step()
    except Exception:
        found = {"broken": traceback.format_exc()}
        print(found["broken"], file=sys.stderr)
    if found is not None:
        Path(f"{name}.json").write_text(json.dumps(found))
    print(f"{time.monotonic() - BEGAN:.0f} s: {name}", file=sys.stderr, flush=True)


@contextmanager
def stack_printed_when_slow() -> Iterator[None]:
    """Print the stack of this thread every `SLOW_S` seconds.

    A thread of Python holds the interpreter's lock while it reads the stack. `faulthandler.dump_traceback_later` reads it
    without the lock while the thread changes it, and ended this process with a segmentation fault.
    """
    is_over, main = threading.Event(), threading.get_ident()

    def watch() -> None:
        while not is_over.wait(SLOW_S):
            stack = "".join(traceback.format_stack(sys._current_frames()[main]))
            print(f"after another {SLOW_S} s:\n{stack}", file=sys.stderr, flush=True)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # Not the host's journal.
    print(f"imported {time.clock_gettime(time.CLOCK_BOOTTIME):.0f} s after the start of the machine", file=sys.stderr)
    try_all(*sys.argv[1:3], *map(int, sys.argv[3:]))
