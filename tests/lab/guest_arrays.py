"""Studies on md inside the lab's machine: a member that fails in the middle of one, and sessions that are killed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_sessions import Session, is_free

from iosonde.execution import execute, resume
from iosonde.features.arrays import md
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.tools import call

DEVICES = [(LAB / number).resolve() for number in ("8", "9", "10")]
TARGET = ",".join(map(str, DEVICES))
CONSENT = Consent(destroy=tuple(map(str, DEVICES)), confirm=("IOSONDE-LAB-8", "IOSONDE-LAB-9", "IOSONDE-LAB-10"))
"""Earlier steps leave data between the edges of drives."""
FAILING = DEVICES[2]
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
                "state": record.parts["array"]["before"],
                "state_after": record.parts["array"]["after"],
                "member_failed": record.parts["array"]["member_failed"],
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
    was_measuring = session.is_measuring()
    session.kill()
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
    """Leftovers of any array."""
    return {
        "superblocks": [md.name_on(device) for device in DEVICES],
        "running": running_arrays(),
        "journal": [entry.path for entry in journal.entries()],
        "free": [is_free(device) for device in DEVICES],
    }


def running_arrays() -> list[str]:
    return [path.name for path in Path("/sys/block").glob("md*")]
