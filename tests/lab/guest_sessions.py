"""Sessions in processes of their own, which are killed while they measure."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iosonde.execution import resume
from iosonde.storage.consent import Consent

ACTIVE_WITHIN_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Session:
    """A process that waits for the directory of a result set, and then resumes it."""

    pid: int
    pipe: int
    """Descriptor that it reads the directory from."""

    def start(self, directory: Path) -> None:
        os.write(self.pipe, str(directory).encode())
        os.close(self.pipe)

    def kill_while_measuring(self, active: Callable[[], list[str]]) -> bool:
        """Kill it once its engine measures something `active`; False if it never did."""
        deadline = time.monotonic() + ACTIVE_WITHIN_S
        while not (is_measuring := self._is_measuring(active)) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return is_measuring

    def _is_measuring(self, active: Callable[[], list[str]]) -> bool:
        if not active():
            return False
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        with contextlib.suppress(FileNotFoundError):  # A process that has just ended is none.
            return any("engine" in Path(f"/proc/{child}/comm").read_text() for child in children)
        return False


def waiting_session(consent: Consent) -> Session:
    """A process that shares what this one has imported, which takes long here; to be forked before threads start."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        return Session(pid=pid, pipe=writing)
    os.close(writing)
    try:
        resume(os.read(reading, 4096).decode(), consent=consent)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def is_free(device: Path) -> bool:
    """Whether no program or kernel driver has claimed it."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
    except OSError:
        return False
    return True
