"""Servers of a session: databases loaded once as a template, then restored, started and removed for each run.

A server that the user runs is not started or stopped: iosonde creates a database of its own on it, which the engine
loads again before each run that would find a used one, and drops it at the end of the session.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.base.features import contributed
from iosonde.errors import ServerError
from iosonde.execution.context import ManagedServer, RunContext, RunningServer
from iosonde.execution.conversation import EngineRun
from iosonde.execution.engine import drive
from iosonde.execution.stop import Stop
from iosonde.plan import JsonObject
from iosonde.storage import open_target
from iosonde.study import servers
from iosonde.study.servers import foreign
from iosonde.study.servers.directories import Directories
from iosonde.study.servers.foreign import ServerUrl, kinds, parse
from iosonde.study.servers.server import DATABASE, DatabaseServer, Instance, Server, Settings
from iosonde.study.workload import described
from iosonde.study.workload.servers import DECIDED_AT_CREATION

LOAD_SETTINGS: Mapping[str, dict[str, Any]] = {
    "postgresql": {"fsync": False, "full_page_writes": False, "shared_buffers": "256MB", "max_wal_size": "8GB",
                   "maintenance_work_mem": "256MB", "synchronous_commit": False},
    "mariadb": {"innodb_flush_log_at_trx_commit": 0, "innodb_buffer_pool_size": "256M", "innodb_doublewrite": 0},
}  # fmt: skip
"""Settings while a template is loaded: durable only at its end, when the template is synced."""


def prepare(context: RunContext) -> RunningServer | None:
    """The server of a run, ready for its load; None for other workloads. `ServerError` if that fails."""
    workload = context.workload
    kind, url = described(workload).server(workload), context.case.parameters.get("server_url")
    is_database = "server" in workload  # Of transactions, or of an external command.
    if not is_database and kind is None:
        return None
    if url:
        return _on_foreign(context, parse(str(url)))
    if is_database:
        return _restored(context)
    starter = next(each for each in contributed("run", "STARTERS", ServerStarter) if each.kind == kind)
    return starter.start(context)


def _restored(context: RunContext) -> RunningServer:
    instance = _instance(context)
    with removed_on_failure(instance):
        instance.create_directories()
        facts = restored(instance, lambda: _load(context))
        _create_acknowledged(context.run.spec)
        facts |= started(instance)
    return running(instance, _with_socket(context.run.spec, instance), facts, DATABASE)


def _load(context: RunContext) -> None:
    """Load the template without a memory limit, and with its log next to the data."""
    instance = _instance(context, loading=True)
    context.session.note(
        f"loading the database of `{context.run.case_id}` into {instance.server.title}, once for this study"
    )
    spec = described(context.workload).load_spec(context.run.spec, context.case.parameters)
    load_template(
        instance,
        _with_socket(spec, instance) if spec else None,
        context.session.stop,
        what="the database was loaded",
        result=lambda done: {"result": _oltp(done)},
    )


def _instance(context: RunContext, *, loading: bool = False) -> Instance:
    spec, parameters = context.run.spec, context.case.parameters
    kind = parameters["server"]
    settings: dict[str, Any] = dict(parameters[kind])
    if loading:
        decided = {name: value for name, value in settings.items() if name in DECIDED_AT_CREATION}
        settings = decided | LOAD_SETTINGS[kind]
    run_directory = Path(spec["workload"]["server"]["address"]["path"]).parent.parent
    log_own = None
    if parameters.get("log") == "apart":
        log_own = Path(open_target(str(parameters["log_target"])).name, run_directory.parent.name)
    return located(context, servers.named(kind), settings, run_directory, log_own, loading=loading)


def _on_foreign(context: RunContext, url: ServerUrl) -> RunningServer | None:
    """A database on a server of the user; that of a store is observed by the engine, which loads it for each run."""
    kind, parameters = kinds()[url.kind], context.case.parameters
    kind.require(url, parameters)
    host, client = kind.creating_host(parameters), kind.client_options(parameters)
    database = kind.database_of(context.workload)
    foreign.create(host, url, database, own=context.session.plan.created_name, client=client)
    if "server" not in context.workload:
        return None
    server = servers.named(url.kind)
    return RunningServer(
        spec=context.run.spec,
        server=server,
        facts={"url": url.text, "database": database},
        connect=lambda: server.connect(url.address(database)),
    )


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
        from iosonde.study.servers.directories import create_directory

        path = Path(acknowledged["directory"])
        create_directory(path.parent, path.name)


def _oltp(done: EngineRun | None) -> dict[str, Any]:
    result: dict[str, Any] = ((done.result or {}).get("oltp") or {}) if done else {}
    return {name: result[name] for name in ("load", "consistency", "constants") if name in result}


def located(
    context: RunContext, server: Server, settings: Settings, directory: Path, log_own: Path | None, *, loading: bool
) -> Instance:
    """A server in a directory of the run; nothing is created.

    While it loads its template its memory is not limited, and its log is next to the data instead of in `log_own`.
    """
    has_template = isinstance(server, DatabaseServer)
    directories = Directories(
        own=directory.parent,
        name=directory.name,
        template_name=f"template-{directory.name[-8:]}" if has_template else "",
        log_own=None if loading else log_own,
    )
    limit_bytes, swap_bytes = context.parameters.get("memory_limit"), context.swap_bytes
    if loading:
        limit_bytes, swap_bytes = None, 0
    check = context.session.stop.check
    return Instance(server, directories, settings, limit_bytes, swap_bytes=swap_bytes, check=check)


def running(instance: Instance, spec: JsonObject, facts: dict[str, Any], database: str = "") -> RunningServer:
    """A server that iosonde has started, with the spec that has its address, and the database that clients use."""
    return RunningServer(
        spec=spec,
        server=instance.server,
        facts=facts,
        connect=lambda: instance.connect(database),
        instance=instance,
        environment=instance.environment,
    )


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
    stop: Stop,
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
            done = drive(spec, stop=stop, environment=instance.environment)
            _require_loaded(done, instance, what)
        with closing(instance.connect(DATABASE)) as connection:
            instance.database_server.finish_load(connection, stop.check)
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


@dataclass(frozen=True)
class ServerStarter:
    """Starts a server for each run, in a directory of the target; of a feature in `STARTERS` of its `servers.py`."""

    kind: str
    """Its name in `Workload.server`."""
    start: Callable[[RunContext], RunningServer]
    """The server, ready for the load; `ServerError` if that fails."""
