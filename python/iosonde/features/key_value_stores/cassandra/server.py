"""Apache Cassandra: one node without replicas, in a Java virtual machine of its own.

CQL has no Unix socket, so the node listens on TCP: on an address of 127.0.0.0/8 that is derived from its directory, so
that several nodes do not compete for ports, and that other machines cannot reach. Other users of this machine can reach
it, and are refused: CQL requires a random password, and the port for other nodes a certificate (mutual TLS). Both are
files in the data directory, which only its owner can enter, so a template contains those of its nodes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from iosonde.errors import ServerError
from iosonde.features.key_value_stores.cassandra import cql, files, gc_log
from iosonde.features.key_value_stores.parameters import PERIODIC
from iosonde.study.servers import directories, programs
from iosonde.study.servers.programs import account_for
from iosonde.study.servers.server import (
    Address,
    Connection,
    DatabaseServer,
    Installation,
    Place,
    Settings,
    SettingValue,
    no_check,
)
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
    *("(auth|credentials|permissions|roles)_.*", "traverse_auth_from_root"),
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

_SUPERUSER = "cassandra"
"""Name and first password of the role that Cassandra creates at its first start."""

_PASSWORD_FILE, _KEYSTORE_FILE = "password", "internode.p12"
"""Secrets in the data directory."""
_KEYSTORE_PASSWORD = "iosonde"
"""Required by the format; the mode of the directory protects the key."""

_TEMPORARY = "tmp"
"""Directory in the data directory for libraries that the virtual machine unpacks."""

STALLED_S = 300.0
"""Time without progress of any compaction after which a load has failed."""
POLL_S = 0.2

OWNER = "created_by_iosonde"
"""Table of a keyspace that shows who created it: the engine and `iosonde cleanup` change no other keyspace."""


class Cassandra(DatabaseServer):
    """Cassandra 4.1 and newer, started by iosonde."""

    name: ClassVar[str] = "cassandra"
    title: ClassVar[str] = "Cassandra"
    accounts: ClassVar[Sequence[str]] = ("cassandra",)
    user: ClassVar[str] = "iosonde"
    password_variable: ClassVar[str] = cql.PASSWORD
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_statuses: ClassVar[Sequence[int]] = (0, 128 + signal.SIGTERM)
    """A virtual machine that ends by a signal runs its shutdown hooks, and then exits with 128 and its number."""
    ready_s: ClassVar[float] = 300.0
    data_setting: ClassVar[str] = HEAP

    @staticmethod
    def settings_of(parameters: Mapping[str, Any]) -> dict[str, SettingValue]:
        """Settings of the node by its own names, and the heap of its virtual machine, from the parameters of a load."""
        mode = str(parameters["commitlog_sync"] or PERIODIC)
        return {**parameters["cassandra"], "commitlog_sync": mode, HEAP: int(parameters["heap_size"])}

    def locate(self) -> Installation:
        """Jar files of Cassandra, and a virtual machine of a version that it runs on."""
        jars, version = files.locate()
        machine = files.find_java(files.JAVA_VERSIONS)
        keytool = Path(machine.path).with_name("keytool")
        if not keytool.is_file():
            raise ServerError(
                "the program `keytool` was not found, which creates the certificate of a node",
                where=f"next to `{machine.path}`",
                hint=f"install a complete Java runtime, such as `openjdk-{machine.version}-jre-headless`",
                code="missing_server",
            )
        return Installation(
            version=version,
            build=f"Cassandra {version} on {machine.build}",
            programs={"java": machine.path, "keytool": str(keytool), "jars": str(jars)},
        )

    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """Names and types of values are those of the fields of its class `Config`."""
        own = {name: value for name, value in settings.items() if name != HEAP}
        without_rates = {name: None if _RATE.fullmatch(str(value)) else value for name, value in own.items()}
        programs.refuse_reserved(without_rates, RESERVED, self.title)
        files.check(Path(installation.programs["jars"]), own)

    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """Empty directories and secrets; the node creates its system tables at its first start."""
        directories = (place.data, place.data / _TEMPORARY)
        for directory in directories:
            directory.mkdir(mode=0o700)
        _create_password(place)
        for directory in directories:
            place.account.own(directory)
        _create_keystore(installation, place)

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
            "cassandra.superuser_setup_delay_ms": "0",
            # 2^4 rounds instead of 2^10: hashing needs no time where the password is random.
            "cassandra.auth_bcrypt_gensalt_log2_rounds": "4",
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
        """Loopback only, with the password of this node."""
        host, password = loopback_of(place.data), _password(place)
        return Address(host=host, port=PORT, user=self.user, database=database, password=password)

    def socket_path(self, directory: Path) -> Path:
        """None: CQL is spoken over TCP."""
        raise AssertionError("Cassandra has no Unix socket")

    def connect(self, address: Address) -> Connection:
        """Connect as iosonde's role, which is created when a node has started for the first time.

        Until the node listens another user could listen at its address, who must not get the password.
        """
        uid = account_for(self.accounts).uid
        try:
            return cql.connect(address, server_uid=uid)
        except ServerError as error:
            if error.code != "authentication":
                raise
        _create_role(address, uid)
        return cql.connect(address, server_uid=uid)

    def create_database(self, connection: Connection, name: str) -> None:
        """A keyspace with one replica."""
        create_keyspace(connection, name, replicas=1)

    def move_log(self, place: Place) -> None:
        """The commit log; `cassandra.yaml` names its directory."""
        assert place.log is not None
        directories.move(place.data / "commitlog", place.log, place.account)

    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Wait until compactions are done; the shutdown that follows flushes memtables.

        `ServerError` once none has progressed for `STALLED_S`: a large load may take long, but has to make progress.
        """
        progress, since = None, time.monotonic()
        statement = "SELECT keyspace_name, table_name, kind, progress, total FROM system_views.sstable_tasks"
        while tasks := sorted(connection.rows(statement)):
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

    def describe(self, connection: Connection) -> dict[str, Any]:
        """From its virtual tables."""
        [(version,)] = connection.rows("SELECT release_version FROM system.local")
        rows = connection.rows("SELECT name, value FROM system_views.settings")
        settings = {str(name): str(value) for name, value in rows}
        return {"version": f"Cassandra {version}", "settings": settings, "changed": []}

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
            found["compactions_running"] = len(connection.rows("SELECT keyspace_name FROM system_views.sstable_tasks"))
        return found

    def cause(self, messages: str, settings: Settings) -> ServerError | None:
        """An exhausted heap, or a setting that the node refused."""
        if re.search(r"OutOfMemoryError|Too small (initial|maximum) heap|heap too small", messages):
            heap = format_bytes(_heap_bytes(settings))
            return ServerError(
                f"the Java heap of {heap} is too small: the JVM exited with `OutOfMemoryError`",
                hint=f"raise `{HEAP}`, or use smaller values and fewer jobs",
                code="out_of_memory",
            )
        refused = re.search(r"ConfigurationException: (.*)", messages) or re.search(r"Invalid yaml[^\n]*", messages)
        if refused:
            return ServerError(refused[0][:300], hint="correct the settings in `cassandra`")
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
        rows = connection.rows(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{name}'")
        tables = {table for (table,) in rows}
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


def _setting(connection: Connection, name: str) -> str:
    """A setting of Cassandra or ScyllaDB; empty where the server does not report it."""
    for table in ("system_views.settings", "system.config"):
        with suppress(cql.CqlError):
            rows = connection.rows(f"SELECT value FROM {table} WHERE name = '{name}'")
            return str(rows[0][0]).strip('"').lower() if rows else ""
    return ""


def _create_password(place: Place) -> None:
    """A random password, which only the user of iosonde can read."""
    path = place.data / _PASSWORD_FILE
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(secrets.token_urlsafe(24), encoding="ascii")


def _password(place: Place) -> str:
    """The password of a node; `ServerError` if it cannot be read."""
    path = place.data / _PASSWORD_FILE
    try:
        with open(path, encoding="ascii", opener=_without_links) as file:
            return file.read()
    except OSError as error:
        raise ServerError(
            f"the password of the Cassandra node cannot be read: {error.strerror}",
            where=f"in `{path}`",
            hint="start the study again, which loads the records again",
        ) from None


def _without_links(path: str, flags: int) -> int:
    """A file in a directory of the server's user, who may have replaced it by a link."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _create_keystore(installation: Installation, place: Place) -> None:
    """A key and its certificate, which the node presents and is the only one that it accepts."""
    command = [
        *(installation.programs["keytool"], "-genkeypair", "-alias", "node", "-dname", "CN=iosonde"),
        *("-keyalg", "EC", "-validity", "3650", "-storetype", "PKCS12", "-storepass", _KEYSTORE_PASSWORD),
        *("-keystore", str(place.data / _KEYSTORE_FILE)),
    ]
    programs.require_success(programs.call(command, account=place.account), "create the certificate of the node")


def _create_role(address: Address, uid: int) -> None:
    """Create iosonde's role on a node that nobody else has logged in to; `ServerError` until that is certain.

    Every user of this machine knows the first password of Cassandra's own role, so that one is changed before.
    """
    superuser = replace(address, user=_SUPERUSER)
    first = replace(superuser, password=_SUPERUSER)
    with suppress(cql.CqlError), closing(cql.connect(first, server_uid=uid)) as connection:
        connection.rows(f"ALTER ROLE {_SUPERUSER} WITH PASSWORD = '{address.password}'")
    with closing(cql.connect(superuser, server_uid=uid)) as connection:
        if not _is_alone(connection):
            raise ServerError(
                "another client has logged in to the private Cassandra node with its first password",
                where=f"at `{address.host}:{address.port}`",
                hint="find the user of this machine who connects to it, and start the study again",
                code="server",
            )
        connection.rows(f"CREATE ROLE {address.user} WITH PASSWORD = '{address.password}' AND LOGIN = true")


def _is_alone(connection: Connection) -> bool:
    """Return True if no other client is logged in or has left a request or a role.

    The first password no longer works. Once no login is in progress, no further client can appear, and once no request
    is in progress, those of clients that have left are complete.
    """
    if not _is_idle(connection):
        return False
    # A client that has not logged in has the name `anonymous`.
    clients = [row for row in connection.rows("SELECT username FROM system_views.clients") if row != ("anonymous",)]
    if clients != [(_SUPERUSER,)] or not _is_idle(connection):
        return False
    return connection.rows("SELECT role FROM system_auth.roles") == [(_SUPERUSER,)]


def _is_idle(connection: Connection) -> bool:
    """Return True if the node executes no request but this one."""
    rows = connection.rows("SELECT name, active_tasks, pending_tasks FROM system_views.thread_pools")
    requests = [row for row in rows if str(row[0]).startswith("Native-Transport")]
    return sum(int(active) + int(pending) for _, active, pending in requests) <= 1


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
    keystore = str(place.data / _KEYSTORE_FILE)
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
        "authenticator": "PasswordAuthenticator",
        "role_manager": "CassandraRoleManager",
        # A cached password would be accepted after it was changed. Roles are read once: requests look them up.
        "credentials_validity": "0ms",
        "roles_validity": "1d",
        "server_encryption_options": {
            "internode_encryption": "all",
            "optional": False,
            "require_client_auth": True,
            "keystore": keystore,
            "keystore_password": _KEYSTORE_PASSWORD,
            "truststore": keystore,
            "truststore_password": _KEYSTORE_PASSWORD,
        },
    }
    return {**files.DEFAULTS, "commitlog_sync": mode, **SYNC_MODES.get(mode, {}), **given, **own}


def _plain(name: object) -> str:
    """A name of a statistic: `mutation_stage` of `MutationStage`."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    return re.sub(r"[^a-z0-9]+", "_", parted.lower()).strip("_")
