"""A server during a run, whatever started it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from iosonde.errors import ServerError
from iosonde.execution.engine import EngineRun
from iosonde.plan import JsonObject
from iosonde.servers.ceph.cluster import CephCluster
from iosonde.servers.connection import Connection
from iosonde.servers.instance import Instance
from iosonde.servers.server import ServerDescription


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
