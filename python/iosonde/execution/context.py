"""The context of a run: the session on its target, what was prepared for it, and the server that it measures.

Preparations are steps between the setup of a run and its instruments, such as bringing a cache into the state that a
case asks for. They change what the run finds, and may change its spec. What they did is in `RunContext.setup_facts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from iosonde.engine.protocol import Event
from iosonde.errors import ServerError
from iosonde.execution.admission import Admission
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.harness import Harness
from iosonde.execution.stop import Start, Stop
from iosonde.plan import Case, JsonObject, Plan, Run, target_of
from iosonde.results.schema import RecordWarning
from iosonde.storage import Target
from iosonde.storage.control_groups import ProcessGroup
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.device_target import DeviceTarget
from iosonde.storage.targets.setup_target import ActiveSetup, SetupTarget
from iosonde.storage.targets.target import TargetState
from iosonde.storage.targets.workspace import join, provision
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.server import Connection, EventLog
from iosonde.study.workload import described, streams_of


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """One attempt at a run, with everything that has been prepared for it so far."""

    session: TargetSession
    run: Run
    """With the spec that the engine gets."""
    case: Case
    number: int
    """Of the attempt."""
    target: Target
    """As the workload sees it."""
    target_facts: dict[str, Any] = field(default_factory=dict)
    """Description of the target before the run."""
    setup_facts: dict[str, Any] = field(default_factory=dict)
    """About the setup, for the record; empty without one."""
    building: ActiveSetup | None = None
    """The setup on real devices."""
    claims: Sequence[int] = ()
    """Descriptors that hold a raw device exclusively."""
    shims: Mapping[str, int] = field(default_factory=dict)
    """Descriptors of the shims of libraries that the engine loads, by the name of the store."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Identities to which the paths that the run opens must lead (`workspace.provision`)."""
    swap_bytes: int = 0
    """Swap that the run's processes may use beyond its memory limit."""
    warnings: Sequence[RecordWarning] = ()
    """About what the run found, such as a database in the state that another run left."""
    server: RunningServer | None = None
    """The database server that is measured, if any."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The case's parameters with those that a procedure decided."""
        return self.case.parameters | self.run.parameters

    @property
    def workload(self) -> JsonObject:
        """The part of the engine's spec that describes the load."""
        workload: JsonObject = self.run.spec["workload"]
        return workload

    def with_spec(self, spec: JsonObject) -> RunContext:
        """The same run with another spec for the engine."""
        return replace(self, run=self.run.model_copy(update={"spec": spec}))

    def laid_out(self) -> RunContext:
        """The same run once a step has laid out its target."""
        self.session.ended(self.run, complete=True)
        return self.with_spec({**self.run.spec, "workload": {**self.workload, "layout": "never"}})

    def claimed(self, spec: JsonObject) -> JsonObject:
        """The spec for an engine that inherits the claims; without them the engine claims the device itself."""
        workload = spec["workload"]
        if not self.claims or target_of(workload)["kind"] != "device":
            return spec
        return {**spec, "workload": {**workload, "target": {**workload["target"], "is_claimed": True}}}

    def carry_out(self, spec: JsonObject) -> EngineRun:
        """Carry out a step of the preparation, which leaves no record."""
        return drive(self.claimed(spec), stop=self.session.stop, inherited=self.claims, identities=self.identities)


@dataclass(kw_only=True)
class TargetSession:
    """One `run` or `resume` on a target, which is claimed and prepared until the session ends.

    It creates the setups of the plan, one at a time: a setup is created before the first run that needs it, and removed
    before the first run that needs another, or at the end of the session. Where iosonde keeps the data of a target, a
    setup is a new target, whose state outlives the session.
    """

    name: str
    """Name of the session."""
    plan: Plan
    """The runs on this target."""
    base: Target
    """The target without a setup."""
    admission: Admission
    state: TargetState
    harness: Harness
    data: Sequence[DataState]
    environment: str
    """Hash of the description of machine and software."""
    environment_facts: dict[str, Any]
    consent: Consent
    stop: Stop
    note: Callable[[str], None]
    """Shows a message to the user."""
    start: Callable[[], Start] | None = None
    """Returns the agreed start of the next run, which other hosts carry out at the same time; None on one host."""
    _key: tuple[str, ...] | None = field(default=None, init=False)
    """Of the current setup."""
    _target: Target = field(init=False)
    _facts: dict[str, Any] = field(default_factory=dict, init=False)
    _building: ActiveSetup | None = field(default=None, init=False)
    _laid_out_bytes: int = field(default=0, init=False)
    """Of a raw device: length of the range from its start that earlier runs have written."""

    def __post_init__(self) -> None:
        self._target = self.base

    def prepare(self, context: RunContext) -> RunContext:
        """The run on its target, whose setup is created now unless it exists; `TargetError` if that fails."""
        run, case = context.run, context.case
        if any(each.setup for each in self.plan.cases):
            is_fresh = case.setup is not None and case.setup.fresh == "run"
            if is_fresh or self._key != case.setup_key:
                self.remove_setup()
                self._target, self._facts = self._create(run, case, is_fresh=is_fresh)
                self._key = case.setup_key
            if run.purges:
                self._laid_out_bytes = 0
        spec = self._spec(run)
        prepared = replace(
            context,
            target=self._target,
            setup_facts=self._facts,
            building=self._building,
            claims=self._building.claims if self._building is not None else self._base_claims(),
            identities=self._identities(run),
        )
        return prepared.with_spec(spec)

    def ended(self, run: Run, *, complete: bool) -> None:
        """Keep track of what a run's layout has written to a raw device, which has no holes that would show it."""
        workload = run.spec["workload"]
        if any(stream["mix"]["trim_fraction"] > 0 for stream in streams_of(workload) if "mix" in stream):
            self._laid_out_bytes = 0
        elif complete and target_of(workload)["kind"] == "device" and workload.get("layout") in ("missing", "always"):
            self._laid_out_bytes = max(self._laid_out_bytes, workload["target"]["size_bytes"])

    def remove_setup(self) -> None:
        """Remove the current setup; may be called again."""
        self._key = None
        self._laid_out_bytes = 0
        if self._building is not None:
            self._building.remove()
            self._building = None

    def _identities(self, run: Run) -> dict[str, str]:
        """Identities of the files and devices that a run opens; its files are created now."""
        if described(run.spec["workload"]).server(run.spec["workload"]):
            return {}  # The engine opens a socket; the server's directories are checked when they are created.
        numbers = self._building.numbers if self._building is not None else self.base.numbers_by_name()
        target = target_of(run.spec["workload"])
        paths = [target.get("path", ""), *target.get("beside", ())]
        return (
            {each: numbers[each] for each in paths}
            if paths[0] in numbers
            else (join if (self.plan.joins and self.plan.hosts) else provision)(run.spec)
        )

    def _spec(self, run: Run) -> JsonObject:
        """The run's spec with the block devices and the layout that are known only now."""
        spec = run.spec
        if self._building is not None:
            spec = {**spec, "observe": {**spec["observe"], "block_devices": self._building.block_devices()}}
        workload = spec["workload"]
        if 0 < target_of(workload).get("size_bytes", 0) <= self._laid_out_bytes and workload.get("layout") == "missing":
            spec = {**spec, "workload": {**workload, "layout": "never"}}
        return spec

    def _create(self, run: Run, case: Case, *, is_fresh: bool) -> tuple[Target, dict[str, Any]]:
        """The target that the workload sees, and facts about it for the record."""
        setup = "\n".join(case.setup_key)
        if case.setup is None:
            self.state.begin(setup, is_fresh=is_fresh)
            return self.base, {}
        facts: dict[str, Any] = {
            "requested": case.setup.model_dump(),
            "text": case.setup.text,
            "target": self.base.describe(),
            "created_for": run.run_id,
            "created_at": datetime.now().astimezone().isoformat(timespec="seconds"),
        }
        began = time.monotonic()
        target = self.base.with_setup(case.setup)
        if isinstance(target, SetupTarget):
            building = ActiveSetup(target)
            facts |= building.create()
            self._building = building
        else:
            facts |= self.state.begin(setup, is_fresh=is_fresh)
        return target, {"seconds": round(time.monotonic() - began, 3), **facts}

    def _base_claims(self) -> list[int]:
        """Those of a device that is measured without a setup."""
        return list(self.base.claims.descriptors.values()) if isinstance(self.base, DeviceTarget) else []


Preparation = Callable[[RunContext], RunContext]
"""Returns the run once prepared; `TargetError` if that fails. Listed in `PREPARATIONS` of a feature's
`preparations.py`."""

Enclosure = Callable[[RunContext], AbstractContextManager[RunContext]]
"""Encloses the engine's process, with the run as the engine gets it. Listed in `ENCLOSURES` there."""


class DataState(Protocol):
    """State of data between the runs of a session, which starts without any: of a class in `STATES` there."""

    def prepare(self, run: Run, case: Case) -> tuple[JsonObject, Sequence[RecordWarning]]:
        """The spec of a run, which restores its data if needed; and a warning if it carries the state of another."""

    def ended(self, run: Run) -> None:
        """Note what the run did to its data."""


class ObservedServer(Protocol):
    """Readings of a server during a run."""

    @property
    def name(self) -> str:
        """Name in records."""

    @property
    def title(self) -> str:
        """Name in reports."""

    def describe(self, connection: Connection) -> dict[str, Any]:
        """Version and all effective settings."""

    def statistics(self, connection: Connection) -> dict[str, int]:
        """Counters and states by name, at this moment."""


class ManagedServer(Protocol):
    """A server that iosonde has started: one process or several, in directories and a control group of its own."""

    directories: Directories

    @property
    def group(self) -> ProcessGroup:
        """Control groups of what is measured."""

    def device_paths(self) -> Sequence[Path]:
        """Paths on the devices that take the server's I/O."""

    def event_log(self) -> EventLog | None:
        """A log with further statistics, where it has one."""

    def describe(self) -> dict[str, Any]:
        """For the record."""

    def open_files(self) -> list[dict[str, Any]]:
        """Files that it has open, with their flags."""

    def start(self) -> None:
        """Start it, and wait until it is ready; `ServerError` if that fails."""

    def stop(self) -> bool:
        """Shut it down; returns whether nothing had to be killed."""

    def kill(self) -> None:
        """Kill it; may be called again."""

    def remove(self) -> None:
        """Kill it and remove everything; may be called again."""

    def failure(self, what: str) -> ServerError:
        """An error with the cause that its messages and its control group show."""


class Companion(Protocol):
    """Actions on a server under load, and notes about them."""

    def event(self, event: Event) -> None:
        """Take an event of the engine."""

    def finish(self, *, engine_failed: bool) -> tuple[dict[str, Any], list[RecordWarning]]:
        """Facts about the server and warnings, before it is shut down."""

    def close(self) -> None:
        """Stop what it does; may be called again."""


@dataclass(kw_only=True)
class RunningServer:
    """The server of one run."""

    spec: JsonObject
    """The engine's spec with the socket or address that is in use."""
    server: ObservedServer
    facts: dict[str, Any]
    """For the record: where the database comes from."""
    connect: Callable[[], Connection]
    """Connects a client to the measured database."""
    instance: ManagedServer | None = None
    """None for a server that the user runs."""
    companion: Companion | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of its engines, such as a password; never recorded."""

    def close(self) -> None:
        """Kill the server if it still runs, and remove its data."""
        if self.instance:
            self.instance.remove()
