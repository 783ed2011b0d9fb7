"""Studies on md inside the lab's machine: a member that fails in the middle of one, and sessions that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.execution import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, journal, open_target
from iosonde.storage.arrays import md
from iosonde.storage.consent import Consent
from iosonde.storage.tools import call

DEVICES = [Path(path).resolve() for path in os.environ["IOSONDE_LAB_DEVICES"].split(",")][:3]
TARGET = ",".join(map(str, DEVICES))
CONSENT = Consent(destroy=tuple(map(str, DEVICES)))
FAILING = DEVICES[2]
MEASURES_WITHIN_S = 300.0
STUDY = """
name = "md"
title = "md"
question = "?"
repeats = 1

[measurement]
span = "8MiB"
block_size = "4KiB"
access = "random"
queue_depth = 8
ramp = 0
duration = "1s"
interval = "100ms"
devices = 3
chunk = "64KiB"
array_state = "clean"

[[parts]]
[parts.factors]
{factors}

[profiles.standard]
"""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A process that waits for the result set that it resumes."""

    pid: int
    pipe: int
    """Descriptor that it reads the directory from."""

    def start(self, directory: Path) -> None:
        os.write(self.pipe, str(directory).encode())
        os.close(self.pipe)

    def kill_while_measuring(self, active: Callable[[], list[str]]) -> bool:
        """Kill it once its engine measures something `active`; False where it never got so far."""
        deadline = time.monotonic() + MEASURES_WITHIN_S
        while not (is_measuring := self._is_measuring(active)) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return is_measuring

    def _is_measuring(self, active: Callable[[], list[str]]) -> bool:
        if not active():
            return False
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        with contextlib.suppress(FileNotFoundError):  # One that has just ended is none.
            return any("engine" in Path(f"/proc/{child}/comm").read_text() for child in children)
        return False


def waiting_session(consent: Consent = CONSENT) -> Session:
    """Fork a session, which shares the modules that this process has imported (slow here). Call before threads start."""
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


def try_arrays(to_clean_up: Session, to_resume: Session) -> dict[str, Any]:
    """Runs with a failing member, and leftovers of killed sessions."""
    return {
        "failing": lose_a_member(),
        "cleanup": after_a_kill(to_clean_up, lambda _: [str(each.failed) for each in cleanup() if each.failed]),
        "resume": after_a_kill(
            to_resume, lambda directory: [record.outcome for record in resume(directory, consent=CONSENT).records()]
        ),
    }


def lose_a_member() -> dict[str, Any]:
    """Two runs on each of two arrays, which lose a member in the first; the result set goes out as `failing`."""
    observer = FailsAMember()
    plan = planned(array=["raid1", "raid5"], read_fraction=[0.0, 0.5])
    results = execute(plan, "failing", observer=observer, consent=CONSENT)
    return {
        "member": FAILING.name,
        "failed_in": observer.failed,
        "notes": observer.notes,
        "runs": [
            {
                "run_id": record.run_id,
                "array": record.levels["array"],
                "outcome": record.outcome,
                "state": record.setup["state"],
                "state_after": record.setup["state_after"],
                "member_failed": record.setup.get("member_failed"),
                "warnings": {warning.code: warning.message for warning in record.warnings},
                "kernel": (record.result or {})["evidence"]["kernel"],
            }
            for record in sorted(results.records(), key=lambda record: record.started_at)
        ],
        "left": left(),
    }


def after_a_kill(session: Session, recover: Callable[[Path], list[str]]) -> dict[str, Any]:
    """Objects that existed when a session was killed, the result of `recover`, and the leftovers after it."""
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, planned(array=["raid5"], duration=["2s"]))
    session.start(directory)
    was_measuring = session.kill_while_measuring(running_arrays)
    return {"was_measuring": was_measuring, "existed": left(), "result": recover(directory), "left": left()}


def planned(**factors: list[Any]) -> Plan:
    text = "\n".join(f"{name} = {json.dumps(levels)}" for name, levels in factors.items())
    return expand(parse(STUDY.replace("{factors}", text)), open_target(TARGET))


class FailsAMember:
    """Fails a member of each array in the middle of the first run on it."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.notes: list[str] = []

    def run_started(self, *_: Any) -> None: ...

    def event(self, run: Any, event: dict[str, Any]) -> None:
        if event["event"] == "interval" and event["phase"] == "measure" and event["index"] == 2:
            [array] = running_arrays()
            if Path("/sys/block", array, "md/degraded").read_text().strip() == "0":
                call("mdadm", f"/dev/{array}", "--fail", FAILING)
                self.failed.append(run.run_id)

    def run_ended(self, *_: Any) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def left() -> dict[str, Any]:
    """What there is of any array."""
    return {
        "superblocks": [md.name_on(device) for device in DEVICES],
        "running": running_arrays(),
        "journal": [entry.path for entry in journal.entries()],
        "free": [is_free(device) for device in DEVICES],
    }


def running_arrays() -> list[str]:
    return [path.name for path in Path("/sys/block").glob("md*")]


def is_free(device: Path) -> bool:
    """Whether nobody holds it."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
    except OSError:
        return False
    return True
