"""Parameters of a key-value load, and the rules of those that depend on each other."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from iosonde.features.key_value_stores.cassandra import settings as cassandra
from iosonde.features.key_value_stores.fields import EMBEDDED, KvFields
from iosonde.features.key_value_stores.memcached import settings as memcached
from iosonde.features.key_value_stores.notation import operations_of
from iosonde.features.key_value_stores.phases import LOG_APART, PHASES, WRITES
from iosonde.features.key_value_stores.store_options import misspelt
from iosonde.protocol import HIGHEST_RATE
from iosonde.protocol.option_text import unsafe_option

SMALLEST_READ_CACHE = 100 << 20
"""Bytes of one file of RocksDB's persistent read cache; it refuses to be smaller."""

SMALLEST_FIELD = 16
"""Bytes that identify the contents of a value or field."""

Rule = tuple[bool, str]
"""A condition, and the error if it is true."""


def problem(stream: KvFields) -> str | None:
    """The first rule that a stream breaks, if any."""
    rules = [*memcached.rules(stream), *cassandra.rules(stream), *_rules(stream)]
    broken = next((text for wrong, text in rules if wrong), None)
    given = {store: getattr(stream, store) for store in EMBEDDED}
    unsafe = (f"`{store}`: {clause}" for store, options in given.items() if (clause := unsafe_option(options)))
    return broken or next(unsafe, None) or next(filter(None, map(misspelt, given, given.values())), None)


def _rules(stream: KvFields) -> list[Rule]:
    kinds = {name for name, _ in operations_of(stream.operations or PHASES[stream.phase].operations)}
    both = stream.phase == "readwhilewriting"
    rate = max(stream.rate or 0, stream.write_rate or 0)
    return [
        *_of_traces(stream),
        *_of_servers(stream, kinds),
        (stream.library is not None and stream.store not in ("rocksdb", "wiredtiger", "lmdb"),
         f"`library` is for `rocksdb`, `wiredtiger` and `lmdb`, not `{stream.store}`"),
        (stream.user_database is not None and (stream.store != "rocksdb" or both or kinds & WRITES != set()),
         "`user_database` is for reads of `store = \"rocksdb\"`"),
        (stream.user_database is not None and (stream.settle or stream.settle_at_end or stream.log == "apart"),
         "`user_database` is read-only: leave out `settle`, `settle_at_end` and `log`"),
        (stream.freshness and (stream.batch > 1 or stream.fields > 1 or "delete" in kinds),
         "`freshness` needs single writes without deletes"),
        (stream.log == "apart" and stream.store not in (*LOG_APART, "null"),
         f"`log = \"apart\"` is for `rocksdb`, `wiredtiger` and `cassandra`: {stream.store} has no separate log"),
        (stream.read_cache is not None and stream.store not in ("rocksdb", "null"),
         f"`read_cache` is for `store = \"rocksdb\"`: {stream.store} has no persistent read cache"),
        (stream.read_cache is not None and stream.read_cache < SMALLEST_READ_CACHE,
         "`read_cache` is at least 100 MiB, the size of one of its files"),
        (stream.read_cache is not None and stream.user_database is not None,
         "`user_database` is opened without a `read_cache`"),
        (stream.in_memory and (stream.store not in (*EMBEDDED, "null") or stream.log == "apart"
                               or stream.read_cache is not None or stream.user_database is not None),
         "`in_memory` is for a database of its own without `log` and `read_cache`, and not for `memcached` and "
         "`cassandra`"),
        (both and (stream.operations is not None or stream.background),
         "`readwhilewriting` is two loads: write streams of your own for others"),
        (not both and (stream.write_rate is not None or stream.write_arrival != "closed"),
         "`write_rate` and `write_arrival` are for `phase = \"readwhilewriting\"`"),
        (stream.write_arrival != "closed" and stream.write_rate is None,
         f"`write_arrival = \"{stream.write_arrival}\"` needs a `write_rate`"),
        (stream.arrival in ("constant", "poisson") and stream.rate is None,
         f"`arrival = \"{stream.arrival}\"` needs a `rate`"),
        (rate > HIGHEST_RATE, f"a rate of {rate:g} per second is beyond what can be timed, {HIGHEST_RATE:,}"),
        (stream.arrival != "closed" and stream.batch > 1, "an open loop is one operation at a time: leave out `batch`"),
        (stream.batch > 1 and not both and not kinds <= _batched(stream.store),
         "`batch` is for operations that write; on `memcached` for `read` too"),
        (stream.fields > 1 and not _has_room(stream),
         f"`fields = {stream.fields}` needs a fixed `value_size` that it divides, with at least 16 B for each"),
        (stream.limit_operations is not None and stream.limit_operations < stream.jobs,
         "`limit_operations` is less than one for each job"),
        (stream.jobs > stream.records, f"{stream.jobs} jobs cannot share {stream.records} records"),
        (stream.duration is None and stream.limit_operations is None and stream.limit_bytes is None
         and not stream.background, "it would never end: set `duration`, `limit_operations` or `limit_bytes`"),
    ]  # fmt: skip


def _of_traces(stream: KvFields) -> list[Rule]:
    if stream.phase != "trace":
        return [
            (stream.trace is not None or stream.arrival == "trace" or stream.trace_speed != 1,
             "`trace`, `trace_speed` and `arrival = \"trace\"` are for `phase = \"trace\"`"),
        ]  # fmt: skip
    return [
        (stream.operations is not None or stream.choice is not None,
         "the trace decides operations and records: leave out `operations` and `choice`"),
        (stream.arrival in ("constant", "poisson") or stream.rate is not None,
         "a trace is replayed at its own times (`arrival = \"trace\"`) or as fast as possible"),
        (stream.batch > 1 or stream.fields > 1 or stream.freshness,
         "a trace is replayed one operation at a time: leave out `batch`, `fields` and `freshness`"),
        (stream.ttl > 0, "the trace has the times to live: leave out `ttl`"),
        (stream.user_database is not None or stream.carry_over,
         "a trace has a database of its own: leave out `user_database` and `carry_over`"),
        (stream.trace_speed != 1 and stream.arrival != "trace", "`trace_speed` is for `arrival = \"trace\"`"),
    ]  # fmt: skip


def _of_servers(stream: KvFields, kinds: set[str]) -> list[Rule]:
    """A server of the user: iosonde does not start or configure it, and does not see its files."""
    scheme = {"mongodb": "mongodb", "cassandra": "cql"}.get(stream.store)
    if not stream.is_running_server or scheme is None:
        return [
            (stream.server_url is not None and stream.store != "null",
             f"`server_url` is for `mongodb` and `cassandra`: iosonde opens `{stream.store}` itself"),
        ]  # fmt: skip
    return [
        (stream.server_url is not None and not stream.server_url.startswith(f"{scheme}://"),
         f"`server_url` is `{stream.server_url}`, and the store `{stream.store}` has addresses of the kind "
         f"`{scheme}://USER@HOST:PORT`"),
        (stream.log == "apart", "the log of a running server is not moved: leave out `log`"),
        (stream.memory_limit is not None, "the memory of a running server cannot be limited: leave out `memory_limit`"),
        (stream.settle or stream.settle_at_end or stream.reopen,
         "a running server is not closed, and its background work is not known: leave out `settle`, `settle_at_end` "
         "and `reopen`"),
        (stream.start == "cold", "the caches of a running server cannot be emptied: leave out `start`"),
        (stream.store == "mongodb" and bool(kinds & {"scan", "iterate"}) and not isinstance(stream.key_size, int),
         "`mongodb` orders binary keys by their length first: scans need keys of one size"),
    ]  # fmt: skip


def _batched(store: str) -> set[str]:
    """Operations of which several can be sent together."""
    return {"update", "insert", "delete", *(["read"] if store in memcached.CACHES else [])}


def _has_room(stream: KvFields) -> bool:
    """Return True if all fields have the same size, with space for the prefix that identifies each."""
    size = stream.value_size
    return isinstance(size, int) and size % stream.fields == 0 and size // stream.fields >= SMALLEST_FIELD


class KvParameters(KvFields):
    """One stream: `jobs` threads, each with one operation at a time."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        wrong = problem(self)
        if wrong:
            raise ValueError(wrong)
        return self
