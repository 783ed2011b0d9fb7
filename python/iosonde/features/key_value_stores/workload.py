"""The workload on key-value stores, in the engine, in a server of the run, or in one that the user runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError, TargetError
from iosonde.features.key_value_stores import requirements, spec
from iosonde.features.key_value_stores.parameters import PHASES, REPLICATION, WHOLE_WORKLOAD, KvParameters
from iosonde.plan import target_of
from iosonde.study.servers.foreign import ServerKind, ServerUrl
from iosonde.study.workload import store_name
from iosonde.study.workload.workload import Engine, Hints, Product, Rate, Spec, Workload

if TYPE_CHECKING:
    from iosonde.features.key_value_stores.cassandra.server import RunningCassandra
    from iosonde.storage import Target
    from iosonde.study.servers.server import DatabaseHost


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

    def host(self, options: Mapping[str, Any]) -> RunningCassandra:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra

        return RunningCassandra(replicas=int(options.get(REPLICATION, 1)))

    def creating_host(self, parameters: Mapping[str, Any]) -> RunningCassandra:
        return self.host(parameters["cassandra"])

    def require(self, url: ServerUrl, parameters: Mapping[str, Any]) -> None:
        self.host({}).require_mode(url.address(), parameters["commitlog_sync"])


SERVERS = (_MongoDb(), _Cassandra())


class KvWorkload(Workload[KvParameters]):
    """Key-value stores, in the engine or in a server."""

    name = "kv"
    title = "key-value stores"
    parameters = KvParameters
    shown = ("store", "phase", "jobs", "records", "key_size", "value_size", "memory_limit", "duration")
    places = ("log_target", "read_cache_target", "user_database", "server_url", "options_file", "trace", "library")
    hints = Hints(
        smaller="make the database smaller with `--set records=...`",
        sized_by="by the parameters `records` and `value_size`",
        sized_by_several="for {} databases, by the parameters `records` and `value_size`",
    )
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

    of_run = WHOLE_WORKLOAD

    def fit(
        self, streams: Mapping[str, KvParameters], target: Target, *, room_bytes: int
    ) -> Mapping[str, KvParameters]:
        """The parameters with what the phases and the target decide.

        Streams that run together begin on one database: an empty one if any of them loads.
        """
        backend = (target.backend() or {"kind": ""})["kind"]
        if backend not in ("", "null"):
            raise TargetError(
                "a store needs a file system or a block device, and a simulated device is neither",
                hint="name a directory as the target; `null:` measures what the harness itself costs",
            )
        fitted = {name: requirements.by_phase(each, is_virtual=backend == "null") for name, each in streams.items()}
        if {stream.database for stream in fitted.values()} == {"empty", "loaded"}:
            fitted = {name: stream.model_copy(update={"database": "empty"}) for name, stream in fitted.items()}
        if all(stream.background for stream in fitted.values()):
            raise StudyError(
                "every stream is in the background, so nothing ends the run", hint="leave out `background`"
            )
        return super().fit(fitted, target, room_bytes=room_bytes)

    load, devices = staticmethod(spec.load), staticmethod(spec.devices)
    expected_target, problem = staticmethod(spec.expected_target), staticmethod(spec.problem)
    cost, notes, layout = (
        staticmethod(requirements.cost),
        staticmethod(requirements.notes),
        staticmethod(requirements.layout),
    )
    files, addressed_bytes = staticmethod(requirements.files), staticmethod(requirements.addressed_bytes)

    def server(self, workload: Spec) -> str | None:
        """The store's name where it is in a server: Cassandra on a directory is started, too."""
        store, target = str(workload["store"]["kind"]), target_of(workload)["kind"]
        is_served = target in ("socket", "server") or (store == "cassandra" and target == "directory")
        return store if is_served else None

    def engine(self, workload: Spec) -> Engine:
        """The store's client decides."""
        return self.products[workload["store"]["kind"]].engine

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `LMDB random reads`."""
        phase = str(case.get("phase") or case.get("phase_level") or "")
        known = PHASES.get(phase)
        synced = {"sync": "synced"} if case.get("sync") is True else {}
        return {
            "store": store_name(case["store"]),
            **synced,
            "phase": known.words if known else f"{phase} operations",
        }


KV = KvWorkload()

WORKLOADS = (KV,)
