"""Caches: server settings, rules, and the disk space of the flash tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosonde.features.key_value_stores.notation import OptionValue, operations_of, sizes_of
from iosonde.features.key_value_stores.phases import PHASES

if TYPE_CHECKING:
    from iosonde.features.key_value_stores.fields import KvFields
    from iosonde.storage import Target

CACHES = ("memcached",)
"""Stores that may drop any record."""

SMALLEST_KEY = 16
"""Bytes of a key: hexadecimal digits that identify the record."""
LARGEST_KEY = 250
GETS_PER_CONNECTION = 256
PAGES_MIN = 4

BY_PARAMETER = {"memory-limit": "cache_memory", "extstore_size": "extstore_size"}
"""Settings of the server (`memcached/server.py`) that are parameters of the workload."""

MIB = 1 << 20


def server_settings(parameters: Mapping[str, Any]) -> dict[str, OptionValue]:
    """Settings of memcached by its own names."""
    settings = dict(parameters["memcached"])
    settings["memory-limit"] = int(parameters["cache_memory"]) // MIB
    if parameters["tier"] == "extstore":
        settings["extstore_size"] = int(parameters["extstore_size"])
    return settings


def check_place(stream: KvFields, target: Target) -> None:
    """Raise unless the server can be started on the target with these settings. Nothing is written."""
    target.require_directory("memcached needs one for its socket and for extstore", parameter="store")
    from iosonde.features.key_value_stores.memcached.server import Memcached
    from iosonde.workload.servers import check_reachable

    server = Memcached()
    server.check_settings(server.locate(), server_settings(stream.model_dump()))
    check_reachable(server.accounts, target)


def file_bytes(stream: KvFields) -> int:
    """Room that the server takes on the target."""
    return stream.extstore_size if stream.tier == "extstore" else 0


def rules(stream: KvFields) -> list[tuple[bool, str]]:
    """Conditions, and the error if one is true."""
    return _of_caches(stream) if stream.store in CACHES else _of_others(stream)


def _of_caches(stream: KvFields) -> list[tuple[bool, str]]:
    kinds = {name for name, _ in operations_of(stream.operations or PHASES[stream.phase].operations)}
    keys = [size for size, _ in sizes_of(stream.key_size)]
    reads_through = stream.miss == "read_through"
    chosen = [name for name in BY_PARAMETER if name in stream.memcached]
    return [
        (bool(kinds & {"scan", "iterate"}),
         "`memcached` has no order, so it cannot be scanned: use `read`, `update`, `insert` and `delete`"),
        (stream.sync or stream.load_sync,
         "`memcached` keeps nothing across a restart: leave out `sync` and `load_sync`"),
        (stream.settle or stream.settle_at_end or stream.reopen,
         "`memcached` is not closed before its run ends: leave out `settle`, `settle_at_end` and `reopen`"),
        (min(keys) < SMALLEST_KEY or max(keys) > LARGEST_KEY,
         f"keys of `memcached` have {SMALLEST_KEY} to {LARGEST_KEY} B: set `key_size`"),
        (bool(chosen), f"`{chosen[0] if chosen else ''}` of memcached is set by the parameter "
         f"`{BY_PARAMETER[chosen[0]] if chosen else ''}`"),
        (stream.batch > GETS_PER_CONNECTION * stream.connections,
         f"`batch` is more than {GETS_PER_CONNECTION} for each of `connections`"),
        (stream.cache_memory % MIB > 0 or stream.extstore_size % MIB > 0,
         "`cache_memory` and `extstore_size` are multiples of 1 MiB"),
        (stream.tier == "extstore" and stream.extstore_size < PAGES_MIN * _page_bytes(stream),
         f"`extstore_size` has room for less than {PAGES_MIN} pages of `ext_page_size` (MiB), of which memcached keeps "
         "a quarter free"),
        (reads_through and stream.freshness,
         "`freshness` cannot be checked with `miss = \"read_through\"`: the modelled backend has no writes"),
        (reads_through and "read" not in kinds, "`miss = \"read_through\"` is for `read`"),
        (stream.ttl > 0 and (stream.ttl < 10**9 or stream.ttl > 30 * 86400 * 10**9),
         "`ttl` is 1 s to 30 days: memcached takes longer times for dates"),
        (stream.ttl % 10**9 > 0, "`ttl` is a whole number of seconds"),
        (stream.phase == "readwhilewriting" and stream.batch > 1, "`readwhilewriting` reads one record at a time"),
    ]  # fmt: skip


def _page_bytes(stream: KvFields) -> int:
    """Size of a page of extstore; memcached itself refuses a setting that is not a number."""
    given = str(stream.memcached.get("ext_page_size", 64))
    return int(given) * MIB if given.isdecimal() else 0


def _of_others(stream: KvFields) -> list[tuple[bool, str]]:
    return [
        (stream.miss != "miss", f"only a cache misses: `miss` is for `memcached`, not `{stream.store}`"),
        (stream.ttl > 0, f"`ttl` is for `memcached`, not `{stream.store}`"),
    ]
