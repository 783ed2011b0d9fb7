"""MongoDB, as a server that the user runs: databases are created and dropped here, and the engine does the rest.

A database of MongoDB exists once it has a collection. Those that iosonde creates have one with a document that shows it
(`crates/kv/src/mongodb`), so that neither the engine nor a later session writes to any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from iosonde.errors import ServerError
from iosonde.study.servers.server import Address

if TYPE_CHECKING:
    from pymongo import MongoClient

OWNER = "iosonde"
"""The collection that shows who created a database."""

CREATED_BY = "created_by"
"""The `_id` of its document."""

DEFAULT_AUTH_SOURCE = "admin"
"""Database of the user account."""

CONNECT_MS = 10_000

ABSENT_S = 1.0
"""Seconds that a dropped database must stay absent; within them, a last batch of a stopped engine recreates it."""

DROP_S = 60.0
"""Timeout of dropping a database."""

POLL_S = 0.1


class MongoDb:
    """A client for administration."""

    def __init__(self, *, auth_source: str = DEFAULT_AUTH_SOURCE) -> None:
        self._auth_source = auth_source

    def connect(self, address: Address) -> _Connection:
        """Connect to exactly this server, also if it is a member of a replica set."""
        import pymongo
        from pymongo.errors import PyMongoError

        login: dict[str, Any] = {}
        if address.user:
            login = {"username": address.user, "password": address.password, "authSource": self._auth_source}
        if address.user and address.password is None:
            raise ServerError(
                f"the user `{address.user}` of MongoDB has no password",
                where=f"at `{address.host}`",
                hint="set the environment variable `MONGODB_PASSWORD`",
                code="authentication",
            )
        try:
            opened: MongoClient[dict[str, Any]] = pymongo.MongoClient(
                address.host, address.port, directConnection=True, appname="iosonde", retryWrites=False,
                serverSelectionTimeoutMS=CONNECT_MS, connectTimeoutMS=CONNECT_MS, **login,
            )  # fmt: skip
            opened.admin.command("ping")
        except PyMongoError as error:
            _fail(error, address)
        return _Connection(opened, address)

    def create_database(self, connection: _Connection, name: str) -> None:
        """A database with the document that shows who created it."""
        if name in connection.database_names():
            raise ServerError(
                f"the database `{name}` already exists and was not created by iosonde",
                hint="it was not changed; drop it, or name another server",
                code="foreign_data",
            )
        connection.mark(name)

    def drop_database(self, connection: _Connection, name: str) -> None:
        """Drop it if iosonde created it; an absent one is no error, and any other one is `foreign_data`.

        MongoDB creates a database with the first insert. The server may still carry out a batch of an engine that was
        stopped, and would create the database again: it is dropped until it stays absent.
        """
        if name not in connection.database_names():
            return
        if not connection.has(name, OWNER, CREATED_BY):
            raise ServerError(
                f"the database `{name}` has no document `{CREATED_BY}` in the collection `{OWNER}`, so iosonde did not "
                "create it, and it was not dropped",
                where=f"at `{connection.server}`",
                hint=f"to drop it: `db.getSiblingDB('{name}').dropDatabase()` in `mongosh`",
                code="foreign_data",
            )
        deadline = time.monotonic() + DROP_S
        while time.monotonic() < deadline:
            connection.drop(name)
            if _stays_absent(connection, name):
                return
        connection.mark(name)  # So that a later attempt drops it.
        raise ServerError(
            f"the database `{name}` exists again each time that it is dropped: a client still inserts into it",
            where=f"at `{connection.server}`",
            hint="end that client",
        )


def _stays_absent(connection: _Connection, name: str) -> bool:
    """Return True if a dropped database does not exist again for a while.

    Polls are counted instead of time: in a pause of the machine, the server does not run either.
    """
    for _ in range(round(ABSENT_S / POLL_S)):
        if name in connection.database_names():
            return False
        time.sleep(POLL_S)
    return name not in connection.database_names()


class _Connection:
    def __init__(self, opened: MongoClient[dict[str, Any]], address: Address) -> None:
        self._opened = opened
        self._address = address

    @property
    def server(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Names and values that a command on the database `admin` returns."""
        return list(self._run(lambda: self._opened.admin.command(statement)).items())

    def database_names(self) -> list[str]:
        """Databases that this user may see."""
        return list(self._run(self._opened.list_database_names))

    def mark(self, database: str) -> None:
        """Insert the document that shows who created the database, unless it is there; acknowledged by the journal."""
        from pymongo import WriteConcern

        if not self.has(database, OWNER, CREATED_BY):
            records = self._opened[database].get_collection(OWNER, write_concern=WriteConcern(w=1, j=True))
            self._run(lambda: records.insert_one({"_id": CREATED_BY, "program": "iosonde"}))

    def has(self, database: str, collection: str, key: str) -> bool:
        """Return True if there is a document with this `_id`."""
        return self._run(lambda: self._opened[database][collection].find_one({"_id": key})) is not None

    def drop(self, database: str) -> None:
        self._run(lambda: self._opened.drop_database(database))

    def close(self) -> None:
        self._opened.close()

    def _run(self, operation: Any) -> Any:
        from pymongo.errors import PyMongoError

        try:
            return operation()
        except PyMongoError as error:
            _fail(error, self._address)


def _fail(error: Exception, address: Address) -> NoReturn:
    """The driver's or the server's error, in their words."""
    from pymongo.errors import ConnectionFailure, OperationFailure

    server = f"{address.host}:{address.port}"
    if isinstance(error, OperationFailure) and error.code in (13, 18):
        message = f"MongoDB denied access: {(error.details or {}).get('errmsg', error)}"
        hint = "correct the user in the address and `MONGODB_PASSWORD`; the user needs the role `readWriteAnyDatabase`"
        raise ServerError(message, where=f"at `{server}`", hint=hint, code="authentication") from None
    if isinstance(error, ConnectionFailure):
        reason = str(error).partition(" (configured timeouts")[0]
        hint = "see whether the server is running, and whether it requires encryption, which is not supported"
        raise ServerError(
            f"cannot connect to MongoDB: {reason}", where=f"at `{server}`", hint=hint, code="connection_refused"
        ) from None
    raise ServerError(f"MongoDB: {error}", where=f"at `{server}`", hint="see the server's own messages") from None
