"""Cassandra: settings of the node that iosonde starts, table options, and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.features.key_value_stores.fields import CLIENT_OPTIONS
from iosonde.features.key_value_stores.notation import OptionValue, operations_of
from iosonde.features.key_value_stores.phases import PHASES

if TYPE_CHECKING:
    from iosonde.features.key_value_stores.fields import KvFields
    from iosonde.storage import Target

CASSANDRA = "cassandra"

SMALLEST_HEAP = 16 << 20

REPLICATION = "replication_factor"
"""Copies of each record on a running cluster, in `cassandra`."""

DEFAULT_MODE = "periodic"
"""Commit log sync mode of a node that iosonde starts, unless the study sets it."""

BY_PARAMETER = ("commitlog_sync",)
"""Settings of the node that are parameters of the workload."""


def server_settings(parameters: Mapping[str, Any]) -> dict[str, OptionValue]:
    """Settings of the node by its own names, and the heap of its virtual machine."""
    from iosonde.features.key_value_stores.cassandra.server import HEAP

    given: dict[str, OptionValue] = dict(parameters["cassandra"])
    mode = str(parameters["commitlog_sync"] or DEFAULT_MODE)
    return {**given, "commitlog_sync": mode, HEAP: int(parameters["heap_size"])}


def replicas_of(parameters: Mapping[str, Any]) -> int:
    """Copies of each record on a running cluster."""
    return int(parameters["cassandra"].get(REPLICATION, 1))


def check_place(stream: KvFields, target: Target) -> None:
    """Raise unless a node can be started on the target with these settings. Nothing is written."""
    target.require_directory("Cassandra needs a file system", parameter="store")
    from iosonde.features.key_value_stores.cassandra.server import Cassandra
    from iosonde.workload.servers import check_reachable

    server = Cassandra()
    server.check_settings(server.locate(), server_settings(stream.model_dump()))
    check_reachable(server.accounts, target, stream.log_target if stream.log == "apart" else None)


def rules(stream: KvFields) -> list[tuple[bool, str]]:
    """Conditions, and the error if one is true."""
    if stream.store != CASSANDRA:
        return [
            (stream.compaction is not None, f"`compaction` is for `cassandra`, not `{stream.store}`"),
            (bool(stream.cassandra), f"`cassandra` has settings for the store `cassandra`, not `{stream.store}`"),
        ]
    kinds = {name for name, _ in operations_of(stream.operations or PHASES[stream.phase].operations)}
    chosen = [name for name in BY_PARAMETER if name in stream.cassandra]
    is_synced_later = not stream.is_running_server and (stream.commitlog_sync or DEFAULT_MODE) == "periodic"
    of_node = sorted(set(stream.cassandra) - {*CLIENT_OPTIONS, REPLICATION})
    of_client = sorted(set(stream.cassandra) & {REPLICATION})
    return [
        (stream.is_running_server and bool(of_node),
         f"settings of a running server are not changed: leave out `{of_node[0] if of_node else ''}`; `cassandra` has "
         f"options of the client here ({', '.join((*CLIENT_OPTIONS, REPLICATION))})"),
        (not stream.is_running_server and bool(of_client), f"`{REPLICATION}` is for a running server (`server_url`)"),
        (not _is_count(stream.cassandra.get(REPLICATION, 1)), f"`{REPLICATION}` is a whole number from 1 to 16"),
        (bool(kinds & {"scan", "iterate"}),
         "`cassandra` orders records by the hash of their keys, so it cannot be scanned by key: use `read`, `update`, "
         "`insert` and `delete`"),
        (bool(chosen), f"`{chosen[0] if chosen else ''}` of Cassandra is a parameter of its own"),
        (stream.reopen, "`cassandra` is started for each run: leave out `reopen`"),
        ((stream.sync or stream.load_sync) and is_synced_later,
         "with `commitlog_sync = \"periodic\"` Cassandra acknowledges writes before they are synced: use `batch` or "
         "`group`, or leave out `sync` and `load_sync`"),
        (stream.heap_size < SMALLEST_HEAP, "`heap_size` is at least 16 MiB"),
        (stream.phase == "trace", "a trace cannot be replayed on `cassandra`"),
    ]  # fmt: skip


def _is_count(value: OptionValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 16
