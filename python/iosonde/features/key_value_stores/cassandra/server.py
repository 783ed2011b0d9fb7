"""Apache Cassandra: one node without replicas, in a Java virtual machine of its own.

CQL has no Unix socket, so the node listens on TCP: on an address of 127.0.0.0/8 that is derived from its directory, so
that several nodes do not compete for ports, and that other machines cannot reach. Users of this machine can.
"""

from __future__ import annotations

import hashlib
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from iosonde.errors import ServerError
from iosonde.features.key_value_stores.cassandra import cql, files, gc_log, java
from iosonde.servers import programs, template
from iosonde.servers.connection import Address, Connection
from iosonde.servers.server import Cause, DatabaseServer, Installation, Place, ServerDescription, Settings, no_check
from iosonde.units import format_bytes

HEAP = "heap_size"
"""Not Cassandra's own: the size of the Java heap in bytes."""

PORT, STORAGE_PORT = 19052, 17000
"""Below the ephemeral ports, and not those that Cassandra or ScyllaDB (19042, 19142 for shards) use by default."""

RESERVED = (
    *(
        "cluster_name",
        ".*_director(y|ies)",
        "listen_.*",
        "rpc_.*",
        "broadcast_.*",
        "native_transport_port.*",
        ".*seed.*",
    ),
    *("storage_port", "ssl_storage_port", "start_native_transport", "auto_bootstrap", ".*encryption_options"),
    *("authenticator", "authorizer", "role_manager", "network_authorizer", "internode_authenticator", "jmx_.*"),
    *("partitioner", "triggers_dir", "full_query_logging_options", "audit_logging_options", "startup_checks"),
    *(
        ".*_path",
        ".*_dir",
        ".*_file",
        "dump_heap_.*",
        "endpoint_snitch",
        ".*_provider",
        ".*authoriz.*",
        ".*authentic.*",
    ),
    *("allow_extra_insecure_udfs", "user_defined_functions_.*", ".*class_name", "failure_detector", "otc_.*"),
    *("paxos_contention_.*", "default_secondary_index"),
)
"""Settings that decide directories, addresses, users and record placement of the node, or what it loads."""

SYNC_MODES: dict[str, dict[str, str]] = {
    "periodic": {"commitlog_sync_period": "10000ms"},
    "batch": {},
    "group": {"commitlog_sync_group_window": "10ms"},
}
"""Values of `commitlog_sync`, each with the setting that it requires and Cassandra's usual value of it."""

_RATE = re.compile(r"[0-9]+(B|KiB|MiB)/s")
"""A value with a slash that is not a path."""

_STATISTICS = {
    "SELECT name, completed_tasks, pending_tasks, blocked_tasks_all_time FROM system_views.thread_pools": (
        "completed", "pending", "blocked",
    ),
    "SELECT name, hit_count, request_count, size_bytes FROM system_views.caches": ("hits", "requests", "bytes"),
}  # fmt: skip
_POOLS = ("CompactionExecutor", "MemtableFlushWriter", "MutationStage", "ReadStage", "Native-Transport-Requests")
"""Thread pools whose counts are recorded: requests, writes, reads, and background work."""

_TEMPORARY = "tmp"
"""Directory in the data directory for libraries that the virtual machine unpacks."""

_TASKS = "SELECT keyspace_name FROM system_views.sstable_tasks"
_PROGRESS = "SELECT keyspace_name, table_name, kind, progress, total FROM system_views.sstable_tasks"
STALLED_S = 300.0
"""Time without progress of any compaction after which a load has failed."""
POLL_S = 0.2

OWNER = "created_by_iosonde"
"""Table of a keyspace that shows who created it: the engine and `iosonde cleanup` change no other keyspace."""
_SETTINGS = "SELECT name, value FROM system_views.settings"


class Cassandra(DatabaseServer):
    """Cassandra 4.1 and newer, started by iosonde."""

    name: ClassVar[str] = "cassandra"
    title: ClassVar[str] = "Cassandra"
    accounts: ClassVar[Sequence[str]] = ("cassandra",)
    user: ClassVar[str] = ""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_statuses: ClassVar[Sequence[int]] = (0, 128 + signal.SIGTERM)
    """A virtual machine that ends by a signal runs its shutdown hooks, and then exits with 128 and its number."""
    ready_s: ClassVar[float] = 300.0
    data_setting: ClassVar[str] = HEAP

    def locate(self) -> Installation:
        """Jar files of Cassandra, and a virtual machine of a version that it runs on."""
        home = files.locate()
        machine = java.find(files.JAVA_VERSIONS)
        return Installation(
            version=home.version,
            build=f"Cassandra {home.version} on {machine.build}",
            programs={"java": machine.path, "jars": str(home.jars)},
        )

    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """Names and types of values are those of the fields of its class `Config`."""
        own = {name: value for name, value in settings.items() if name != HEAP}
        without_rates = {name: None if _RATE.fullmatch(str(value)) else value for name, value in own.items()}
        programs.refuse_reserved(without_rates, RESERVED, self.title)
        files.check(Path(installation.programs["jars"]), own)

    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """Empty directories; the node creates its system tables at its first start."""
        for directory in (place.data, place.data / _TEMPORARY):
            directory.mkdir(mode=0o700)
            place.account.own(directory)

    def configure(self, installation: Installation, place: Place, settings: Settings) -> None:
        """Write `cassandra.yaml` and the configuration of its log next to the data directory, where its user cannot."""
        directory, logs = _configuration(place), _gc_path(place).parent
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
        if not logs.exists():
            logs.mkdir(mode=0o700)
            place.account.own(logs)
        texts = {
            "cassandra.yaml": files.yaml(_settings(place, settings)),
            "logback.xml": files.LOGBACK,
        }
        for name, text in texts.items():
            (directory / name).write_text(text, encoding="utf-8")
            (directory / name).chmod(0o644)

    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        """The virtual machine with Cassandra's options for it; everything else is in `cassandra.yaml`."""
        heap = _heap_bytes(settings)
        directory, own = _configuration(place), place.data / _TEMPORARY
        properties = {
            "cassandra.config": (directory / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": str(place.data),
            "cassandra.logdir": str(place.data),
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "100",
            "logback.configurationFile": str(directory / "logback.xml"),
            "java.io.tmpdir": str(own),
            "jna.tmpdir": str(own),
            "java.net.preferIPv4Stack": "true",
        }
        return [
            *(installation.programs["java"], f"-Xms{heap}", f"-Xmx{heap}"),
            *files.JVM_OPTIONS,
            gc_log.OPTIONS.format(path=_gc_path(place)),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-cp", f"{directory}:{installation.programs['jars']}/*"),
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def event_log(self, place: Place) -> gc_log.GcLog:
        return gc_log.GcLog(_gc_path(place))

    def address(self, place: Place, database: str = "") -> Address:
        """Loopback only."""
        return Address(host=loopback_of(place.data), port=PORT, user=self.user, database=database)

    def socket_path(self, directory: Path) -> Path:
        """None: CQL is spoken over TCP."""
        raise AssertionError("Cassandra has no Unix socket")

    def connect(self, address: Address) -> Connection:
        return cql.connect(address)

    def create_database(self, connection: Connection, name: str) -> None:
        """A keyspace with one replica."""
        create_keyspace(connection, name, replicas=1)

    def drop_database(self, connection: Connection, name: str) -> None:
        """Also its files, unless the server keeps snapshots of what is dropped (`auto_snapshot`)."""
        connection.rows(f"DROP KEYSPACE IF EXISTS {name}")

    def move_log(self, place: Place) -> None:
        """The commit log; `cassandra.yaml` names its directory."""
        assert place.log is not None
        template.move(place.data / "commitlog", place.log, place.account)

    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Wait until compactions are done; the shutdown that follows flushes memtables.

        `ServerError` once none has progressed for `STALLED_S`: a large load may take long, but has to make progress.
        """
        progress, since = None, time.monotonic()
        while tasks := sorted(connection.rows(_PROGRESS)):
            if tasks != progress:
                progress, since = tasks, time.monotonic()
            if time.monotonic() - since > STALLED_S:
                keyspace, table, _, done, total = tasks[0]
                raise ServerError(
                    f"{len(tasks)} compactions of Cassandra made no progress for {STALLED_S:.0f} s after the load",
                    where=f"the first one is of `{keyspace}.{table}`: {done:,} of {total:,} bytes",
                    hint="see the server's messages; free space on the target, or set another `compaction`",
                    code="timeout",
                )
            check()
            time.sleep(POLL_S)

    def describe(self, connection: Connection) -> ServerDescription:
        """From its virtual tables."""
        [(version,)] = connection.rows("SELECT release_version FROM system.local")
        settings = {str(name): str(value) for name, value in connection.rows(_SETTINGS)}
        return ServerDescription(version=f"Cassandra {version}", settings=settings, changed=[])

    def statistics(self, connection: Connection) -> dict[str, int]:
        """From its virtual tables; what a server does not have is left out."""
        found: dict[str, int] = {}
        for statement, columns in _STATISTICS.items():
            with suppress(cql.CqlError):
                for name, *values in connection.rows(statement):
                    if "thread_pools" in statement and name not in _POOLS:
                        continue
                    known = zip(columns, values, strict=True)
                    found |= {f"{_plain(name)}_{column}": int(value) for column, value in known if value is not None}
        with suppress(cql.CqlError):
            found["compactions_running"] = len(connection.rows(_TASKS))
        return found

    def cause(self, messages: str, settings: Settings) -> Cause | None:
        """An exhausted heap, or a setting that the node refused."""
        if re.search(r"OutOfMemoryError|Too small (initial|maximum) heap|heap too small", messages):
            heap = format_bytes(_heap_bytes(settings))
            return Cause(
                code="out_of_memory",
                message=f"the Java heap of {heap} is too small: the JVM exited with `OutOfMemoryError`",
                hint=f"raise `{HEAP}`, or use smaller values and fewer jobs",
            )
        refused = re.search(r"ConfigurationException: (.*)", messages) or re.search(r"Invalid yaml[^\n]*", messages)
        if refused:
            return Cause(code="server", message=refused[0][:300], hint="correct the settings in `cassandra`")
        return None


class RunningCassandra:
    """Cassandra or ScyllaDB that the user runs: keyspaces are created and dropped here; the engine does the rest."""

    def __init__(self, *, replicas: int = 1) -> None:
        self._replicas = replicas

    def connect(self, address: Address) -> Connection:
        """Connect to exactly this node."""
        return cql.connect(address)

    def create_database(self, connection: Connection, name: str) -> None:
        """A keyspace with the table that shows who created it; `ServerError` (`foreign_data`) if it exists."""
        create_keyspace(connection, name, replicas=self._replicas)

    def drop_database(self, connection: Connection, name: str) -> None:
        """Drop it if iosonde created it, or if it is empty because its creation was interrupted."""
        tables = _tables(connection, name)
        if tables and OWNER not in tables:
            raise ServerError(
                f"the keyspace `{name}` was not dropped: it has no table `{OWNER}`, so iosonde did not create it",
                hint=f"to drop it: `DROP KEYSPACE {name}` in `cqlsh`",
                code="foreign_data",
            )
        connection.rows(f"DROP KEYSPACE IF EXISTS {name}")

    def require_mode(self, address: Address, mode: str | None) -> None:
        """`ServerError` (`unsupported`) unless the server acknowledges writes in this mode; None: any."""
        if mode is None:
            return
        connection = self.connect(address)
        try:
            found = _setting(connection, "commitlog_sync") or "periodic"
        finally:
            connection.close()
        if found != mode:
            raise ServerError(
                f"the case requires `commitlog_sync: {mode}`; the server has `{found}`",
                where=f"at `{address.host}:{address.port}`",
                hint=f"change the server's setting, or leave out cases of other modes: `--set commitlog_sync={found}`",
                code="unsupported",
            )


def create_keyspace(connection: Connection, name: str, *, replicas: int) -> None:
    """A keyspace in every data centre, with the table that shows who created it."""
    replication = f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
    connection.rows(f"CREATE KEYSPACE {name} WITH replication = {replication}")
    connection.rows(f"CREATE TABLE {name}.{OWNER} (program text PRIMARY KEY)")


def _tables(connection: Connection, keyspace: str) -> set[str]:
    rows = connection.rows(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")
    return {str(name) for (name,) in rows}


def _setting(connection: Connection, name: str) -> str:
    """A setting of Cassandra or ScyllaDB; empty where the server does not report it."""
    for table in ("system_views.settings", "system.config"):
        with suppress(cql.CqlError):
            rows = connection.rows(f"SELECT value FROM {table} WHERE name = '{name}'")
            return str(rows[0][0]).strip('"').lower() if rows else ""
    return ""


def _heap_bytes(settings: Settings) -> int:
    return int(settings.get(HEAP, 1 << 30))


def loopback_of(data: Path) -> str:
    """An address of 127.0.0.0/8 for a node with this data directory; never 127.0.0.x, which others use."""
    digest = hashlib.sha256(str(data).encode()).digest()
    return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + digest[2] % 254}"


def _configuration(place: Place) -> Path:
    return place.data.parent / f"{place.data.name}.conf"


def _gc_path(place: Place) -> Path:
    return place.data.parent / f"{place.data.name}.logs" / "gc.log"


def _settings(place: Place, settings: Settings) -> dict[str, object]:
    """Everything in `cassandra.yaml`: what the study sets wins over the defaults, and iosonde's own over both."""
    host = loopback_of(place.data)
    given = {name: value for name, value in settings.items() if name != HEAP}
    mode = str(given.get("commitlog_sync", "periodic"))
    seeds = [{"class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
              "parameters": [{"seeds": f"{host}:{STORAGE_PORT}"}]}]  # fmt: skip
    own = {
        "cluster_name": "iosonde",
        "data_file_directories": [str(place.data / "data")],
        "commitlog_directory": str(place.log or place.data / "commitlog"),
        "saved_caches_directory": str(place.data / "saved_caches"),
        "hints_directory": str(place.data / "hints"),
        "cdc_raw_directory": str(place.data / "cdc_raw"),
        "seed_provider": seeds,
        "listen_address": host,
        "rpc_address": host,
        "storage_port": STORAGE_PORT,
        "native_transport_port": PORT,
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
    }
    return {**files.DEFAULTS, "commitlog_sync": mode, **SYNC_MODES.get(mode, {}), **given, **own}


def _plain(name: object) -> str:
    """A name of a statistic: `mutation_stage` of `MutationStage`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")
