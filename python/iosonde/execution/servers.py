"""Servers of a session: databases loaded once as a template, then restored, started and removed for each run.

A server that the user runs is not started or stopped: iosonde creates a database of its own on it, which the engine
loads again before each run that would find a used one, and drops it at the end of the session.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from iosonde import servers
from iosonde.core.features import contributed
from iosonde.errors import ServerError
from iosonde.execution.engine import EngineRun, drive
from iosonde.execution.setups import ReadyTarget
from iosonde.execution.stop import Stop
from iosonde.plan import Case, JsonObject, Plan, Run
from iosonde.protocol.event import Event
from iosonde.results.schema import RecordWarning
from iosonde.servers import foreign
from iosonde.servers.directories import Directories
from iosonde.servers.foreign import ServerUrl, kinds, parse
from iosonde.servers.instance import DATABASE, Instance
from iosonde.servers.server import Connection, EventLog, ServerDescription
from iosonde.storage import open_target
from iosonde.storage.control_groups.process_group import ProcessGroup
from iosonde.workload import described
from iosonde.workload.sql_server import DECIDED_AT_CREATION

LOAD_SETTINGS: Mapping[str, dict[str, Any]] = {
    "postgresql": {"fsync": False, "full_page_writes": False, "shared_buffers": "256MB", "max_wal_size": "8GB",
                   "maintenance_work_mem": "256MB", "synchronous_commit": False},
    "mariadb": {"innodb_flush_log_at_trx_commit": 0, "innodb_buffer_pool_size": "256M", "innodb_doublewrite": 0},
}  # fmt: skip
"""Settings while a template is loaded: durable only at its end, when the template is synced."""


class DatabaseServers:
    """The servers of a session."""

    def __init__(self, plan: Plan, *, stop: Stop, note: Callable[[str], None]) -> None:
        self._plan = plan
        self._tools = ServerTools(drive=partial(drive, on_event=lambda _: None, stop=stop), check=stop.check, note=note)

    def prepare(self, run: Run, case: Case, ready: ReadyTarget) -> RunningServer | None:
        """The server of a run, ready for its load; None for other workloads. `ServerError` if that fails."""
        workload = run.spec["workload"]
        kind, url = described(workload).server(workload), case.parameters.get("server_url")
        if "server" in workload:  # Of transactions, or of an external command.
            return self._foreign(run, parse(str(url))) if url else self._restored(run, case, ready.swap_bytes)
        if kind is None:
            return None
        if url:
            self._create_database_for_store(run, case, parse(str(url)))
            return None
        starter = next(each for each in contributed("servers", "STARTERS", ServerStarter) if each.kind == kind)
        return starter.start(run, case, ready, self._tools)

    def close(self) -> None:
        """Drop the databases that were created on servers of the user."""
        foreign.drop_all(self._plan.created_name)

    def _restored(self, run: Run, case: Case, swap_bytes: int) -> RunningServer:
        instance = self._instance(run.spec, case, limit_bytes=case.parameters.get("memory_limit"))
        instance.swap_bytes = swap_bytes
        with removed_on_failure(instance):
            instance.create_directories()
            facts = restored(instance, lambda: self._load(run, case))
            _create_acknowledged(run.spec)
            facts |= started(instance)
        return RunningServer(
            spec=_with_socket(run.spec, instance),
            server=instance.server,
            facts=facts,
            connect=lambda: instance.connect(DATABASE),
            instance=instance,
            measure=self._tools.drive,
        )

    def _load(self, run: Run, case: Case) -> None:
        """Load the template without a memory limit, and with its log next to the data."""
        instance = self._instance(run.spec, case, limit_bytes=None, loading=True)
        self._tools.note(f"loading the database of `{run.case_id}` into {instance.server.title}, once for this study")
        spec = described(run.spec["workload"]).load_spec(run.spec, case.parameters)
        load_template(
            instance,
            _with_socket(spec, instance) if spec else None,
            self._tools,
            what="the database was loaded",
            result=lambda done: {"result": _oltp(done)},
        )

    def _instance(self, spec: JsonObject, case: Case, *, limit_bytes: int | None, loading: bool = False) -> Instance:
        kind = case.parameters["server"]
        settings: dict[str, Any] = dict(case.parameters[kind])
        if loading:
            settings = {name: value for name, value in settings.items() if name in DECIDED_AT_CREATION} | LOAD_SETTINGS[
                kind
            ]
        log_own = None if loading else _log_own(spec, case)
        run_directory = Path(spec["workload"]["server"]["address"]["path"]).parent.parent
        directories = Directories(
            own=run_directory.parent,
            name=run_directory.name,
            template_name=f"template-{run_directory.name[-8:]}",
            log_own=log_own,
        )
        return Instance.locate(servers.named(kind), directories, settings, limit_bytes, check=self._tools.check)

    def _foreign(self, run: Run, url: ServerUrl) -> RunningServer:
        assert url.kind in ("postgresql", "mariadb"), "others have no SQL"
        server = servers.named(url.kind)
        database = run.spec["workload"]["server"]["database"]
        foreign.create(server, url, database, own=self._plan.created_name)
        return RunningServer(
            spec=run.spec,
            server=server,
            facts={"url": url.text, "database": database},
            connect=lambda: server.connect(url.address(database)),
            measure=self._tools.drive,
        )

    def _create_database_for_store(self, run: Run, case: Case, url: ServerUrl) -> None:
        """The engine empties and loads it for each run, and describes the server."""
        kind = kinds()[url.kind]
        kind.require(url, case.parameters)
        client = kind.client_options(case.parameters)
        database = kind.database_of(run.spec["workload"])
        host = kind.creating_host(case.parameters)
        foreign.create(host, url, database, own=self._plan.created_name, client=client)


def verification_spec(spec: JsonObject) -> JsonObject:
    """The spec that looks up the acknowledged commits of a run, and checks the database where there are conditions."""
    made = copy.deepcopy(spec)
    workload = made["workload"]
    directory = workload["measurement"]["acknowledged"]["directory"]
    workload |= {"verify_acknowledged": directory, "measurement": None}
    if "check" in workload:
        workload["check"] = {"before": True, "after": False}
    return made


def _with_socket(spec: JsonObject, instance: Instance) -> JsonObject:
    """The spec with the socket that the server has: its path differs where that in the target is too long."""
    workload = spec["workload"]
    path = str(instance.server.socket_path(instance.directories.socket))
    server = {**workload["server"], "address": {"kind": "unix", "path": path}}
    return {**spec, "workload": {**workload, "server": server}}


def _create_acknowledged(spec: JsonObject) -> None:
    acknowledged = (spec["workload"].get("measurement") or {}).get("acknowledged")
    if acknowledged:
        from iosonde.servers.directories import create_directory

        path = Path(acknowledged["directory"])
        create_directory(path.parent, path.name)


def _log_own(spec: JsonObject, case: Case) -> Path | None:
    if case.parameters.get("log") != "apart":
        return None
    own = Path(spec["workload"]["server"]["address"]["path"]).parents[2]
    return Path(open_target(str(case.parameters["log_target"])).name, own.name)


def _oltp(done: EngineRun | None) -> dict[str, Any]:
    result: dict[str, Any] = ((done.result or {}).get("oltp") or {}) if done else {}
    return {name: result[name] for name in ("load", "consistency", "constants") if name in result}


@contextmanager
def removed_on_failure(server: ManagedServer) -> Iterator[None]:
    """Remove a server with its data if the block fails."""
    try:
        yield
    except BaseException:
        server.remove()
        raise


def started(server: ManagedServer) -> dict[str, Any]:
    """Start a server, and wait until it is ready; the time for the record."""
    began = time.monotonic()
    server.start()
    return {"start_seconds": round(time.monotonic() - began, 3)}


def restored(instance: Instance, load: Callable[[], None]) -> dict[str, Any]:
    """Restore the database from its template, which is loaded first if there is none; facts for the record."""
    is_missing = not instance.template.is_complete
    if is_missing:
        load()
    copied = instance.restore()
    return {"loaded_for_this_run": is_missing, "restored": copied, "template": instance.template.facts}


def create_database(instance: Instance) -> None:
    """Create the database of a started server."""
    with closing(instance.connect()) as connection:
        instance.database_server.create_database(connection, DATABASE)


def load_template(
    instance: Instance,
    spec: JsonObject | None,
    tools: ServerTools,
    *,
    what: str,
    result: Callable[[EngineRun | None], dict[str, Any]] = lambda done: {},
) -> None:
    """Load a database with a server of its own and the engine, if there is a spec, and keep it as the template.

    `what` is a clause for errors (`records were loaded`), and `result` what the template's facts have of the load.
    """
    began, done = time.monotonic(), None
    try:
        instance.provision()
        instance.start()
        create_database(instance)
        if spec:
            done = tools.drive(spec, environment=instance.environment)
            _require_loaded(done, instance, what)
        with closing(instance.connect(DATABASE)) as connection:
            instance.database_server.finish_load(connection, tools.check)
        instance.stop_after_load()
        instance.keep_as_template({"seconds": round(time.monotonic() - began, 3), **result(done)})
    finally:
        instance.remove()


def _require_loaded(done: EngineRun, instance: Instance, what: str) -> None:
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
