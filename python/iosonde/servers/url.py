"""Addresses of servers that the user runs: `postgresql://USER@HOST:PORT`, `mariadb://USER@HOST:PORT`,
`mongodb://USER@HOST:PORT`, `cql://USER@HOST:PORT` (Cassandra and ScyllaDB), `s3://HOST:PORT` (also `http://`).

A password in an address is refused, because addresses are recorded. Passwords come from where the servers' own clients
find them: `PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`; `MYSQL_PWD` and `~/.my.cnf`. Clients of MongoDB and Cassandra
have no such place: here it is `MONGODB_PASSWORD` and `CASSANDRA_PASSWORD`. The credentials of S3 are in
`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
"""

from __future__ import annotations

import configparser
import getpass
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from iosonde.servers.connection import Address

Kind = Literal["postgresql", "mariadb", "mongodb", "cassandra", "s3"]

STORES: tuple[Kind, ...] = ("mongodb", "cassandra")
"""Servers without SQL, which are stores of key-value workloads. Their users are optional; they have no Unix socket."""

_KINDS: dict[str, Kind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mariadb": "mariadb",
    "mysql": "mariadb",
    "mongodb": "mongodb",
    "cql": "cassandra",
    "cassandra": "cassandra",
    "scylla": "cassandra",
    "s3": "s3",
    "http": "s3",
}
_WITHOUT_SQL: tuple[Kind, ...] = (*STORES, "s3")
_REFUSED = {
    "https": "an S3 server with encryption is not supported: write `http://HOST:PORT` or `s3://HOST:PORT`",
}
_PORTS = {"postgresql": 5432, "mariadb": 3306, "mongodb": 27017, "cassandra": 9042, "s3": 80}
_SCHEMES = {"cassandra": "cql"}
_PASSWORDS = {"mongodb": "MONGODB_PASSWORD", "cassandra": "CASSANDRA_PASSWORD"}


_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?|/[^\x00-\x1f\x7f]*")
"""A name, an address, or the path of a Unix socket. Clients take other texts for lists of hosts or for addresses with
options of their own, such as the files of a certificate."""
_USER = re.compile(r"[^\x00-\x1f\x7f@:/]*")


@dataclass(frozen=True, kw_only=True)
class ServerUrl:
    """Where a running server is; without secrets."""

    kind: Kind
    user: str
    """Empty where a server requires none (MongoDB, Cassandra)."""
    host: str
    """Host name, or the path of a Unix socket (of PostgreSQL: its directory)."""
    port: int

    @property
    def text(self) -> str:
        """As it is recorded."""
        host = f"[{self.host}]" if ":" in self.host else self.host.replace("/", "%2F")
        user = f"{self.user}@" if self.user else ""
        return f"{_SCHEMES.get(self.kind, self.kind)}://{user}{host}:{self.port}"

    def engine_address(self) -> dict[str, Any]:
        """As the engine's spec has it."""
        if not self.host.startswith("/"):
            return {"kind": "tcp", "host": self.host, "port": self.port}
        path = f"{self.host}/.s.PGSQL.{self.port}" if self.kind == "postgresql" else self.host
        return {"kind": "unix", "path": path}

    def store_target(self, database: str) -> dict[str, Any]:
        """As the spec of a key-value store has it."""
        user = {"user": self.user} if self.user else {}
        return {"kind": "server", "host": self.host, "port": self.port, "database": database, **user}

    def bucket(self, name: str, region: str) -> dict[str, Any]:
        """As the spec of a workload on objects has it."""
        return {"kind": "s3", "host": self.host, "port": self.port, "bucket": name, "region": region}

    def address(self, database: str = "") -> Address:
        """For a client of Python's, with the password of the user's own files."""
        default = "postgres" if self.kind == "postgresql" else ""
        return Address(
            host=self.host, port=self.port, user=self.user, database=database or default, password=_password(self)
        )


def parse(text: str) -> ServerUrl:
    """Read an address; `ValueError` with the reason where it is invalid."""
    parts = urlsplit(text)
    if parts.scheme in _REFUSED:
        raise ValueError(_REFUSED[parts.scheme])
    if parts.scheme not in _KINDS or (not parts.hostname and not unquote(parts.netloc)):
        raise ValueError(
            f"invalid server address `{_without_password(text)}`; write it like `postgresql://me@host:5432`"
        )
    if parts.password is not None:
        raise ValueError(
            "the address contains a password, which would be recorded; use `PGPASSWORD` or `~/.pgpass`, `MYSQL_PWD` or "
            "`~/.my.cnf`, `MONGODB_PASSWORD`, `CASSANDRA_PASSWORD`"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            f"the address must name a server only, got `{text}`; iosonde creates a database of its own there"
        )
    kind = _KINDS[parts.scheme]
    try:
        port = parts.port or _PORTS[kind]
    except ValueError:
        raise ValueError(f"`{text}` has no valid port") from None
    user, host = unquote(parts.username or ""), unquote(parts.hostname or "localhost")
    if not _HOST.fullmatch(host) or not _USER.fullmatch(user):
        raise ValueError(f"`{_without_password(text)[:80]}` has an invalid host or user name")
    if kind in _WITHOUT_SQL and host.startswith("/"):
        raise ValueError(f"`{text}` is a Unix socket; this server is reached over TCP only")
    if kind == "s3" and user:
        raise ValueError(
            f"`{text}` names a user; S3 has credentials in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
        )
    user = user if kind in _WITHOUT_SQL else user or getpass.getuser()
    return ServerUrl(kind=kind, user=user, host=host, port=port)


def _without_password(text: str) -> str:
    parts = urlsplit(text)
    return text.replace(f":{parts.password}@", ":***@") if parts.password else text


def _password(server: ServerUrl) -> str | None:
    if server.kind == "postgresql":
        return None  # libpq reads `PGPASSWORD` and `~/.pgpass` itself.
    if server.kind in _PASSWORDS:
        return os.environ.get(_PASSWORDS[server.kind])
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
