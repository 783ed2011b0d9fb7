"""Around a run on a store: databases and servers of it, and a warning of replays that read keys which the database does
not have, although the trace has not deleted them.
"""

from __future__ import annotations

import copy
import ctypes.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from iosonde.base.check import Check
from iosonde.base.tools import find
from iosonde.execution.context import RunContext, RunningServer
from iosonde.execution.conversation import EngineRun
from iosonde.execution.instruments.instrument import Instrument, Reading
from iosonde.execution.servers import (
    ServerStarter,
    create_database,
    load_template,
    located,
    removed_on_failure,
    restored,
    running,
    started,
)
from iosonde.features.key_value_stores import shim, trace
from iosonde.features.key_value_stores.cassandra.server import HEAP, PORT, Cassandra, loopback_of
from iosonde.features.key_value_stores.memcached import Memcached
from iosonde.features.key_value_stores.notation import WRITES
from iosonde.features.key_value_stores.parameters import CACHES, LOG_STRUCTURED, PERIODIC
from iosonde.plan import Case, JsonObject, Run
from iosonde.results.schema import RecordWarning
from iosonde.study.servers.server import DATABASE, Instance

EARLIER_SESSION = "an earlier session"


class Databases:
    """Records which run last wrote to each database since it was loaded."""

    def __init__(self) -> None:
        self._written_by: dict[str, str] = {}
        """By the path of the database; empty where nothing wrote to it."""

    def prepare(self, run: Run, case: Case) -> tuple[JsonObject, list[RecordWarning]]:
        """The spec of a run, which restores the database if needed; a warning if it carries the state of another."""
        workload = run.spec["workload"]
        path = _path(workload)
        if path is None:
            return run.spec, []
        writer = self._written_by.setdefault(path, EARLIER_SESSION if Path(path).exists() else "")
        database = workload["database"]
        if not writer or database["kind"] != "loaded" or database["reload"]:
            return run.spec, []
        if case.parameters.get("carry_over"):
            warning = RecordWarning(
                code="carried_over_state",
                message=f"the database was in the state that `{writer}` left, with compactions possibly pending",
                hint="load it before each run with `--set carry_over=false`",
            )
            return run.spec, [warning]
        return {**run.spec, "workload": {**workload, "database": {**database, "restore": True}}}, []

    def ended(self, run: Run) -> None:
        """Note whether the run has loaded its database, and whether it wrote to it."""
        workload = run.spec["workload"]
        path = _path(workload)
        if path is None:
            return
        database = workload["database"]
        is_load = database["kind"] == "empty"
        if is_load or database.get("reload") or database.get("restore"):
            self._written_by[path] = ""
        if not is_load and any(
            each["operation"] in WRITES for stream in workload["streams"] for each in stream["operations"]
        ):
            self._written_by[path] = run.run_id


def _path(workload: dict[str, Any]) -> str | None:
    """The directory of a log-structured store's database; None for all other workloads."""
    if (workload.get("store") or {}).get("kind") not in LOG_STRUCTURED:
        return None
    path: str | None = workload["target"].get("path")
    return path


@contextmanager
def with_shim(context: RunContext) -> Iterator[RunContext]:
    """The shim that an engine with such a store loads, compiled if necessary; none where it cannot be compiled.

    Without it the engine reads RocksDB through the C interface, which the record names
    (`result.store.build.interface`), and refuses a read cache; it refuses WiredTiger.
    """
    store = context.workload.get("store")
    described = shim.SHIMS.get(store["kind"]) if store and context.workload["kind"] == "kv" else None
    with ExitStack() as closing:
        if store and described:
            with suppress(shim.UnavailableError):
                opened = closing.enter_context(shim.opened(described, store.get("library")))
                context = replace(context, shims={described.store: opened})
        yield context


ENCLOSURES = (with_shim,)
STATES = (Databases,)


def _start_memcached(context: RunContext) -> RunningServer:
    """The server of a run on `memcached`, ready for its load; `ServerError` if that fails."""
    server, target = Memcached(), context.workload["target"]
    settings = server.settings_of(context.case.parameters)
    instance = located(context, server, settings, Path(target["path"]).parent.parent, None, loading=False)
    with removed_on_failure(instance):
        instance.provision()
        facts = started(instance)
        server.allocate(instance.place, instance.settings)
    # The path of the socket differs where that in the target is too long.
    path = str(server.socket_path(instance.directories.socket))
    spec = {**context.run.spec, "workload": {**context.workload, "target": {**target, "path": path}}}
    return running(instance, spec, facts)


def _start_cassandra(context: RunContext) -> RunningServer:
    """The node of a run, with the records that the run begins with; `ServerError` if that fails."""
    is_loaded = context.workload["database"]["kind"] == "loaded"
    instance = _node(context)
    facts: dict[str, Any] = {}
    with removed_on_failure(instance):
        if is_loaded:
            instance.create_directories()
            facts = restored(instance, lambda: _load(context))
        else:
            instance.provision()
        _own_log(instance)
        facts |= started(instance)
        if not is_loaded:
            create_database(instance)
    return running(instance, _with_address(context.run.spec, instance, is_loaded=is_loaded), facts)


STARTERS = (ServerStarter("memcached", _start_memcached), ServerStarter("cassandra", _start_cassandra))


def _load(context: RunContext) -> None:
    """Load the template, with a commit log next to the data."""
    instance = _node(context, loading=True)
    context.session.note(f"loading the records of `{context.run.case_id}` into Cassandra, once for this study")
    spec = _with_address(load_spec(context.run.spec), instance, is_loaded=False)
    load_template(instance, spec, context.session.stop, what="records were loaded")


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


def _node(context: RunContext, *, loading: bool = False) -> Instance:
    named = context.workload["target"]
    settings = Cassandra.settings_of(context.case.parameters)
    if loading:
        # Data files do not depend on the mode.
        settings = {HEAP: settings[HEAP], "commitlog_sync": PERIODIC}
    log_own = Path(named["log_path"]).parent if named["log_path"] else None
    return located(context, Cassandra(), settings, Path(named["path"]), log_own, loading=loading)


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


def _libraries() -> list[Check]:
    """The libraries that the engine loads by default, and what WiredTiger's shim is compiled with."""
    rocksdb, wiredtiger = ctypes.util.find_library("rocksdb"), find("wiredtiger")
    needed = {"wiredtiger-header": "libwiredtiger-dev", "cc": "gcc"}
    packages = [package for name, package in needed.items() if not find(name)]
    found = f"{wiredtiger or 'libwiredtiger.so not found'}; `wiredtiger` needs library, header and compiler"
    advice = f"install Debian's {' and '.join(f'`{each}`' for each in packages or ['libwiredtiger-dev'])}"
    return [
        Check(name="RocksDB", state="ok", found=rocksdb)
        if rocksdb
        else Check(
            name="RocksDB",
            state="note",
            found="librocksdb.so not found; needed for the store `rocksdb`",
            advice="install Debian's `librocksdb7.8`, or set `library` in the study",
        ),
        Check(name="WiredTiger", state="ok", found=wiredtiger)
        if wiredtiger and not packages
        else Check(name="WiredTiger", state="note", found=found, advice=advice),
    ]


CHECKS = (_libraries,)


EXPLAINED = 0.02
"""Share of the gets that may miss without a warning."""


class TraceMisses(Instrument):
    """Compares the misses of a replay with those that its trace explains. A cache misses by design."""

    def stop(self, done: EngineRun) -> Reading:
        """Return a warning where misses of keys that were never there make the rate that of an empty database."""
        parameters = self.context.parameters
        has_trace = parameters.get("trace") and parameters.get("store")  # Other loads have traces, too.
        if not has_trace or parameters["store"] in CACHES or not done.result:
            return Reading()
        checks = (done.result.get("store") or {}).get("checks") or []
        missing = sum(check["missing"] for check in checks)
        gets = missing + sum(check["values"] for check in checks)
        # At most: the run may have ended before the trace.
        unexplained = missing - trace.converted(parameters["trace"]).deleted_gets
        if unexplained <= EXPLAINED * gets:
            return Reading()
        warning = RecordWarning(
            code="unexplained_misses",
            message=f"{unexplained:,} of {gets:,} gets found no record, although the trace has not deleted it",
            hint="give each `get` a `value_size`: its records are loaded before the replay",
        )
        return Reading(warnings=[warning])


INSTRUMENTS = (TraceMisses,)
