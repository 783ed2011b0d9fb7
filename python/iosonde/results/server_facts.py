"""Facts about a database server in a record: what it counted over the measurement, and what became of commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.schema import Record
from iosonde.results.server_counters import COUNTERS, DATA_BYTES, STATES, counters

Json = Mapping[str, Any]


def from_record(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about a server."""
    server: Json = record.server or {}
    begin = counters(server.get("statistics_at_start") or {})
    end = counters(server.get("statistics_at_end") or {})
    means: Json = server.get("statistics_mean") or {}
    durability: Json = server.get("durability") or {}
    oltp: Json = (record.result or {}).get("oltp") or {}
    client: Json = oltp.get("counters") or {}
    load: Json = (server.get("template") or {}).get("result", {}).get("load") or {}
    return {
        "server_title": server.get("title"),
        "server_version": server.get("version"),
        **{name: _increase(name, begin, end) for name in (*COUNTERS, DATA_BYTES)},
        **{name: means.get(name) for name in STATES},
        "statements": client.get("statements"),
        "round_trips": client.get("round_trips"),
        "aborted_attempts": client.get("aborted_attempts"),
        "failed_transactions": client.get("failed_transactions"),
        "restore_seconds": (server.get("restored") or {}).get("seconds"),
        "load_seconds": load["duration_ns"] / 1e9 if load else None,
        "acknowledged_commits": durability.get("acknowledged"),
        "lost_commits": durability.get("lost"),
        "recovery_seconds": durability.get("recovery_seconds"),
    }


def _increase(name: str, begin: Mapping[str, int], end: Mapping[str, int]) -> int | None:
    return max(0, end[name] - begin[name]) if name in begin and name in end else None
