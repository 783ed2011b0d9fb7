"""The workload on key-value stores, in the engine, in a server of the run, or in one that the user runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.features.key_value_stores import admission, fitting, requirements, spec
from iosonde.features.key_value_stores.fields import SHOWN
from iosonde.features.key_value_stores.rules import KvParameters
from iosonde.plan import target_of
from iosonde.servers.foreign import ServerKind, ServerUrl
from iosonde.workload import store_name
from iosonde.workload.workload import Engine, Hints, Product, Rate, Spec, Workload

if TYPE_CHECKING:
    from iosonde.servers.server import DatabaseHost


class _Store(ServerKind):
    def database_of(self, workload: Mapping[str, Any]) -> str:
        return str(workload["target"]["database"])

    def is_used(self, url: ServerUrl, workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
        expected = spec.store_target(url, self.database_of(workload))
        return (workload["store"]["kind"], workload["target"]) == (url.kind, expected)


class _MongoDb(_Store):
    name = "mongodb"
    schemes = ("mongodb",)
    port = 27017
    passwords = "`MONGODB_PASSWORD`"

    def client_options(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(value) for name, value in parameters["mongodb"].items() if name == "auth_source"}

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.mongodb import DEFAULT_AUTH_SOURCE, MongoDb

        return MongoDb(auth_source=options.get("auth_source", DEFAULT_AUTH_SOURCE))


class _Cassandra(_Store):
    name = "cassandra"
    schemes = ("cql", "cassandra", "scylla")
    port = 9042
    noun = "keyspace"
    passwords = "`CASSANDRA_PASSWORD`"

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra

        return RunningCassandra()

    def creating_host(self, parameters: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra
        from iosonde.features.key_value_stores.cassandra.settings import replicas_of

        return RunningCassandra(replicas=replicas_of(parameters))

    def require(self, url: ServerUrl, parameters: Mapping[str, Any]) -> None:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra

        RunningCassandra().require_mode(url.address(), parameters["commitlog_sync"])


SERVERS = (_MongoDb(), _Cassandra())


_PHASES = {
    "load": "loads",
    "fillseq": "sequential fills",
    "fillrandom": "random fills",
    "filluniquerandom": "random fills without repetition",
    "overwrite": "overwrites",
    "readrandom": "random reads",
    "readseq": "sequential reads",
    "readreverse": "reverse reads",
    "seekrandom": "random scans",
    "deleteseq": "sequential deletes",
    "deleterandom": "random deletes",
    "readwhilewriting": "reads while writing",
    **{f"ycsb_{letter}": f"YCSB {letter.upper()} operations" for letter in "abcdef"},
}


class KvWorkload(Workload[KvParameters]):
    """Key-value stores, in the engine or in a server."""

    name = "kv"
    title = "key-value stores"
    parameters = KvParameters
    shown = SHOWN
    places = ("log_target", "read_cache_target", "user_database", "server_url", "options_file", "trace", "library")
    hints = Hints(smaller="make the database smaller with `--set records=...`")
    io = "store"
    has_statistics = True
    rate = Rate("ops/s", is_ops_per_sec=True)
    operations = ("read", "write", "delete", "scan", "read_modify_write")
    subject = "store"
    stated = ("store", "phase")
    worded = ("store", "sync", "phase")
    products: Mapping[str, Product] = {
        "lmdb": Product(title="LMDB"),
        "rocksdb": Product(title="RocksDB", is_installed=True),
        "wiredtiger": Product(title="WiredTiger", is_installed=True),
        "null": Product(title="no store"),
        "memcached": Product(title="memcached", is_installed=True),
        "cassandra": Product(title="Cassandra", is_installed=True, engine="iosonde-engine-clients"),
        "mongodb": Product(title="MongoDB", is_installed=True, engine="iosonde-engine-clients"),
    }

    fit = staticmethod(fitting.fit)
    resolve = staticmethod(spec.resolve)
    cost = staticmethod(fitting.cost)
    files, room_by = staticmethod(requirements.files), staticmethod(requirements.room_by)
    addressed_bytes = staticmethod(requirements.addressed_bytes)
    expected_target, problem = staticmethod(admission.expected_target), staticmethod(admission.problem)
    layout, notes = staticmethod(requirements.layout), staticmethod(requirements.notes)

    def server(self, workload: Spec) -> str | None:
        """The store's name where it is in a server: Cassandra on a directory is started, too."""
        store, target = str(workload["store"]["kind"]), target_of(workload)["kind"]
        is_served = target in ("socket", "server") or (store == "cassandra" and target == "directory")
        return store if is_served else None

    def engine(self, workload: Spec) -> Engine:
        """The store's client decides."""
        return self.products[workload["store"]["kind"]].engine

    def rules(self, workload: Spec) -> str:
        """Of a store in a server the engine does not see the I/O."""
        return "server" if self.server(workload) else "evidence"

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `LMDB random reads`."""
        phase = str(case.get("phase") or case.get("phase_level") or "")
        synced = {"sync": "synced"} if case.get("sync") is True else {}
        return {
            "store": store_name(case["store"]),
            **synced,
            "phase": _PHASES.get(phase, f"{phase} operations"),
        }


KV = KvWorkload()

WORKLOADS = (KV,)
