"""Servers with key-value stores that the user runs: MongoDB, Cassandra and ScyllaDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.servers.foreign import ServerKind, ServerUrl

if TYPE_CHECKING:
    from iosonde.servers.server import DatabaseHost


def store_target(url: ServerUrl, database: str) -> dict[str, Any]:
    """A database on a server as the spec of a store has it."""
    user = {"user": url.user} if url.user else {}
    return {"kind": "server", "host": url.host, "port": url.port, "database": database, **user}


class _Store(ServerKind):
    def database_of(self, workload: Mapping[str, Any]) -> str:
        return str(workload["target"]["database"])

    def is_used(self, url: ServerUrl, workload: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
        expected = store_target(url, self.database_of(workload))
        return (workload["store"]["kind"], workload["target"]) == (url.kind, expected)


class _MongoDb(_Store):
    name = "mongodb"
    schemes = ("mongodb",)
    port = 27017
    passwords = "`MONGODB_PASSWORD`"

    def client_options(self, parameters: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(value) for name, value in parameters["mongodb"].items() if name == "auth_source"}

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.mongodb import DEFAULT_AUTH_SOURCE, MongoDb

        return MongoDb(auth_source=options.get("auth_source", DEFAULT_AUTH_SOURCE))


class _Cassandra(_Store):
    name = "cassandra"
    schemes = ("cql", "cassandra", "scylla")
    port = 9042
    noun = "keyspace"
    passwords = "`CASSANDRA_PASSWORD`"

    def host(self, options: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra

        return RunningCassandra()

    def creating_host(self, parameters: Mapping[str, Any]) -> DatabaseHost:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra
        from iosonde.features.key_value_stores.cassandra.settings import replicas_of

        return RunningCassandra(replicas=replicas_of(parameters))

    def require(self, url: ServerUrl, parameters: Mapping[str, Any]) -> None:
        from iosonde.features.key_value_stores.cassandra.server import RunningCassandra

        RunningCassandra().require_mode(url.address(), parameters["commitlog_sync"])


KINDS = (_MongoDb(), _Cassandra())
