"""MariaDB and MySQL (InnoDB): `mariadb-install-db`, `mariadbd` in the foreground, and its status variables."""

from __future__ import annotations

import contextlib
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

PLACES = ("/usr/libexec", "/opt/mariadb/bin", "/usr/local/mysql/bin")

RESERVED = (
    *("datadir", "basedir", "socket", "port", "bind_address", "skip_networking", "user", "pid_file", "tmpdir"),
    *("log_error", "general_log.*", "slow_query_log_file", "log_bin.*", "init_.*", "plugin.*", "ssl.*", "tls.*"),
    *("innodb_data_home_dir", "innodb_log_group_home_dir", "innodb_undo_directory", "innodb_temp_data_file_path"),
    *("secure_file_priv", "character_set.*", "collation.*", "defaults.*", "wsrep.*", "aria_log_dir_path"),
)

COMPLETE = ("slow_query_log",)
"""Complete names that are the beginning of a reserved one. These servers take such a beginning for all of a name."""

OLDEST = {"MariaDB": (10, 4), "MySQL": (8, 0)}

FIXED = {"character_set_server": "utf8mb4", "collation_server": "utf8mb4_bin"}

FIXED_IN_MYSQL: dict[str, SettingValue] = {"secure_file_priv": "NULL", "mysqlx": "OFF", "skip_log_bin": True}
"""No directory for files of clients, no second protocol, no binary log: the defaults of MariaDB."""

NAMES_IN_MYSQL = {"innodb_log_file_size": "innodb_redo_log_capacity"}
"""Settings of MariaDB that MySQL has under another name since 8.0.30: MariaDB has a single log file since 10.5."""

COUNTERS = {
    "Com_commit": "commits",
    "Com_rollback": "rollbacks",
    "Innodb_buffer_pool_read_requests": "buffer_requests",
    "Innodb_buffer_pool_reads": "buffer_reads",
    "Innodb_buffer_pool_wait_free": "buffer_waits",
    "Innodb_buffer_pool_pages_dirty": "dirty_pages",
    "Innodb_buffer_pool_pages_flushed": "flushed_pages",
    "Innodb_data_pending_reads": "sessions_waiting_for_io",
    "Innodb_data_read": "data_read_bytes",
    "Innodb_data_written": "data_written_bytes",
    "Innodb_data_fsyncs": "data_fsyncs",
    "Innodb_os_log_written": "wal_bytes",
    "Innodb_os_log_fsyncs": "log_fsyncs",
    "Innodb_log_waits": "log_waits",
    "Innodb_row_lock_waits": "lock_waits",
    "Innodb_row_lock_time": "lock_wait_ms",
    "Innodb_row_lock_current_waits": "sessions_waiting_for_lock",
    "Innodb_checkpoint_age": "checkpoint_age_bytes",
    "Innodb_checkpoint_max_age": "checkpoint_age_max_bytes",
    "Innodb_deadlocks": "deadlocks",
    "Innodb_history_list_length": "history_length",
    "Innodb_dblwr_writes": "doublewrite_writes",
    "Handler_write": "rows_inserted",
    "Handler_update": "rows_updated",
    "Handler_delete": "rows_deleted",
    "Threads_running": "sessions_active",
}
"""Status variables that are kept -> their names in the record."""

_COMMITTING = """
SELECT count(*) FROM information_schema.processlist WHERE state IN ('Commit', 'waiting for handler commit')
"""
"""Sessions that wait until their log record is durable: MariaDB's name of the state, and MySQL's."""


CLEAR_TEXT = ("mysql_clear_password", "dialog")
"""Plugins of authentication that send the password as it is."""


class _Refused:
    """A plugin of authentication that sends nothing."""

    def __init__(self, connection: object) -> None:
        """Nothing is kept of the connection."""

    def authenticate(self, packet: object) -> NoReturn:
        raise ServerError(
            "MariaDB: the server requests the password in clear text, which is sent through a Unix socket only",
            hint="let the user authenticate with `ed25519` or `mysql_native_password`, or name the Unix socket",
            code="authentication",
        )


class MariaDb(SqlServer):
    """MariaDB 10.4 and newer; MySQL 8.0 and newer if that is what is installed."""

    name: ClassVar[str] = "mariadb"
    title: ClassVar[str] = "MariaDB InnoDB"
    accounts: ClassVar[Sequence[str]] = ("mysql",)
    user: ClassVar[str] = "root"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    data_setting: ClassVar[str] = "innodb_buffer_pool_size"
    find_database: ClassVar[str] = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
    new_database: ClassVar[str] = "CREATE DATABASE `{}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def locate(self) -> Installation:
        """`mariadbd`, else `mysqld`, with what creates a data directory."""
        found = programs.find("mariadbd", PLACES) or programs.find("mysqld", PLACES)
        if not found:
            raise ServerError(
                "MariaDB is not installed: no program `mariadbd` or `mysqld` was found",
                where="on PATH, and in `/usr/sbin`, " + ", ".join(f"`{place}`" for place in PLACES),
                hint="install the package `mariadb-server` (on Debian, `apt-get install mariadb-server` also starts a "
                "server of its own, which iosonde does not use)",
                code="missing_server",
            )
        return _installation(found)

    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """The server parses all settings and exits: `mariadbd --verbose --help`, `mysqld --validate-config`."""
        programs.refuse_reserved(settings, RESERVED, self.title, complete=COMPLETE)
        chosen = tuple(sorted(_renamed(installation, settings).items()))
        _check(installation.programs["server"], installation.flavor, chosen)

    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """Create a data directory with system tables, and the user of iosonde."""
        server, install = installation.programs["server"], installation.programs.get("install")
        place.data.mkdir(mode=0o700)
        place.account.own(place.data)
        fixed = FIXED_IN_MYSQL if installation.flavor == "MySQL" else {}
        options = [f"--{name}={_text(value)}" for name, value in (_files(place) | fixed).items()]
        page = {name: value for name, value in settings.items() if _name(name) in _DECIDED_AT_CREATION}
        options += [f"--{name}={_text(value)}" for name, value in page.items()]
        options += ["--innodb-flush-method=nosync"] if install else []  # It is synced once, with the loaded template.
        command = (
            [install, "--no-defaults", *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
            if install
            else [server, "--no-defaults", *options, "--initialize-insecure"]
        )
        done = programs.call(command, account=place.account)
        programs.require_success(done, f"create a {installation.flavor} data directory")

    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        """Without option files and without networking."""
        chosen: dict[str, SettingValue] = {
            **_files(place),
            **FIXED,
            **(FIXED_IN_MYSQL if installation.flavor == "MySQL" else {}),
            "socket": str(self.socket_path(place.socket)),
            "pid_file": str(place.data / "server.pid"),
            "skip_networking": True,
            "skip_name_resolve": True,
        }
        options = [f"--{name}={_text(value)}" for name, value in (_renamed(installation, settings) | chosen).items()]
        return [installation.programs["server"], "--no-defaults", *options]

    def address(self, place: Place, database: str = "") -> Address:
        """The socket; its permissions are the authentication."""
        return Address(host=str(self.socket_path(place.socket)), port=None, user=self.user, database=database)

    def socket_path(self, directory: Path) -> Path:
        return directory / "server.sock"

    def connect(self, address: Address) -> Connection:
        """Through PyMySQL. A password in clear text goes through a Unix socket only."""
        import pymysql

        where: dict[str, Any] = (
            {"unix_socket": address.host} if address.is_local else {"host": address.host, "port": address.port or 3306}
        )
        try:
            opened = pymysql.connect(
                **where, user=address.user, password=address.password or "", database=address.database or None,
                connect_timeout=10, autocommit=True, charset="utf8mb4",
                auth_plugin_map={} if address.is_local else dict.fromkeys(CLEAR_TEXT, _Refused),
            )  # fmt: skip
        except pymysql.Error as error:
            _fail(error, address)
        return SqlConnection(opened, address, (pymysql.Error, OSError), _fail)

    def drop_database(self, connection: Connection, name: str) -> None:
        connection.rows(f"DROP DATABASE IF EXISTS `{name}`")

    def move_log(self, place: Place) -> None:
        """The redo log is one file or several, or a directory in MySQL."""
        assert place.log is not None
        place.log.mkdir(mode=0o700)
        place.account.own(place.log)
        for inside in [*place.data.glob("ib_logfile*"), *place.data.glob("#innodb_redo")]:
            directories.move(inside, place.log / inside.name, place.account)

    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Statistics are gathered by the loader; pages are flushed by the shutdown."""
        connection.rows("SET GLOBAL innodb_fast_shutdown = 0")

    def describe(self, connection: Connection) -> dict[str, Any]:
        """From `SHOW GLOBAL VARIABLES`; the server itself reports which are not compiled-in defaults."""
        settings = {str(name): str(value) for name, value in connection.rows("SHOW GLOBAL VARIABLES")}
        changed = {
            str(row[0]).lower() for row in connection.rows(_CHANGED if _is_mariadb(connection) else _CHANGED_IN_MYSQL)
        }
        return {"version": settings["version"], "settings": settings, "changed": sorted(changed)}

    def statistics(self, connection: Connection) -> dict[str, int]:
        """From `SHOW GLOBAL STATUS` and the list of sessions; this connection is not among the active ones."""
        rows = connection.rows("SHOW GLOBAL STATUS")
        numbers = {str(name): str(value) for name, value in rows if re.fullmatch(r"-?[0-9.]+", str(value))}
        found = {COUNTERS[name]: int(float(text)) for name, text in numbers.items() if name in COUNTERS}
        if "buffer_requests" in found:
            found["buffer_hits"] = found.pop("buffer_requests") - found.get("buffer_reads", 0)
        if "sessions_active" in found:
            found["sessions_active"] = max(0, found["sessions_active"] - 1)
        if (
            "deadlocks" not in found
        ):  # A status variable of MariaDB only. MySQL has a table, for users with the right PROCESS.
            with contextlib.suppress(ServerError):
                found["deadlocks"] = int(connection.rows(_DEADLOCKS_OF_MYSQL)[0][0])
        found["sessions_waiting_for_log"] = int(connection.rows(_COMMITTING)[0][0])
        return found


_DECIDED_AT_CREATION = (
    "innodb_page_size",
    "innodb_checksum_algorithm",
    "innodb_data_file_path",
    "lower_case_table_names",
)

_CHANGED = (
    "SELECT variable_name FROM information_schema.system_variables "
    "WHERE global_value_origin <> 'COMPILE-TIME' AND global_value <> default_value"
)


_CHANGED_IN_MYSQL = "SELECT variable_name FROM performance_schema.variables_info WHERE variable_source <> 'COMPILED'"

_DEADLOCKS_OF_MYSQL = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'"


def _is_mariadb(connection: Connection) -> bool:
    """Return True if the server has MariaDB's table of the origins of settings."""
    return bool(
        connection.rows(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = 'information_schema' "
            "AND table_name = 'SYSTEM_VARIABLES'"
        )
    )


def _fail(error: Exception, address: Address) -> NoReturn:
    """The server's message as an error, with its code."""
    number = error.args[0] if error.args else 0
    message = str(error.args[-1]) if error.args else str(error)
    known = {
        1045: ("authentication", "correct the password in `MYSQL_PWD` or in `~/.my.cnf`"),
        1698: ("authentication", "correct the password in `MYSQL_PWD` or in `~/.my.cnf`"),
        1040: ("connection_limit", "raise `max_connections`, or use fewer terminals"),
        1021: ("no_space", "name a target with more room, or use fewer warehouses"),
    }
    code, hint = known.get(number, ("server", "see the server's own messages"))
    raise ServerError(f"MariaDB or MySQL: {message}", where=f"at `{address.host}`", hint=hint, code=code) from None


@functools.cache
def _installation(server: str) -> Installation:
    matched = programs.reported_version(
        [server, "--no-defaults", "--version"], r"Ver ([0-9]+\.[0-9]+\.[0-9]+)", package="mariadb-server"
    )
    version, flavor = matched[1], "MariaDB" if "MariaDB" in matched.string else "MySQL"
    programs.require_version(flavor, version, OLDEST[flavor], program=server, package="mariadb-server")
    found = {"server": server}
    if flavor == "MariaDB":
        install = programs.find("mariadb-install-db", ["/usr/bin", "/usr/share/mysql"])
        if install is None:
            raise ServerError(
                "the program `mariadb-install-db` was not found", hint="install the package `mariadb-server`",
                code="missing_server",
            )  # fmt: skip
        found["install"] = install
    return Installation(version=version, build=matched.string.strip(), flavor=flavor, programs=found)


def _renamed(installation: Installation, settings: Settings) -> dict[str, SettingValue]:
    """Settings by the names of the installed server."""
    version = tuple(map(int, installation.version.split(".")))
    names = NAMES_IN_MYSQL if installation.flavor == "MySQL" and version >= (8, 0, 30) else {}
    return {names.get(_name(name), name): value for name, value in settings.items()}


@functools.cache
def _check(server: str, flavor: str, settings: tuple[tuple[str, SettingValue], ...]) -> None:
    """Errors and adjusted values are reported on standard error; the exit status does not show all of them."""
    options = [f"--{name}={_text(value)}" for name, value in settings]
    if flavor == "MySQL":
        options += [f"--{name}={_text(value)}" for name, value in FIXED_IN_MYSQL.items()]
        options += ["--user=root", "--log-error-verbosity=2", "--validate-config"]
    else:
        options += ["--verbose", "--help"]
    done = programs.call([server, "--no-defaults", *options])
    for line in done.stderr.splitlines():
        _, marker, text = line.partition("[ERROR]")
        _, warned, warning = line.partition("[Warning]")
        is_about = warned and any(_name(name) in _name(warning) for name, _ in settings)
        problem = text if marker else warning if is_about else ""
        if problem:
            message = re.sub(r"^(\[MY-\d+\] \[Server\] )?(\S*mysqld: |\S*mariadbd: )?", "", problem.strip())
            raise StudyError(
                f"{flavor} rejects a setting: {message}",
                where="by the parameter `mariadb`",
                hint=f"correct its name or value; `{Path(server).name} --verbose --help` lists all settings",
            )


def _files(place: Place) -> dict[str, SettingValue]:
    log = {"innodb_log_group_home_dir": str(place.log)} if place.log else {}
    return {"datadir": str(place.data), "tmpdir": str(place.data), **log}


def _name(text: str) -> str:
    return text.replace("-", "_").lower()


def _text(value: SettingValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
