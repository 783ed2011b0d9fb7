"""Studies inside a machine of the lab, sessions that are killed while they measure, and what happens during a run."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.engine.protocol import Event
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import resume
from iosonde.plan import Run
from iosonde.planning import parse
from iosonde.storage.safety.guard import Consent
from iosonde.study.model import Study

LAB = Path("/dev/lab")
MEASURES_WITHIN_S = 300.0


class During(Observer):
    """Does something once, in an interval of the measurement."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action, self.is_done = action, False

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval" and not self.is_done:
            self.is_done = True
            self.action()


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
        resume(os.read(reading, 4096).decode(), consent=consent, observer=During(lambda: os.write(writing, b"x")))
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


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed: {done.stderr.strip()}"
    return done.stdout.strip()


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def study(measurement: Mapping[str, Any], factors: Mapping[str, Any] | None = None, **head: Any) -> Study:
    """A study of one part without repeats; `head` has other keys of the study."""
    return study_of({"measurement": measurement, "factors": factors or {}}, **head)


def study_of(*parts: Mapping[str, Any], **head: Any) -> Study:
    top = {"name": "inside", "title": "Inside", "question": "?", "repeats": 1, **head}
    tables = [line for part in parts for line in ("[[parts]]", *_assigned(part))]
    return parse("\n".join([*_assigned(top), *tables, "[profiles.standard]"]))


def _assigned(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in values.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_assigned({json.dumps(name): each for name, each in value.items()})) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list | tuple) else json.dumps(value)
