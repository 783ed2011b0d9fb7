"""PostgreSQL: `initdb`, `postgres` in the foreground, and its statistics views."""

from __future__ import annotations

import functools
import re
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from iosonde.errors import ServerError, StudyError
from iosonde.study.servers import directories, programs
from iosonde.study.servers.server import (
    Address,
    Connection,
    Installation,
    Place,
    Settings,
    SettingValue,
    SqlConnection,
    SqlServer,
    no_check,
)

PLACES = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"
"""Installation directories of the server in Debian, Red Hat and Homebrew, which are not on PATH."""

RESERVED = (
    *("data_directory", "config_file", "hba_file", "ident_file", "external_pid_file", "listen_addresses", "port"),
    *("unix_socket_.*", "ssl.*", ".*_command", ".*_library", ".*_libraries", "dynamic_library_path", "log_directory"),
    *("log_filename", "log_destination", "logging_collector", "archive_.*", "primary_.*", "jit_provider"),
    "dynamic_shared_memory_type",
)

PORT = 5432
"""Part of the socket's name; nothing listens on a TCP port."""

USER = "iosonde"
OLDEST = 11

_DATABASE = """
SELECT xact_commit AS transactions_committed, xact_rollback AS transactions_rolled_back, blks_read AS buffer_reads,
       blks_hit AS buffer_hits, tup_inserted AS rows_inserted, tup_updated AS rows_updated, tup_deleted AS rows_deleted,
       deadlocks, temp_bytes AS temporary_bytes
FROM pg_stat_database WHERE datname = current_database()
"""
_BGWRITER_OF_16 = """
SELECT checkpoints_timed, checkpoints_req AS checkpoints_requested, buffers_checkpoint AS checkpoint_buffers,
       buffers_clean AS background_buffers, buffers_backend AS client_buffers,
       checkpoint_write_time::bigint AS checkpoint_write_ms, checkpoint_sync_time::bigint AS checkpoint_sync_ms
FROM pg_stat_bgwriter
"""
_BGWRITER_OF_17 = """
SELECT num_timed AS checkpoints_timed, num_requested AS checkpoints_requested, buffers_written AS checkpoint_buffers,
       (SELECT buffers_clean FROM pg_stat_bgwriter) AS background_buffers,
       write_time::bigint AS checkpoint_write_ms, sync_time::bigint AS checkpoint_sync_ms
FROM pg_stat_checkpointer
"""
_WAL = "SELECT wal_records, wal_fpi AS wal_full_page_images, wal_bytes::bigint, wal_buffers_full FROM pg_stat_wal"
_SESSIONS = """
SELECT count(*) FILTER (WHERE state = 'active') AS sessions_active,
       count(*) FILTER (WHERE state = 'active' AND wait_event_type = 'Lock') AS sessions_waiting_for_lock,
       count(*) FILTER (WHERE state = 'active' AND wait_event IN ('WALWrite', 'WALSync', 'WALWriteLock', 'WALInsert'))
           AS sessions_waiting_for_log,
       count(*) FILTER (WHERE state = 'active' AND wait_event_type = 'IO'
                        AND wait_event NOT IN ('WALWrite', 'WALSync')) AS sessions_waiting_for_io,
       count(*) FILTER (WHERE state = 'active' AND wait_event_type = 'LWLock'
                        AND wait_event NOT IN ('WALWrite', 'WALWriteLock', 'WALInsert')) AS sessions_waiting_for_latch,
       count(*) FILTER (WHERE state = 'active' AND wait_event IS NULL) AS sessions_on_cpu
FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_VACUUM = """
SELECT coalesce(sum(autovacuum_count + vacuum_count), 0)::bigint AS vacuums,
       coalesce(sum(autoanalyze_count + analyze_count), 0)::bigint AS analyzes,
       coalesce(sum(n_dead_tup), 0)::bigint AS dead_rows FROM pg_stat_user_tables
"""
_SIZE = "SELECT pg_database_size(current_database()) AS database_bytes"


class PostgreSql(SqlServer):
    """PostgreSQL 11 and newer."""

    name: ClassVar[str] = "postgresql"
    title: ClassVar[str] = "PostgreSQL"
    accounts: ClassVar[Sequence[str]] = ("postgres",)
    user: ClassVar[str] = USER
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "Fast": clients are disconnected.
    data_setting: ClassVar[str] = "shared_buffers"
    find_database: ClassVar[str] = "SELECT 1 FROM pg_database WHERE datname = %s"
    new_database: ClassVar[str] = "CREATE DATABASE \"{}\" ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"

    def locate(self) -> Installation:
        """The newest installed version, its `postgres` and `initdb`."""
        found = programs.find("postgres", _directories())
        initdb = programs.find("initdb", [str(Path(found).parent)] if found else [])
        if not found or not initdb:
            raise ServerError(
                "PostgreSQL is not installed: no program `postgres` was found",
                where="on PATH, and in " + ", ".join(f"`{place}`" for place in PLACES[:2]),
                hint="install the package `postgresql` (on Debian, `apt-get install postgresql` also starts a server "
                "of its own, which iosonde does not use)",
                code="missing_server",
            )
        return _installation(found, str(Path(found).parent / "initdb"))

    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """`postgres -C` parses all settings and exits."""
        programs.refuse_reserved(settings, RESERVED, self.title)
        _check(installation.programs["postgres"], tuple(sorted(settings.items())))

    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """A cluster with data checksums, UTF-8 and the collation C; it is synced once, with the loaded template."""
        for directory in filter(None, (place.data, place.log)):
            directory.mkdir(mode=0o700)
            place.account.own(directory)
        log = ["--waldir", str(place.log)] if place.log else []
        segment = settings.get("wal_segment_size")
        done = programs.provision(
            [
                *(installation.programs["initdb"], "--pgdata", str(place.data), *log, "--username", USER),
                *("--auth", "trust", "--data-checksums", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
                *(["--wal-segsize", str(segment)] if segment else []),
            ],
            account=place.account,
            data=place.data,
            server=installation.programs["postgres"],
        )
        programs.require_success(done, "create a PostgreSQL data directory")

    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        """Everything on the command line, which wins over `postgresql.conf`."""
        chosen: dict[str, SettingValue] = {
            "listen_addresses": "",
            "unix_socket_directories": str(place.socket),
            "unix_socket_permissions": "0700",
            "port": PORT,
            "logging_collector": False,
            "log_destination": "stderr",
            "dynamic_shared_memory_type": "sysv",  # Files in `/dev/shm` would outlive a killed server.
        }
        given = {name: value for name, value in settings.items() if name != "wal_segment_size"}
        options = [option for name, value in (given | chosen).items() for option in ("-c", f"{name}={_text(value)}")]
        return [installation.programs["postgres"], "-D", str(place.data), *options]

    def address(self, place: Place, database: str = "") -> Address:
        """The directory of the socket, as libpq expects it."""
        return Address(host=str(place.socket), port=PORT, user=USER, database=database or "postgres")

    def socket_path(self, directory: Path) -> Path:
        return directory / f".s.PGSQL.{PORT}"

    def connect(self, address: Address) -> Connection:
        """Through psycopg. A password in clear text goes through a Unix socket only."""
        import psycopg

        try:
            opened = psycopg.connect(
                host=address.host, port=address.port, user=address.user, dbname=address.database,
                password=address.password, connect_timeout=10, autocommit=True, application_name="iosonde",
                require_auth="" if address.is_local else "!password",
            )  # fmt: skip
        except psycopg.Error as error:
            _fail(error, address)
        return SqlConnection(opened, address, psycopg.Error, _fail)

    def drop_database(self, connection: Connection, name: str) -> None:
        """Also where sessions are still connected to it."""
        connection.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )
        connection.rows(f'DROP DATABASE IF EXISTS "{name}"')

    def move_log(self, place: Place) -> None:
        """`pg_wal` becomes a link, as `initdb --waldir` creates it."""
        assert place.log is not None
        inside = place.data / "pg_wal"
        directories.move(inside, place.log, place.account)
        inside.symlink_to(place.log)

    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Freeze rows and set hint bits now, so that no later read writes pages."""
        connection.rows("VACUUM (FREEZE, ANALYZE)")
        connection.rows("CHECKPOINT")

    def describe(self, connection: Connection) -> dict[str, Any]:
        """From `pg_settings`."""
        rows = connection.rows("SELECT name, current_setting(name), source, setting <> boot_val FROM pg_settings")
        (version,) = connection.rows("SELECT version()")[0]
        changed = [name for name, _, source, differs in rows if source != "default" and differs]
        settings = {name: value for name, value, *_ in rows}
        return {"version": version, "settings": settings, "changed": sorted(changed)}

    def statistics(self, connection: Connection) -> dict[str, int]:
        """From the statistics views; what a version does not have is left out."""
        (number,) = connection.rows("SHOW server_version_num")[0]
        version = int(number) // 10_000
        queries = [_DATABASE, _BGWRITER_OF_17 if version >= 17 else _BGWRITER_OF_16, _SESSIONS, _VACUUM, _SIZE]
        found: dict[str, int] = {}
        for query in [*queries, *([_WAL] if version >= 14 else [])]:
            [(row,)] = connection.rows(f"SELECT row_to_json(counters) FROM ({query}) AS counters")
            found |= {name: int(value) for name, value in row.items() if value is not None}
        return found


def _fail(error: Exception, address: Address) -> NoReturn:
    """The server's message as an error, with its code."""
    state = getattr(error, "sqlstate", None) or ""
    message = str(error).strip().splitlines()[-1].removeprefix("FATAL:").strip()
    known = {
        "28P01": ("authentication", "correct the password in `PGPASSWORD` or in `~/.pgpass`"),
        "28000": ("authentication", "allow this user in the server's `pg_hba.conf`"),
        "53300": ("connection_limit", "raise `max_connections`, or use fewer terminals"),
        "53100": ("no_space", "name a target with more room, or use fewer warehouses"),
        "57P03": ("server", "wait until the server has started"),
    }
    text = str(error)
    if not state and ("password authentication failed" in text or "no password supplied" in text):
        state = "28P01"
    if not state and "too many clients" in text:
        state = "53300"
    if "server requested a cleartext password" in text:
        raise ServerError(
            "PostgreSQL: the server requests the password in clear text, which is sent through a Unix socket only",
            where=f"at `{address.host}`",
            hint="set `scram-sha-256` in the server's `pg_hba.conf`, or name its Unix socket",
            code="authentication",
        ) from None
    code, hint = known.get(state, ("server", "see the server's own messages"))
    raise ServerError(f"PostgreSQL: {message}", where=f"at `{address.host}`", hint=hint, code=code) from None


def _directories() -> list[str]:
    """Directories of all installed versions, the newest first."""
    found = [path for pattern in PLACES for path in Path("/").glob(pattern.lstrip("/"))]
    versions = {str(path): [int(number) for number in re.findall(r"[0-9]+", str(path))] for path in found}
    return sorted(versions, key=lambda path: versions[path], reverse=True)


@functools.cache
def _installation(postgres: str, initdb: str) -> Installation:
    matched = programs.reported_version([postgres, "--version"], r"([0-9]+)(\.[0-9]+)?", package="postgresql")
    programs.require_version("PostgreSQL", matched[0], [OLDEST], program=postgres, package="postgresql")
    return Installation(
        version=matched[0], build=matched.string.strip(), flavor="PostgreSQL",
        programs={"postgres": postgres, "initdb": initdb},
    )  # fmt: skip


@functools.cache
def _check(postgres: str, settings: tuple[tuple[str, SettingValue], ...]) -> None:
    without_files = {each: "/dev/null" for each in ("config_file", "hba_file", "ident_file")}
    names = [f"{name}={_text(value)}" for name, value in settings if name != "wal_segment_size"]
    fixed = [f"{name}={value}" for name, value in {**without_files, "data_directory": "/nonexistent"}.items()]
    options = [option for each in (*fixed, *names) for option in ("-c", each)]
    done = programs.call([postgres, "-C", "shared_buffers", *options])
    if done.returncode == 0:
        return
    lines = [line.partition("FATAL:")[2].strip() for line in done.stderr.splitlines() if "FATAL:" in line]
    hints = [line.partition("HINT:")[2].strip() for line in done.stderr.splitlines() if "HINT:" in line]
    raise StudyError(
        f"PostgreSQL rejects a setting: {lines[0] if lines else done.stderr.strip()[-200:]}",
        where="by the parameter `postgresql`",
        hint=hints[0] if hints else "correct its name or value; `postgres --describe-config` lists all settings",
    )


def _text(value: SettingValue) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
