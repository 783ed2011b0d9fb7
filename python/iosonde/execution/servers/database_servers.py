"""Servers of a session: databases loaded once as a template, then restored, started and removed for each run.

A server that the user runs is not started or stopped: iosonde creates a database of its own on it, which the engine
loads again before each run that would find a used one, and drops it at the end of the session.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from iosonde import servers
from iosonde.core.features import contributed
from iosonde.execution.engine import EngineRun, drive
from iosonde.execution.servers.running_server import RunningServer, ServerStarter, ServerTools
from iosonde.execution.servers.start import load_template, removed_on_failure, restored, started
from iosonde.execution.setups import ReadyTarget
from iosonde.execution.stop import Stop
from iosonde.plan import Case, JsonObject, Plan, Run
from iosonde.servers import foreign
from iosonde.servers.directories import Directories
from iosonde.servers.foreign import ServerUrl, kinds, parse
from iosonde.servers.instance import DATABASE, Instance
from iosonde.storage import open_target
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
