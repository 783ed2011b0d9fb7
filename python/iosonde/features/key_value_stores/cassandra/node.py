"""The Cassandra node of a run: loaded once as a template, then restored and started for each run, and removed after it.

The load ends with an orderly shutdown, which flushes memtables, so every run begins with the same data files, an empty
page cache and a virtual machine that has just started.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

from iosonde.execution.servers import (
    RunningServer,
    ServerTools,
    create_database,
    load_template,
    removed_on_failure,
    restored,
    started,
)
from iosonde.execution.setups import ReadyTarget
from iosonde.features.key_value_stores.cassandra.server import HEAP, PORT, Cassandra, loopback_of
from iosonde.features.key_value_stores.cassandra.settings import server_settings
from iosonde.plan import Case, JsonObject, Run
from iosonde.servers.directories import Directories
from iosonde.servers.instance import DATABASE, Instance

LOAD_SETTINGS = {"commitlog_sync": "periodic"}
"""While the template is loaded; its data files do not depend on it."""


def start(run: Run, case: Case, ready: ReadyTarget, tools: ServerTools) -> RunningServer:
    """The node of a run, with the records that the run begins with; `ServerError` if that fails."""
    is_loaded = run.spec["workload"]["database"]["kind"] == "loaded"
    instance = _instance(run, case, ready.swap_bytes)
    instance.check = tools.check
    facts: dict[str, Any] = {}
    with removed_on_failure(instance):
        if is_loaded:
            instance.create_directories()
            facts = restored(instance, lambda: _load(run, case, tools))
        else:
            instance.provision()
        _own_log(instance)
        facts |= started(instance)
        if not is_loaded:
            create_database(instance)
    return RunningServer(
        spec=_with_address(run.spec, instance, is_loaded=is_loaded),
        server=instance.server,
        facts=facts,
        connect=instance.connect,
        instance=instance,
        environment=instance.environment,
        measure=partial(tools.drive, environment=instance.environment),
    )


def _load(run: Run, case: Case, tools: ServerTools) -> None:
    """Load the template, with a commit log next to the data."""
    instance = _instance(run, case, 0, loading=True)
    instance.check = tools.check
    tools.note(f"loading the records of `{run.case_id}` into Cassandra, once for this study")
    spec = _with_address(load_spec(run.spec), instance, is_loaded=False)
    load_template(instance, spec, tools, what="records were loaded")


def load_spec(spec: JsonObject) -> JsonObject:
    """A spec that loads the records, and then reads one."""
    made = copy.deepcopy(spec)
    workload = made["workload"]
    stream = workload["streams"][0] | {
        "name": "load",
        "jobs": 1,
        "operations": [{"operation": "read", "weight": 1.0}],
        "choice": {"kind": "sequential"},
        "batch": 1,
        "sync": False,
        "arrival": {"kind": "closed"},
        "rate_limit": None,
        "background": False,
        "limit_bytes": None,
        "limit_operations": 1,
        "cpus": [],
    }
    workload |= {"streams": [stream], "ramp": {"duration_ns": 0, "bytes": None}, "duration_ns": None}
    workload |= {"settle_at_end": False}
    return made


def _instance(run: Run, case: Case, swap_bytes: int, *, loading: bool = False) -> Instance:
    named = run.spec["workload"]["target"]
    directory = Path(named["path"])
    log = Path(named["log_path"]).parent if named["log_path"] and not loading else None
    settings = server_settings(case.parameters)
    if loading:
        settings = {HEAP: settings[HEAP], **LOAD_SETTINGS}
    return Instance.locate(
        Cassandra(),
        Directories(
            own=directory.parent,
            name=directory.name,
            template_name=f"template-{directory.name[-8:]}",
            log_own=log,
        ),
        settings,
        None if loading else case.parameters.get("memory_limit"),
        swap_bytes=swap_bytes,
    )


def _own_log(instance: Instance) -> None:
    """The directory of a commit log on another target, where the template has not brought one."""
    log = instance.place.log
    if log and not log.exists():
        log.mkdir(mode=0o700)
        instance.account.own(log)


def _with_address(spec: JsonObject, instance: Instance, *, is_loaded: bool) -> JsonObject:
    """The spec with the node's address instead of its directory."""
    host = loopback_of(instance.place.data)
    server = {"kind": "server", "host": host, "port": PORT, "database": DATABASE, "user": Cassandra.user}
    if is_loaded:
        server["is_loaded"] = True
    return {**spec, "workload": {**spec["workload"], "target": server}}
