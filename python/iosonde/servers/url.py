"""Addresses of servers that the user runs, such as `postgresql://USER@HOST:PORT`, by the kinds of such servers.

A password in an address is refused, because addresses are recorded. Passwords come from where the servers' own clients
find them (`PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`; `MYSQL_PWD` and `~/.my.cnf`), or from environment variables.
"""

from __future__ import annotations

import configparser
import getpass
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from iosonde.core.features import contributed
from iosonde.servers.server import Address

if TYPE_CHECKING:
    from iosonde.servers.server import DatabaseHost

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?|/[^\x00-\x1f\x7f]*")
"""A name, an address, or the path of a Unix socket. Clients take other texts for lists of hosts or for addresses with
options of their own, such as the files of a certificate."""
_USER = re.compile(r"[^\x00-\x1f\x7f@:/]*")


@dataclass(frozen=True, kw_only=True)
class ServerUrl:
    """Address of a running server, without secrets."""

    kind: str
    user: str
    """Empty where a server requires none."""
    host: str
    """Host name, or the path of a Unix socket (of PostgreSQL: its directory)."""
    port: int

    @property
    def text(self) -> str:
        """As it is recorded."""
        host = f"[{self.host}]" if ":" in self.host else self.host.replace("/", "%2F")
        user = f"{self.user}@" if self.user else ""
        return f"{kinds()[self.kind].schemes[0]}://{user}{host}:{self.port}"

    def engine_address(self) -> dict[str, Any]:
        """As the engine's spec has it."""
        if not self.host.startswith("/"):
            return {"kind": "tcp", "host": self.host, "port": self.port}
        path = f"{self.host}/.s.PGSQL.{self.port}" if self.kind == "postgresql" else self.host
        return {"kind": "unix", "path": path}

    def address(self, database: str = "") -> Address:
        """For a client of Python's, with the password of the user's own files."""
        default = "postgres" if self.kind == "postgresql" else ""
        password = kinds()[self.kind].password()
        return Address(host=self.host, port=self.port, user=self.user, database=database or default, password=password)


class ServerKind:
    """A kind of server that the user runs; that of a feature is listed in `KINDS` of its `addresses.py`.

    iosonde creates databases on it. Arguments called `workload` are that part of an engine's spec.
    """

    name = ""
    schemes: Sequence[str] = ()
    """Of its addresses, the recorded one first."""
    port = 0
    """Default of an address without one."""
    noun = "database"
    """Word for a container of data on it."""
    has_sql = False
    """Its addresses have a user, by default the one who runs iosonde, and may be Unix sockets."""
    passwords = ""
    """Source of passwords, for hints; of servers without SQL an environment variable."""

    def check(self, parts: SplitResult) -> None:
        """`ValueError` for an address that only other kinds can have."""

    def password(self) -> str | None:
        """The password of the user; None if there is none, or if the client finds it itself."""
        return os.environ.get(self.passwords.strip("`"))

    def client_options(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        """Options of the client in the parameters of a case; dropping the database needs them too."""
        return {}

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        """The client that creates and drops databases, from `client_options`."""
        raise NotImplementedError

    def creating_host(self, parameters: Mapping[str, Any]) -> DatabaseHost:
        """The same for a case, where only creating a database needs more."""
        return self.host(self.client_options(parameters))

    def require(self, url: ServerUrl, parameters: Mapping[str, Any]) -> None:
        """`ServerError` unless the server has the settings that a case requires."""

    def database_of(self, workload: Mapping[str, Any]) -> str:
        """Name of the database that a workload uses; `KeyError` or `TypeError` for a malformed one."""
        return str(workload["server"]["database"])

    def is_used(self, url: ServerUrl, workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
        """Return True if a workload uses exactly this server; errors as above."""
        server = workload["server"]
        return (server["kind"], server["user"], server["address"]) == (url.kind, url.user, url.engine_address())


class _PostgreSql(ServerKind):
    name = "postgresql"
    schemes = ("postgresql", "postgres")
    port = 5432
    has_sql = True
    passwords = "`PGPASSWORD` or `~/.pgpass`"

    def password(self) -> None:
        """libpq reads them itself."""

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.servers.postgresql import PostgreSql

        return PostgreSql()


class _MariaDb(ServerKind):
    name = "mariadb"
    schemes = ("mariadb", "mysql")
    port = 3306
    has_sql = True
    passwords = "`MYSQL_PWD` or `~/.my.cnf`"

    def password(self) -> str | None:
        if "MYSQL_PWD" in os.environ:
            return os.environ["MYSQL_PWD"]
        options = configparser.ConfigParser(allow_no_value=True, interpolation=None, strict=False)
        with suppress(configparser.Error, OSError):
            options.read(Path("~/.my.cnf").expanduser())
            for section in ("client", "mysql", "mariadb"):
                found = options.get(section, "password", fallback=None)
                if found is not None:
                    return found.strip("'\"")
        return None

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.servers.mariadb import MariaDb

        return MariaDb()


@cache
def kinds() -> Mapping[str, ServerKind]:
    """All kinds by name."""
    of_features: tuple[ServerKind, ...] = contributed("addresses", "KINDS")
    return {each.name: each for each in (_PostgreSql(), _MariaDb(), *of_features)}


def parse(text: str) -> ServerUrl:
    """Read an address; `ValueError` with the reason where it is invalid."""
    parts = urlsplit(text)
    kind = next((each for each in kinds().values() if parts.scheme in each.schemes), None)
    if kind:
        kind.check(parts)
    if not kind or (not parts.hostname and not unquote(parts.netloc)):
        raise ValueError(
            f"invalid server address `{_without_password(text)}`; write it like `postgresql://me@host:5432`"
        )
    if parts.password is not None:
        raise ValueError(f"the address contains a password, which would be recorded; use {kind.passwords}")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            f"the address must name a server only, got `{text}`; iosonde creates a database of its own there"
        )
    try:
        port = parts.port or kind.port
    except ValueError:
        raise ValueError(f"`{text}` has no valid port") from None
    user, host = unquote(parts.username or ""), unquote(parts.hostname or "localhost")
    if not _HOST.fullmatch(host) or not _USER.fullmatch(user):
        raise ValueError(f"`{_without_password(text)[:80]}` has an invalid host or user name")
    if not kind.has_sql and host.startswith("/"):
        raise ValueError(f"`{text}` is a Unix socket; this server is reached over TCP only")
    user = user or getpass.getuser() if kind.has_sql else user
    return ServerUrl(kind=kind.name, user=user, host=host, port=port)


def _without_password(text: str) -> str:
    parts = urlsplit(text)
    return text.replace(f":{parts.password}@", ":***@") if parts.password else text
