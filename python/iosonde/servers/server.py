"""The interface of a server, and the values that describe one."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from iosonde.servers.programs import Account


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


@dataclass(frozen=True, kw_only=True)
class ServerDescription:
    """Description of a running server by itself."""

    version: str
    settings: Mapping[str, str]
    """All effective settings, with units."""
    changed: Sequence[str]
    """Names of settings that do not have their default."""

    def to_json(self) -> dict[str, object]:
        return {"version": self.version, "settings": dict(self.settings), "changed": list(self.changed)}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Cause of a server failure, from the server's messages."""

    code: str
    message: str
    hint: str


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

    def cause(self, messages: str, settings: Settings) -> Cause | None:
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
    def describe(self, connection: Connection) -> ServerDescription:
        """Version and all effective settings."""

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
    def drop_database(self, connection: Connection, name: str) -> None:
        """Remove a database that iosonde created."""

    @abstractmethod
    def finish_load(self, connection: Connection, check: Callable[[], None] = no_check) -> None:
        """Do what the server would otherwise do later in the background, after a bulk load.

        `check` is called while it waits, and raises `ServerError` to stop waiting.
        """
