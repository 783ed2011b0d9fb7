"""Servers that the user runs: addresses such as `postgresql://USER@HOST:PORT`, and the database of a study on one.

A password in an address is refused, because addresses are recorded. Passwords come from where the servers' own clients
find them (`PGPASSWORD`, `PGPASSFILE` and `~/.pgpass`; `MYSQL_PWD` and `~/.my.cnf`), or from environment variables. A
database or bucket is created for a study, in the journal, and dropped at its end.
"""

from __future__ import annotations

import configparser
import getpass
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from iosonde.base.features import contributed
from iosonde.errors import ServerError
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import DATABASE_ON_SERVER, DATABASES, Entry
from iosonde.study import servers
from iosonde.study.servers.server import Address, Connection, DatabaseHost

if TYPE_CHECKING:
    from iosonde.plan import Case, JsonObject, Plan


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


class _Sql(ServerKind):
    has_sql = True

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        return servers.named(self.name)


class _PostgreSql(_Sql):
    name = "postgresql"
    schemes = ("postgresql", "postgres")
    port = 5432
    passwords = "`PGPASSWORD` or `~/.pgpass`"

    def password(self) -> None:
        """libpq reads them itself."""


class _MariaDb(_Sql):
    name = "mariadb"
    schemes = ("mariadb", "mysql")
    port = 3306
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


@cache
def kinds() -> Mapping[str, ServerKind]:
    """All kinds by name."""
    of_features: tuple[ServerKind, ...] = contributed("workload", "SERVERS")
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


RESTART_S = 15.0
POLL_S = 0.1

DATABASE_NAME = re.compile(r"iosonde[_-][0-9a-f]{8}")
"""Names of buckets have a hyphen."""


def require_consent(plan: Plan, confirmed: Sequence[str]) -> None:
    """Raise `ServerError` unless the user has named every database that the plan creates on a server of theirs.

    Also where a spec names another server than its case does: the plan of a result set may have been edited.
    """
    missing: dict[str, list[str]] = {}
    for case in plan.cases:
        url = case.parameters.get("server_url")
        specs = [run.spec for run in plan.runs if run.case_id == case.case_id]
        for spec in [*specs, *([case.procedure.spec] if case.procedure else [])] if url else ():
            name = _name_of(spec, str(url), case)
            of_server = missing.setdefault(str(url), [])
            if name not in confirmed and name not in of_server:
                of_server.append(name)
    if any(missing.values()):
        creations = (
            f"the {noun_of(url)}{'s' * (len(names) > 1)} {', '.join(f'`{name}`' for name in names)} "
            f"would be created on `{url}`"
            for url, names in missing.items()
            if names
        )
        options = (f"--confirm {name}" for names in missing.values() for name in names)
        raise ServerError(
            f"{' and '.join(creations)}, and dropped at the end",
            hint=f"allow that with `{' '.join(options)}`",
            code="consent",
        )


def require_servers(plan: Plan, given: Sequence[str]) -> None:
    """Raise `ServerError` unless the user has named every server of a plan: passwords are sent to it.

    For a plan that exists already: its addresses may have been edited.
    """
    named = {parse(each).text for each in given}
    for case in plan.cases:
        url = str(case.parameters.get("server_url") or "")
        if url and parse(url).text not in named:
            raise ServerError(
                f"the command must name the server of the result set, `{url}`",
                where=f"in case `{case.case_id}`",
                hint="repeat the option `--server` of `iosonde run`; if the address is not yours, the result set may "
                "have been tampered with",
                code="consent",
            )


def noun_of(url: str) -> str:
    """Return the word for the container on a server: `database`, `keyspace` or `bucket`."""
    return kinds()[parse(url).kind].noun


def _name_of(spec: JsonObject, text: str, case: Case) -> str:
    """Name of the database in a spec; `ServerError` unless the spec is on that server."""
    try:
        url, workload = parse(text), spec["workload"]
        kind = kinds()[url.kind]
        is_right, name = kind.is_used(url, workload, case.parameters), kind.database_of(workload)
    except (KeyError, TypeError, ValueError):
        is_right, name = False, ""
    if not is_right or not DATABASE_NAME.fullmatch(name):
        raise ServerError(
            "the plan names a server or database that does not belong to this result set; nothing was written",
            where=f"in case `{case.case_id}`, whose server is `{text}`",
            hint="the result set may have been tampered with; to measure here, run the study again",
        )
    return name


def create(
    host: DatabaseHost, url: ServerUrl, database: str, *, own: str, client: Mapping[str, str] | None = None
) -> None:
    """Create it unless this session has; `ServerError` (`foreign_data`) if it exists otherwise.

    That of a session that was killed is dropped first, by its entry in the journal.
    `client` has the options of the client (`ServerKind.client_options`) that dropping it needs as well.
    """
    entry = journal.find(DATABASES / database)
    if entry and entry.is_mine:
        return
    journal.undo_abandoned(DATABASES / database)
    with closing(host.connect(url.address())) as connection:
        facts = {"url": url.text, "database": database, "own": own, **(client or {})}
        journal.created(DATABASES / database, DATABASE_ON_SERVER, facts=facts)
        try:
            host.create_database(connection, database)
        except ServerError:
            journal.removed(DATABASES / database)
            raise


def drop_all(own: str) -> None:
    """Drop the databases of a session."""
    for entry in journal.entries():
        if entry.what == DATABASE_ON_SERVER and entry.is_mine and entry.facts.get("own") == own:
            noun = noun_of(str(entry.facts["url"]))
            with journal.undoing(f"drop the {noun} `{entry.facts['database']}`"):
                journal.undo(Path(entry.path))


def _connect(host: DatabaseHost, url: ServerUrl) -> Connection:
    """Connect, and wait for a server that its user has just restarted."""
    deadline = time.monotonic() + RESTART_S
    while True:
        try:
            return host.connect(url.address())
        except ServerError as error:
            if error.code == "authentication" or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def undo(entry: Entry) -> None:
    """Drop the database of an entry; `OSError` if the server cannot be reached, not even after a restart."""
    try:
        url = parse(str(entry.facts["url"]))
    except ValueError as error:
        raise OSError(str(error)) from error
    host = kinds()[url.kind].host(entry.facts)
    try:
        with closing(_connect(host, url)) as connection:
            host.drop_database(connection, str(entry.facts["database"]))
    except ServerError as error:
        # `cleanup` may run long after the session, so the message has the database too.
        named = f" (the {noun_of(url.text)} `{entry.facts['database']}` on `{url.text}`)"
        what = error.what if url.text in error.what else f"{error.what}{named}"
        raise OSError(f"{what}; {error.hint}" if error.hint else what) from error
