"""What is particular to Cassandra: settings of the node that iosonde starts, options of its table, and rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.errors import TargetError
from iosonde.workload.kv.notation import OptionValue, operations_of
from iosonde.workload.kv.phases import PHASES

if TYPE_CHECKING:
    from iosonde.storage import Target
    from iosonde.workload.kv.fields import KvFields

CASSANDRA = "cassandra"

SMALLEST_HEAP = 16 << 20

BY_PARAMETER = ("commitlog_sync",)
"""Settings of the node that are parameters of the workload."""


def server_settings(parameters: Mapping[str, Any]) -> dict[str, OptionValue]:
    """Settings of the node by its own names, and the heap of its virtual machine."""
    from iosonde.servers.cassandra import HEAP

    given: dict[str, OptionValue] = dict(parameters["cassandra"])
    return {**given, "commitlog_sync": str(parameters["commitlog_sync"]), HEAP: int(parameters["heap_size"])}


def check_place(stream: KvFields, target: Target) -> None:
    """Raise unless a node can be started on the target with these settings. Nothing is written."""
    if target.kind != "directory":
        raise TargetError(
            f"`{target.name}` is no directory, and Cassandra needs a file system",
            where="by the parameter `store`",
            hint="name a directory as the target, or create a file system on the device with `--set file_system=ext4`",
        )
    from iosonde.servers.cassandra import Cassandra

    server = Cassandra()
    server.check_settings(server.locate(), server_settings(stream.model_dump()))


def rules(stream: KvFields) -> list[tuple[bool, str]]:
    """Conditions, and the error if one is true."""
    if stream.store != CASSANDRA:
        return [
            (stream.compaction is not None, f"`compaction` is for `cassandra`, not `{stream.store}`"),
            (bool(stream.cassandra), f"`cassandra` has settings for the store `cassandra`, not `{stream.store}`"),
        ]
    kinds = {name for name, _ in operations_of(stream.operations or PHASES[stream.phase].operations)}
    chosen = [name for name in BY_PARAMETER if name in stream.cassandra]
    return [
        (bool(kinds & {"scan", "iterate"}),
         "`cassandra` orders records by the hash of their keys, so it cannot be scanned by key: use `read`, `update`, "
         "`insert` and `delete`"),
        (bool(chosen), f"`{chosen[0] if chosen else ''}` of Cassandra is a parameter of its own"),
        (stream.reopen, "`cassandra` is started for each run: leave out `reopen`"),
        ((stream.sync or stream.load_sync) and stream.commitlog_sync == "periodic",
         "with `commitlog_sync = \"periodic\"` Cassandra acknowledges writes before they are synced: use `batch` or "
         "`group`, or leave out `sync` and `load_sync`"),
        (stream.heap_size < SMALLEST_HEAP, "`heap_size` is at least 16 MiB"),
        (stream.phase == "trace", "a trace cannot be replayed on `cassandra`"),
    ]  # fmt: skip
