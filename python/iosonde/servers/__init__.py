"""Servers that iosonde starts privately for a measurement: one file per server, all with the interface `server.Server`.

`named` returns a database server by the name that studies use; `memcached.py` has the cache. `foreign` returns what
creates databases on a server that the user runs. What servers share is next to them: the account they run under, their
process and control groups, their directories, their template, and what a session does with one (`instance.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from iosonde.servers.server import DatabaseHost, DatabaseServer
    from iosonde.servers.url import Kind

Name = Literal["postgresql", "mariadb"]

NAMES: tuple[Name, ...] = get_args(Name)


def named(name: Name) -> DatabaseServer:
    """The database server of that name."""
    from iosonde.servers.mariadb import MariaDb
    from iosonde.servers.postgresql import PostgreSql

    known: dict[Name, type[DatabaseServer]] = {"postgresql": PostgreSql, "mariadb": MariaDb}
    return known[name]()


def foreign(kind: Kind, client: Mapping[str, str] | None = None) -> DatabaseHost:
    """Return the database host for a server of that kind that the user runs.

    `client` has options of the client by name; those of other kinds of servers have no effect.
    """
    options = client or {}
    if kind == "mongodb":
        from iosonde.servers.mongodb import DEFAULT_AUTH_SOURCE, MongoDb

        return MongoDb(auth_source=options.get("auth_source", DEFAULT_AUTH_SOURCE))
    if kind == "cassandra":
        from iosonde.servers.cassandra import RunningCassandra

        return RunningCassandra()
    if kind == "s3":
        from iosonde.servers.s3 import DEFAULT_REGION, S3

        return S3(region=options.get("region", DEFAULT_REGION))
    return named(kind)
