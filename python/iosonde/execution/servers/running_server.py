"""A server during a run, whatever started it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from iosonde.errors import ServerError
from iosonde.execution.engine import EngineRun
from iosonde.plan import Case, JsonObject, Run
from iosonde.servers.ceph.cluster import CephCluster
from iosonde.servers.connection import Connection
from iosonde.servers.instance import Instance
from iosonde.servers.server import ServerDescription
from iosonde.storage import Target


class ObservedServer(Protocol):
    """What is read from a server during a run."""

    @property
    def name(self) -> str:
        """What records call it."""

    @property
    def title(self) -> str:
        """What reports call it."""

    def describe(self, connection: Connection) -> ServerDescription:
        """Version and all effective settings."""

    def statistics(self, connection: Connection) -> dict[str, int]:
        """Counters and states by name, at this moment."""


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
    instance: Instance | CephCluster | None = None
    """None for a server that the user runs."""
    measure: Callable[[JsonObject], EngineRun] = field(repr=False)
    """Carries out a further spec on the server, such as one that looks up acknowledged commits."""

    def close(self) -> None:
        """Kill the server if it still runs, and remove its data."""
        if self.instance:
            self.instance.remove()


@dataclass(frozen=True)
class ServerStarter:
    """Starts a server for each run, in a directory of the target; of a feature in `STARTERS` of its `servers.py`."""

    kind: str
    """What `Workload.server` calls it."""
    start: Callable[[Run, Case, Target, Callable[[JsonObject], EngineRun], Callable[[], None]], RunningServer]
    """The server, ready for the load, from what carries out a spec, and a check for stops; or `ServerError`."""


def require_loaded(done: EngineRun, instance: Instance, what: str) -> None:
    """`ServerError` unless the engine loaded `what` (`records were loaded`), with the server's cause if it has one.

    A stop may have ended the load early, without a failure.
    """
    instance.check()
    if done.failure is None:
        return
    cause = instance.failure(f"failed while {what}")
    if cause.code in ("no_space", "out_of_memory"):
        raise cause
    failure = done.failure
    raise ServerError(failure.message, where=failure.context, hint=failure.hint, code=failure.code)
