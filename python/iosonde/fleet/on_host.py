"""Questions of a fleet to a machine about its own targets: plans, hardware, devices, guard and consent.

`worker.py` calls these functions on the hosts of a fleet. Requests are JSON, answers those of `messages.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.execution.session import require_startable
from iosonde.fleet.messages import Checked, Described, DescribedTarget, Files, Problem
from iosonde.fleet.model import devices_of, hardware_of
from iosonde.plan import Plan
from iosonde.plan.commands import has_commands
from iosonde.planning import expand
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent, refuse_surplus
from iosonde.storage.safety.journal_entry import boot_id
from iosonde.study.model import Study

T = TypeVar("T")


def plan_of(study: Study, target: str, options: Mapping[str, Any]) -> Plan:
    """Plan a study on a target, with options of `expand`."""
    plan = expand(study, open_target(target), **options)
    if has_commands(plan):
        raise StudyError(f"fleets cannot run external commands, which the study `{study.name}` has")
    return plan


def describe(request: Mapping[str, Any]) -> Described:
    """Return what the machine is, and hardware, devices and plan of each target; without a study no plans."""
    study = Study.model_validate(request["study"]) if request["study"] else None

    def described(target: str) -> DescribedTarget:
        found = DescribedTarget(hardware=sorted(hardware_of(target)), devices=devices_of(target))
        if not study:
            return found
        plan = plan_of(study, target, request["options"])
        return found.model_copy(update={"plan": plan.model_dump(mode="json"), "required": plan.required_options})

    return Described(
        machine=boot_id(),
        cpus=len(os.sched_getaffinity(0)),
        software=environment.capture(find_engine())["software"],
        targets={name: _attempted(described, target) for name, target in request["targets"].items()},
    )


def check(request: Mapping[str, Any]) -> Checked:
    """Check consent and guard of each target, and that its directory is free; nothing is written."""
    plans = {name: Plan.model_validate(each) for name, each in request["plans"].items()}
    consent = Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"]))
    notes: list[str] = []

    def checked(name: str) -> None:
        refuse_surplus(consent, [each.target for each in plans.values()])
        directory = Path(request["directory"]) / name
        if directory.exists():
            raise TargetError(f"`{directory}` exists", hint="name another directory with `--output DIR`")
        require_startable(plans[name], consent, notes.append)

    return Checked(targets={name: _attempted(checked, name) for name in plans}, notes=notes)


def _attempted(work: Callable[[str], T], argument: str) -> T | Problem:
    try:
        return work(argument)
    except IosondeError as error:
        return Problem.of(error)


class Sender:
    """Sends what a result set of a host has and the fleet has not: environments, and records that are complete."""

    def __init__(self, directory: Path, known: Mapping[str, list[str]], answer: Callable[[Files], None]) -> None:
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
                    content = {file.name: file.read_bytes() for file in files}
                    self._answer(Files.of(kind, path.name, content))
                    sent.add(path.name)
