"""Facts about a database server in a record: what it counted over the measurement, and what became of commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.results.schema import Record
from iosonde.results.server_counters import COUNTERS, STATES

Json = Mapping[str, Any]


def of(record: Record) -> dict[str, Any]:
    """Return the columns of `runs` that are about a server."""
    server: Json = record.server or {}
    begin: Json = server.get("statistics_at_begin") or {}
    end: Json = server.get("statistics_at_end") or {}
    means: Json = server.get("statistics_mean") or {}
    durability: Json = server.get("durability") or {}
    oltp: Json = (record.result or {}).get("oltp") or {}
    counters: Json = oltp.get("counters") or {}
    load: Json = (server.get("template") or {}).get("result", {}).get("load") or {}
    return {
        "server_title": server.get("title"),
        "server_version": server.get("version"),
        **{name: _increase(name, begin, end) for name in COUNTERS},
        **{name: means.get(name) for name in STATES},
        "server_data_bytes": _data_bytes(begin, end),
        "statements": counters.get("statements"),
        "round_trips": counters.get("round_trips"),
        "aborted_attempts": counters.get("aborted_attempts"),
        "failed_transactions": counters.get("failed_transactions"),
        "restore_seconds": (server.get("restored") or {}).get("seconds"),
        "load_seconds": load["duration_ns"] / 1e9 if load else None,
        "acknowledged_commits": durability.get("acknowledged"),
        "lost_commits": durability.get("lost"),
        "recovery_seconds": durability.get("recovery_seconds"),
    }


def _increase(name: str, begin: Json, end: Json) -> int | None:
    if name == "checkpoints":
        parts = [_increase(each, begin, end) for each in ("checkpoints_timed", "checkpoints_requested")]
        return sum(each or 0 for each in parts) if any(each is not None for each in parts) else None
    if name not in begin or name not in end:
        return None
    return max(0, int(end[name]) - int(begin[name]))


PAGE_BYTES = 8192
"""Page of PostgreSQL, which counts buffers."""


def _data_bytes(begin: Json, end: Json) -> int | None:
    """Bytes of data pages that the server wrote, without its log."""
    written = _increase("data_written_bytes", begin, end)
    if written is not None:
        return written
    parts = [_increase(name, begin, end) for name in ("checkpoint_buffers", "background_buffers", "client_buffers")]
    known = [each for each in parts if each is not None]
    return PAGE_BYTES * sum(known) if known else None
