"""Sessions of targets, one after the other: requests as JSON Lines in, progress and outcomes as JSON Lines out.

Standard input stays open as long as a session may run: at the end of input, also because the parent was killed, it
stops like after Ctrl-C, and completed runs are kept.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iosonde.base.python_process import Requests
from iosonde.collections.fleet.messages import Checked, Described, DescribedTarget, Ended, Files, Note, Outbox, Problem
from iosonde.collections.fleet.model import Measurable, devices_of, hardware_of
from iosonde.errors import IosondeError, StudyError, TargetError
from iosonde.execution import environment
from iosonde.execution.engine import find_engine
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import Interrupted, require_startable, resume
from iosonde.plan import Plan, Run
from iosonde.plan.commands import has_commands
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent, refuse_surplus
from iosonde.storage.safety.journal import boot_id
from iosonde.study.model import Study


def measurable(target: str, study: Study | None, options: Mapping[str, Any]) -> Measurable | IosondeError:
    """Plan a study on a target of this machine with options of `expand`, or return why it cannot be measured."""
    try:
        plan = expand(study, open_target(target), **options) if study else None
        if plan and has_commands(plan):
            raise StudyError(f"fleets cannot run external commands, which the study `{plan.study_name}` has")
        return Measurable(hardware=hardware_of(target), devices=devices_of(target), plan=plan)
    except IosondeError as error:
        return error


def describe(request: Mapping[str, Any]) -> Described:
    """Return what the machine is, and hardware, devices and plan of each target; without a study no plans."""
    study = Study.model_validate(request["study"]) if request["study"] else None
    found = {name: measurable(target, study, request["options"]) for name, target in request["targets"].items()}
    return Described(
        machine=boot_id(),
        cpus=len(os.sched_getaffinity(0)),
        software=environment.capture(find_engine())["software"],
        targets={
            name: Problem.of(each) if isinstance(each, IosondeError) else DescribedTarget.of(each)
            for name, each in found.items()
        },
    )


def check(request: Mapping[str, Any]) -> Checked:
    """Check consent and guard of each target, and that its directory is free; nothing is written."""
    plans = {name: Plan.model_validate(each) for name, each in request["plans"].items()}
    consent = Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"]))
    notes: list[str] = []

    def checked(name: str) -> Problem | None:
        try:
            refuse_surplus(consent, [each.target for each in plans.values()])
            directory = Path(request["directory"]) / name
            if directory.exists():
                raise TargetError(f"`{directory}` exists", hint="name another directory with `--output DIR`")
            require_startable(plans[name], consent, notes.append)
        except IosondeError as error:
            return Problem.of(error)
        return None

    return Checked(targets={name: checked(name) for name in plans}, notes=notes)


class Relay(Observer):
    """Passes on notes of a session, and from a host the environments and complete records that the fleet has not."""

    def __init__(self, outbox: Outbox, directory: Path, known: Mapping[str, list[str]]) -> None:
        """`known` has the names that the fleet has, by kind; no kind here, where they are on disk."""
        self._outbox, self._directory = outbox, directory
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
                    self._outbox.send(Files.of(kind, path.name, content))
                    sent.add(path.name)

    def run_ended(self, run: Run, record: Record) -> None:
        """Send the record."""
        self.send()

    def note(self, text: str) -> None:
        """Report a message for the user."""
        self._outbox.send(Note(text=text))


class SessionRequests(Requests):
    """The end of the parent stops a session in progress like Ctrl-C."""

    def __init__(self, lease_s: float) -> None:
        self._state = threading.Lock()
        self._is_over = self._is_running = False
        super().__init__(lease_s)

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a session is in progress the end stops it; `KeyboardInterrupt` if that has come already."""
        with self._state:
            if self._is_over:
                raise KeyboardInterrupt
            self._is_running = True
        try:
            yield
        finally:
            with self._state:
                self._is_running = False

    def end(self) -> None:
        """Stop the session."""
        super().end()
        with self._state:
            self._is_over = True
            if self._is_running:
                os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Carry out the missing runs of each result set that is requested; the argument is the lease."""
    outbox = Outbox()
    requests = SessionRequests(float(sys.argv[1]) if sys.argv[1:] else math.inf)
    for request in requests:
        if request["do"] == "run":
            outbox.send(_run(request, requests, outbox))
        else:
            outbox.send({"describe": describe, "check": check}[request["do"]](request))
    outbox.close()


def _run(request: dict[str, Any], requests: SessionRequests, outbox: Outbox) -> Ended:
    directory = Path(request["directory"])
    try:
        with requests.running():
            if "plan" in request:
                ResultSet.create_or_open(directory, Plan.model_validate(request["plan"]))
            relay = Relay(outbox, directory, request.get("known", {}))
            relay.send()  # What an earlier session has recorded.
            resume(
                directory,
                observer=relay,
                retry_failed=request["retry_failed"],
                time_limit_s=request["time_limit_s"],
                consent=Consent(destroy=tuple(request["destroy"]), confirm=tuple(request["confirm"])),
            )
    except (Interrupted, KeyboardInterrupt):
        return Ended(stopped=True)
    except IosondeError as error:
        return Ended(failed=str(error))
    return Ended()


if __name__ == "__main__":
    main()
