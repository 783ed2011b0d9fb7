"""Streams and target of a spec, whatever its workload: a workload on a database server has neither in its spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_CONNECTIONS = {"tpcc": "terminals", "commit": "clients"}
"""Workloads on a server -> the name of their stream, which is that of the parameter with its size."""


def streams_of(workload: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The streams of a load, each with name, jobs and arrival at least."""
    if workload["kind"] == "paging":
        return [{**stream, "arrival": {"kind": "closed"}} for stream in workload["streams"]]
    if workload["kind"] == "graph":
        return [{"name": "main", "jobs": workload["jobs"], "arrival": {"kind": "closed"}, **workload["reading"]}]
    name = _CONNECTIONS.get(workload["kind"])
    if name is None:
        streams: Sequence[Mapping[str, Any]] = workload.get("streams", [])
        return streams
    measurement = workload.get("measurement")
    return [{"name": name, "jobs": measurement[name], "arrival": measurement["arrival"]}] if measurement else []


def target_of(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the engine opens; of a workload on a server only its kind, `server`."""
    found: Mapping[str, Any] = workload.get("target") or {"kind": "server"}
    return found


def starts_cassandra(workload: Mapping[str, Any]) -> bool:
    """Whether the load is applied to a node of Cassandra that iosonde starts."""
    is_cassandra = workload["kind"] == "kv" and workload["store"]["kind"] == "cassandra"
    return bool(is_cassandra and target_of(workload)["kind"] == "directory")


def is_on_cache(workload: Mapping[str, Any]) -> bool:
    """Whether the load is applied to a cache server, which iosonde starts."""
    return bool(workload["kind"] == "kv" and target_of(workload)["kind"] == "socket")


def is_on_store_server(workload: Mapping[str, Any]) -> bool:
    """Whether the load is applied to a key-value store in a server, whether iosonde starts it or the user."""
    return starts_cassandra(workload) or bool(
        workload["kind"] == "kv" and target_of(workload)["kind"] in ("socket", "server")
    )


def is_on_server(workload: Mapping[str, Any]) -> bool:
    """Whether the load is applied to a server that is no cache: a database server or an object store."""
    return workload["kind"] in _CONNECTIONS or is_on_object_store(workload)


def is_on_object_store(workload: Mapping[str, Any]) -> bool:
    """Whether the load is applied to an object store: a cluster that iosonde starts, or a server of the user."""
    return bool(workload["kind"] == "objects")
