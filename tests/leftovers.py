"""Leftovers of setups that tests create in a directory, and sessions that are killed while their setup exists."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from iosonde.storage import cleanup
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.safety import journal

SESSION = """
import sys
from iosonde.execution.session import resume
from iosonde.storage.safety.guard import Consent

print("ready", flush=True)
sys.stdin.readline()
resume(sys.argv[1], retry_failed=True, consent=Consent(destroy=tuple(sys.argv[2:])))
"""


def leftovers(directory: Path) -> list[str]:
    """Everything that was created there and still exists. A mounted image keeps its loop device."""
    attached = [str(device) for device in block_nodes.attached_to(directory)]
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
    """Resume a study, and kill the session `after_s` after something exists in the directory."""
    killed_once(results, lambda: bool(leftovers(directory)), after_s=after_s)


def killed_once(
    results: Path, is_due: Callable[[], bool], *, destroy: Sequence[str] = (), after_s: float = 0.0
) -> None:
    """Resume a study in a process of its own, and kill it once `is_due`, or after two minutes."""
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, str(results), *destroy],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as session:  # fmt: skip
        try:
            assert session.stdin and session.stdout and session.stdout.readline() == "ready\n"
            session.stdin.write("go\n")
            session.stdin.flush()
            deadline = time.monotonic() + 300
            while not is_due() and session.poll() is None and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(after_s)
        finally:
            session.kill()


def clean(directory: Path) -> None:
    cleaned = cleanup()
    assert not any(each.failed for each in cleaned), cleaned
    assert leftovers(directory) == []


class SharedMemory:
    """Shared memory of the servers in a directory: they have it while they run, and none of it outlives them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: set[Path] = set()
        self._processes: set[str] = set()
        self.segments = 0
        """System V segments that were seen in their address spaces, in whatever IPC namespace."""

    def look(self) -> None:
        for each in Path("/proc").iterdir():
            with suppress(OSError):
                if each.name.isdigit() and (each / "cwd").readlink().is_relative_to(self._directory):
                    self._processes.add(each.name)
                    lines = (each / "maps").read_text().splitlines()
                    self.segments += sum("/SYSV" in line for line in lines)
                    self._files |= {Path(line.split()[5]) for line in lines if "/dev/shm/PostgreSQL." in line}

    def remaining(self) -> list[str]:
        """Files that still exist, and segments that these processes created in this IPC namespace."""
        lines = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
        segments = [f"segment {line[1]}" for line in lines if line[4] in self._processes]
        return [*(str(each) for each in sorted(self._files) if each.exists()), *segments]
