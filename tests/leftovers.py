"""Leftovers of setups that tests create in a directory, and sessions that are killed while their setup exists."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.storage import cleanup, journal, loop_status

SESSION = """
import sys
from iosonde.execution import resume

print("ready", flush=True)
sys.stdin.readline()
resume(sys.argv[1], retry_failed=True)
"""


def leftovers(directory: Path) -> list[str]:
    """Everything that was created there and still exists. A mounted image keeps its loop device."""
    attached = [str(device) for device in loop_status.attached_to(directory)]
    return [*attached, *(entry.path for entry in journal.entries()), *map(str, directory.iterdir())]


@contextmanager
def nothing_left(place: Path) -> Iterator[Path]:
    """A directory with files in place of devices; none of their setup may remain."""
    place.mkdir()
    yield place
    left = leftovers(place)
    if left:
        cleanup()
    assert left == [], left


def resumed_and_killed(results: Path, directory: Path, *, after_s: float) -> None:
    """Resume a study in a process of its own, and kill it `after_s` after something exists in the directory."""
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(results)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert session.stdin and session.stdout and session.stdout.readline() == "ready\n"
    session.stdin.write("go\n")
    session.stdin.flush()
    deadline = time.monotonic() + 60
    while not leftovers(directory) and session.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(after_s)
    session.send_signal(signal.SIGKILL)
    session.communicate()


def clean(directory: Path) -> None:
    """Remove all leftovers of a killed session."""
    cleaned = cleanup()
    assert not any(each.failed for each in cleaned), cleaned
    assert leftovers(directory) == []
