"""The interface of a server, the values that describe one, and an instance that iosonde runs."""

from __future__ import annotations

import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

from iosonde.engine.supervisor.processes import descendants
from iosonde.errors import ServerError
from iosonde.storage.control_groups import ProcessGroup
from iosonde.study.servers import programs
from iosonde.study.servers.directories import Directories, Template
from iosonde.study.servers.programs import Account, ServerProcess, account_for
from iosonde.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address of a client's connection."""

    host: str
    """Host name or address; of a Unix socket its path, as the server's own clients expect it."""
    port: int | None
    """None for a Unix socket without a port number."""
    user: str
    database: str
    password: str | None = field(default=None, repr=False)
    """Never recorded."""

    @property
    def is_local(self) -> bool:
        return self.host.startswith("/")


class Connection(Protocol):
    """One open connection, in autocommit mode."""

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement; `ServerError` with the server's message if it fails."""

    def close(self) -> None: ...


SettingValue = bool | int | float | str
Settings = Mapping[str, SettingValue]


def no_check() -> None:
    """Never stop waiting."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The programs of a server on this machine."""

    version: str
    """`15.18`."""
    build: str
    """Version and build as the server prints them."""
    flavor: str = ""
    """Product: `MariaDB` or `MySQL`."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """Paths of its programs, by name."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Directories of one instance."""

    data: Path
    """Data directory, under the target's own directory."""
    log: Path | None
    """Directory of the write-ahead log on another target; None where it is in the data directory."""
    socket: Path
    """Directory of the Unix socket; its path is short (`sockaddr_un` has 108 bytes)."""
    account: Account

    @property
    def server_log(self) -> Path:
        """File with the server's own messages."""
        return self.data.parent / f"{self.data.name}.messages"


class EventLog(Protocol):
    """A log of a running server with times on the monotonic clock, such as pauses of a virtual machine."""

    def totals(self) -> dict[str, int]:
        """Statistics since the server started."""

    def times_until(self, instants: Sequence[int]) -> list[dict[str, int]]:
        """Statistics until each instant, which are complete only some time after the last one."""

    def facts(self) -> dict[str, Any]:
        """For the record, at the end of a run."""


class DatabaseHost(Protocol):
    """Creates and drops databases on a server of the user."""

    def connect(self, address: Address) -> Connection:
        """Connect a client; `ServerError` with the reason where that fails."""

    def create_database(self, connection: Any, name: str) -> None:
        """Create an empty database; `ServerError` (`foreign_data`) if it exists."""

    def drop_database(self, connection: Any, name: str) -> None:
        """Remove a database that iosonde created, also while the server carries out the last requests of an engine.

        `ServerError` (`foreign_data`) for one that does not show that iosonde created it.
        """


class Server(ABC):
    """One kind of server. The object has no state: an instance is described by an installation and a place.

    This is what every server has; `DatabaseServer` has what a session needs beyond it.
    """

    name: ClassVar[str]
    """Name in studies and records."""
    title: ClassVar[str]
    """Name in reports."""
    accounts: ClassVar[Sequence[str]]
    """System users that it may run under when iosonde is root, the preferred one first."""
    stop_signal: ClassVar[signal.Signals]
    """Requests an orderly shutdown that does not wait for clients."""
    stop_statuses: ClassVar[Sequence[int]] = (0,)
    """Exit statuses of an orderly shutdown."""
    ready_s: ClassVar[float] = 60.0
    """Time within which a started server must accept connections."""
    data_setting: ClassVar[str]
    """The setting with the size of the server's own cache."""
    password_variable: ClassVar[str] = ""
    """Environment variable in which the engine expects the password of `address`; empty where there is none."""

    @abstractmethod
    def locate(self) -> Installation:
        """Find its programs; `ServerError` names the package if they are missing."""

    @abstractmethod
    def check_settings(self, installation: Installation, settings: Settings) -> None:
        """Ask the server's program whether it accepts the settings; `StudyError` if not. Writes nothing."""

    @abstractmethod
    def provision(self, installation: Installation, place: Place, settings: Settings) -> None:
        """Create an empty data directory."""

    def configure(self, installation: Installation, place: Place, settings: Settings) -> None:  # noqa: B027
        """Write files of configuration before each start; nothing where the command line has everything."""

    def event_log(self, place: Place) -> EventLog | None:
        """A log with further statistics, where it has one."""
        return None

    def cause(self, messages: str, settings: Settings) -> ServerError | None:
        """The cause of a failure by the server's messages, beyond what is common to all servers."""
        return None

    @abstractmethod
    def command(self, installation: Installation, place: Place, settings: Settings) -> list[str]:
        """Command that starts the server in the foreground, on a Unix socket only."""

    @abstractmethod
    def address(self, place: Place, database: str = "") -> Address: ...

    @abstractmethod
    def socket_path(self, directory: Path) -> Path:
        """Path of the socket itself in its directory."""

    @abstractmethod
    def connect(self, address: Address) -> Connection:
        """Connect a client; `ServerError` with the reason where that fails."""

    @abstractmethod
    def describe(self, connection: Connection) -> dict[str, Any]:
        """Its `version`, all effective `settings` with units, and the names of those `changed` from the default."""

    @abstractmethod
    def statistics(self, connection: Connection) -> dict[str, int]:
        """Counters and states of the server by name, at this moment."""


class DatabaseServer(Server):
    """A server with databases, which are loaded once and kept as a template."""

    user: ClassVar[str]
    """Database user with all rights in a server that iosonde started."""

    @abstractmethod
    def move_log(self, place: Place) -> None:
        """Move the write-ahead log of a stopped server from its data directory to `place.log`."""

    @abstractmethod
    def create_database(self, connection: Connection, name: str) -> None:
        """Create a database with the encoding and collation that workloads need; `ServerError` if it exists."""

    @abstractmethod
    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Do what the server would otherwise do later in the background, after a bulk load.

        `check` is called while it waits, and raises `ServerError` to stop waiting.
        """


class SqlServer(DatabaseServer):
    """A database server with SQL, whose client has the interface of PEP 249."""

    find_database: ClassVar[str]
    """Statement that returns a row if there is a database of a name."""
    new_database: ClassVar[str]
    """Statement that creates one, with UTF-8 and binary collation."""

    def create_database(self, connection: Connection, name: str) -> None:
        if connection.rows(self.find_database, [name]):
            raise ServerError(
                f"the database `{name}` already exists and was not created by iosonde",
                hint="it was not changed; rename or drop it, or name another server",
                code="foreign_data",
            )
        connection.rows(self.new_database.format(name))

    @abstractmethod
    def drop_database(self, connection: Connection, name: str) -> None:
        """Remove a database that iosonde created."""


@dataclass(frozen=True)
class SqlConnection:
    """A connection of a client with the interface of PEP 249."""

    opened: Any
    address: Address
    errors: type[Exception] | tuple[type[Exception], ...]
    """Errors of the client, and what to raise instead."""
    fail: Callable[[Exception, Address], NoReturn]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self.opened.cursor() as cursor:
                cursor.execute(statement, list(values) or None)
                return list(cursor.fetchall()) if cursor.description else []
        except self.errors as error:
            self.fail(error, self.address)

    def close(self) -> None:
        self.opened.close()


STOP_S = 60.0
LOAD_STOP_S = 600.0
"""For the shutdown after a load, which writes back what the server has in memory."""
POLL_S = 0.02

DATABASE = "iosonde"
"""Name of the database in a server of iosonde's own."""


@dataclass
class Instance:
    """A server in the directories of a study, one process at a time.

    It finds the programs and checks the settings; nothing is created.
    """

    server: Server
    directories: Directories
    settings: Settings
    limit_bytes: int | None
    """Memory limit of the server with the page cache."""
    swap_bytes: int = 0
    """Swap that it may use beyond this limit."""
    check: Callable[[], None] = no_check
    """Called while it waits for the server; raises `ServerError` to stop waiting."""
    _process: ServerProcess | None = field(default=None, init=False)
    _group: ProcessGroup | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.installation = self.server.locate()
        self.server.check_settings(self.installation, self.settings)
        self.account = account_for(self.server.accounts)

    @property
    def database_server(self) -> DatabaseServer:
        assert isinstance(self.server, DatabaseServer)
        return self.server

    @property
    def place(self) -> Place:
        log = self.directories.log
        return Place(
            data=self.directories.run / "data",
            log=log / "wal" if log else None,
            socket=self.directories.socket,
            account=self.account,
        )

    def device_paths(self) -> list[Path]:
        """Paths on the devices that take its I/O."""
        return [path for path in (self.directories.run, self.directories.log) if path]

    def event_log(self) -> EventLog | None:
        return self.server.event_log(self.place)

    @property
    def template(self) -> Template:
        return Template(directory=self.directories.template)

    @property
    def is_running(self) -> bool:
        """True if its process was started and has not ended."""
        return self._process is not None and self._process.exit_status is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def group(self) -> ProcessGroup:
        assert self._group is not None
        return self._group

    def create_directories(self) -> None:
        """Create the directories; the run's are empty afterwards."""
        self.directories.create(self.account)
        self.directories.empty()
        self.place.socket.mkdir(mode=0o700, exist_ok=True)
        self.place.socket.chmod(0o700)  # Who may connect: MariaDB allows every user who can reach its socket.
        self.account.own(self.place.socket)

    def provision(self) -> None:
        self.create_directories()
        self.server.provision(self.installation, self.place, self.settings)

    def keep_as_template(self, facts: dict[str, Any]) -> None:
        """Move the data directory of the stopped server to the template; its log must be in the data directory."""
        assert not self.is_running and self.directories.log is None
        self.template.discard()
        self.place.data.rename(self.template.data)
        self.template.seal(facts)

    def restore(self) -> dict[str, Any]:
        """Copy the template to the data directory; a damaged template is discarded. Facts for the record."""
        self.create_directories()
        try:
            restored = self.template.restore(self.place.data)
        except ServerError as error:
            if error.code == "template_damaged":
                self.template.discard()
            raise
        if self.place.log:
            self.database_server.move_log(self.place)
        return restored

    def start(self) -> None:
        """Start it and wait until it accepts connections; `ServerError` with its last message if it does not."""
        assert not self.is_running
        self._group = self._group or ProcessGroup.make(self.limit_bytes, swap_bytes=self.swap_bytes)
        self.server.configure(self.installation, self.place, self.settings)
        self._process = ServerProcess.start(
            self.server.command(self.installation, self.place, self.settings),
            account=self.account,
            entry=self.place.data,
            messages=self.place.server_log,
            group=self._group,
        )
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Connect until that succeeds."""
        timeout_s = self.server.ready_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            if not self.is_running:
                raise self.failure("ended while it started")
            try:
                self.connect().close()
                return
            except ServerError as error:
                if time.monotonic() > deadline:
                    raise self.failure(f"did not accept connections within {timeout_s:.0f} s: {error.what}") from None
            self.check()
            time.sleep(POLL_S)

    def address(self, database: str = "") -> Address:
        return self.server.address(self.place, database)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which the engine can log in."""
        variable = self.server.password_variable
        return {variable: str(self.address().password)} if variable else {}

    def connect(self, database: str = "") -> Connection:
        return self.server.connect(self.address(database))

    def describe(self) -> dict[str, Any]:
        """For the record: version, build, effective settings, open files, account."""
        with closing(self.connect()) as connection:
            description = self.server.describe(connection)
        files = self.open_files()
        return {
            "kind": self.server.name,
            "title": self.server.title if self.installation.flavor != "MySQL" else "MySQL InnoDB",
            "build": self.installation.build,
            **description,
            "set": dict(self.settings),
            "user": self.account.name,
            "open_files": files,
            "io_modes": summary(files),
            "managed": True,
        }

    def open_files(self) -> list[dict[str, Any]]:
        """Flags of its open data and log files."""
        log = self.directories.log
        return open_files(self.pid, [self.place.data, *([log] if log else [])])

    def stop(self, timeout_s: float = STOP_S, check: Callable[[], None] | None = None) -> bool:
        """Shut it down; kill it after the timeout. Returns whether the shutdown was orderly; may be called again."""
        if self._process is None:
            return True
        orderly = self._process.stop(self.server.stop_signal, timeout_s, self.server.stop_statuses, check)
        self._process = None
        return orderly

    def stop_after_load(self) -> None:
        """Shut it down, which may take long; `ServerError` if it had to be killed, or if waiting was stopped."""
        if not self.stop(LOAD_STOP_S, self.check):
            raise self.failure("did not shut down after loading")

    def kill(self) -> None:
        """Kill it at once, as a crash does; may be called again."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def remove(self) -> None:
        """Kill it and remove everything but the template; may be called again."""
        self.kill()
        if self._group:
            self._group.remove()
            self._group = None
        self.directories.empty()
        self.directories.remove_socket()

    def failure(self, what: str) -> ServerError:
        """An error of this server, with the cause that its messages and its control group show."""
        message = self.last_message()
        memory = self._group.facts()["memory"] if self._group else None
        code, hint = "server", "see its messages above, and correct its settings"
        cause = self.server.cause(self.messages(), self.settings)
        if memory and memory["oom_kills"]:
            code = "out_of_memory"
            message = f"the kernel killed it at its memory limit of {format_bytes(memory['limit_bytes'])}"
            swap = ", or provide more swap" if self.swap_bytes else ""
            hint = f"raise `memory_limit`, or lower `{self.server.data_setting}` and the number of connections{swap}"
        elif cause:
            code, message, hint = cause.code, cause.what, cause.hint
        elif programs.report_full_disk(self.messages()):
            code, hint = "no_space", "name a target with more room, or use fewer records or warehouses"
        return ServerError(f"{self.server.title} {what}", where=message, hint=hint, code=code)

    def messages(self) -> str:
        """Its own messages, the end of a long file."""
        with suppress(OSError):
            return self.place.server_log.read_text(errors="replace", encoding="utf-8")[-20_000:]
        return ""

    def last_message(self) -> str:
        """The last line that reports an error, else the last line."""
        lines = [line for line in self.messages().splitlines() if line.strip()]
        errors = [line for line in lines if re.search(r"FATAL|PANIC|\[ERROR\]|ERROR:|No space", line)]
        return (errors or lines or [""])[-1]


FLAGS = {"O_DIRECT": os.O_DIRECT, "O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC}

MOST = 20
"""Files of each kind that a record lists."""

OTHERS = ("aria_log", "ddl_", "multi-master", "server.pid", "postmaster")
"""Names of files that hold neither data nor log of the measured engine: other engines' logs, process numbers."""

OTHER_SUFFIXES = (".MAD", ".MAI", ".MYD", ".MYI", ".frm", ".CSV", ".CSM")
"""System tables of MariaDB in other engines."""

LOGS = ("pg_wal", "ib_logfile", "#ib_redo", "wal/", "commitlog/")


def open_files(leader: int, directories: list[Path]) -> list[dict[str, Any]]:
    """Files and devices below these directories that the server has open: path, `data`, `log` or `other`, and flags.

    The flags show if direct I/O is in effect. `/proc/PID/fdinfo` has them for each descriptor in octal
    (proc_pid_fdinfo(5)). Every process of the server is read, because PostgreSQL has one per connection.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for number in [leader, *descendants(leader)]:
        for path, flags in _descriptors(number):
            root = next((each for each in directories if path.is_relative_to(each)), None)
            if root is None or not (path.is_file() or path.is_block_device()):
                continue
            names = [name for name, bits in FLAGS.items() if flags & bits == bits]
            names = [name for name in names if not (name == "O_DSYNC" and "O_SYNC" in names)]
            relative = str(path.relative_to(root))
            kind = _kind(path)
            found.setdefault((relative, kind), {"file": relative, "kind": kind, "flags": names})
    ordered = sorted(found.values(), key=lambda each: str(each["file"]))
    return [each for kind in ("data", "log", "other") for each in [x for x in ordered if x["kind"] == kind][:MOST]]


def summary(files: list[dict[str, Any]]) -> dict[str, str]:
    """`direct`, `buffered` or `mixed` for data and log files that are open."""
    kinds = {}
    for kind in ("data", "log"):
        direct = {"O_DIRECT" in each["flags"] for each in files if each["kind"] == kind}
        if direct:
            kinds[kind] = "mixed" if len(direct) > 1 else "direct" if direct == {True} else "buffered"
    return kinds


def _kind(path: Path) -> str:
    if any(each in str(path) for each in LOGS):
        return "log"
    return "other" if path.name.startswith(OTHERS) or path.suffix in OTHER_SUFFIXES else "data"


def _descriptors(number: int) -> list[tuple[Path, int]]:
    found = []
    with suppress(OSError):
        for link in Path(f"/proc/{number}/fd").iterdir():
            with suppress(OSError, ValueError):
                lines = Path(f"/proc/{number}/fdinfo/{link.name}").read_text(encoding="utf-8").splitlines()
                flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
                found.append((link.readlink(), flags))
    return found
