"""A server during a run, whatever started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from iosonde.errors import ServerError
from iosonde.execution.engine import EngineRun
from iosonde.execution.setups import ReadyTarget
from iosonde.plan import Case, JsonObject, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import RecordWarning
from iosonde.servers.directories import Directories
from iosonde.servers.server import Connection, EventLog, ServerDescription
from iosonde.storage.control_groups.process_group import ProcessGroup


class ObservedServer(Protocol):
    """Readings of a server during a run."""

    @property
    def name(self) -> str:
        """Name in records."""

    @property
    def title(self) -> str:
        """Name in reports."""

    def describe(self, connection: Connection) -> ServerDescription:
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
    measure: Callable[[JsonObject], EngineRun] = field(repr=False)
    """Carries out a further spec on the server, such as one that looks up acknowledged commits."""

    def close(self) -> None:
        """Kill the server if it still runs, and remove its data."""
        if self.instance:
            self.instance.remove()


class Drive(Protocol):
    """Carries out a spec on a server; it leaves no record."""

    def __call__(self, spec: JsonObject, *, environment: Mapping[str, str] = ...) -> EngineRun: ...


@dataclass(frozen=True, kw_only=True)
class ServerTools:
    """Parameters of a session to start a server."""

    drive: Drive
    check: Callable[[], None]
    """Called while it waits; raises `ServerError` to stop waiting."""
    note: Callable[[str], None]
    """Shows a message to the user."""


@dataclass(frozen=True)
class ServerStarter:
    """Starts a server for each run, in a directory of the target; of a feature in `STARTERS` of its `servers.py`."""

    kind: str
    """Its name in `Workload.server`."""
    start: Callable[[Run, Case, ReadyTarget, ServerTools], RunningServer]
    """The server, ready for the load; `ServerError` if that fails."""
