"""Sessions in processes of their own, which are killed while they measure, and what other steps do during a run."""

from __future__ import annotations

import os
import select
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.execution import resume
from iosonde.storage.safety.consent import Consent

LAB = Path("/dev/lab")
MEASURES_WITHIN_S = 300.0


class During:
    """An observer that does something once, in an interval of the measurement."""

    def __init__(self, action: Callable[[], object], *, interval: int = 0) -> None:
        self.action, self.interval, self.is_done = action, interval, False
        self.notes: list[str] = []

    def run_started(self, *_: Any) -> None: ...

    def event(self, run: Any, event: dict[str, Any]) -> None:
        if event["event"] == "interval" and event["index"] >= self.interval and not self.is_done:
            self.is_done = True
            self.action()

    def run_ended(self, *_: Any) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class Session:
    """A process that waits for the directory of a result set, and then resumes it."""

    pid: int
    directory: int
    """Descriptor that it reads the directory from."""
    measures: int
    """Descriptor to which it writes when it has measured an interval."""

    def start(self, directory: Path) -> None:
        os.write(self.directory, str(directory).encode())
        os.close(self.directory)

    def is_measuring(self) -> bool:
        """Wait until it measures; False if it never does."""
        ready, _, _ = select.select([self.measures], [], [], MEASURES_WITHIN_S)
        return bool(ready) and os.read(self.measures, 1) == b"x"

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def waiting_session(consent: Consent) -> Session:
    """A process that shares what this one has imported, which takes long here; to be forked before threads start."""
    reading, directory = os.pipe()
    measures, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        os.close(writing)
        return Session(pid=pid, directory=directory, measures=measures)
    os.close(directory)
    os.close(measures)
    try:
        observer: Any = During(lambda: os.write(writing, b"x"))
        resume(os.read(reading, 4096).decode(), consent=consent, observer=observer)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def is_free(device: Path) -> bool:
    """Return True if no program or kernel driver has claimed it."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
    except OSError:
        return False
    return True
