"""Questions of a fleet to a machine about its own targets: plans, hardware, devices, guard and consent.

Requests and answers are JSON: `worker.py` calls these functions on the hosts of a fleet.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.execution.session import require_startable
from iosonde.fleet.sharing import devices_of, hardware_of
from iosonde.plan import Plan
from iosonde.plan.commands import has_commands
from iosonde.planning import expand
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent, ConsentError, refuse_surplus
from iosonde.storage.safety.journal_entry import boot_id
from iosonde.study.model import Study

Message = dict[str, Any]


def plan_of(study: Study, target: str, options: Mapping[str, Any]) -> Plan:
    """Plan a study on a target, with options of `expand`."""
    plan = expand(study, open_target(target), **options)
    if has_commands(plan):
        raise StudyError(f"fleets cannot run external commands, which the study `{study.name}` has")
    return plan


def describe(request: Message) -> Message:
    """Return what the machine is, and hardware, devices and plan of each target; without a study no plans."""
    study = Study.model_validate(request["study"]) if request["study"] else None

    def described(target: str) -> Message:
        found: Message = {"hardware": sorted(hardware_of(target)), "devices": devices_of(target)}
        if study:
            plan = plan_of(study, target, request["options"])
            found |= {"plan": plan.model_dump(mode="json"), "required": plan.required_options}
        return found

    return {
        "machine": boot_id(),
        "cpus": len(os.sched_getaffinity(0)),
        "software": environment.capture(find_engine())["software"],
        "targets": {name: _attempted(described, target) for name, target in request["targets"].items()},
    }


def check(request: Message) -> Message:
    """Check consent and guard of each target, and that its directory is free; nothing is written."""
    plans = {name: Plan.model_validate(each) for name, each in request["plans"].items()}
    consent = Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"]))
    notes: list[str] = []

    def checked(name: str) -> Message:
        refuse_surplus(consent, [each.target for each in plans.values()])
        directory = Path(request["directory"]) / name
        if directory.exists():
            raise TargetError(f"`{directory}` exists", hint="name another directory with `--output DIR`")
        require_startable(plans[name], consent, notes.append)
        return {}

    return {"targets": {name: _attempted(checked, name) for name in plans}, "notes": notes}


def _attempted(work: Callable[[str], Message], argument: str) -> Message:
    try:
        return work(argument)
    except IosondeError as error:
        options = error.options if isinstance(error, ConsentError) else ()
        return {"error": {"what": error.what, "where": error.where, "hint": error.hint, "options": options}}


class Sender:
    """Sends what a result set of a host has and the fleet has not: environments, and records that are complete."""

    def __init__(self, directory: Path, known: Mapping[str, list[str]], answer: Callable[..., None]) -> None:
        self._directory, self._answer = directory, answer
        self._sent = {kind: set(names) for kind, names in known.items()}

    def send(self) -> None:
        """Send what is new."""
        for kind, sent in self._sent.items():
            for path in sorted((self._directory / kind).iterdir()):
                if path.name in sent or path.name.startswith("."):
                    continue
                files = sorted(path.iterdir()) if path.is_dir() else [path]
                with suppress(FileNotFoundError):
                    content = {file.name: base64.b64encode(file.read_bytes()).decode() for file in files}
                    self._answer("files", kind=kind, name=path.name, files=content)
                    sent.add(path.name)
