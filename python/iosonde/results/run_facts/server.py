"""Facts about a database server in a record: what it counted over the measurement, and what became of commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iosonde.results.column import NUMBER, TEXT, U64, Column, DType
from iosonde.results.run_facts.server_counters import COUNTERS, DATA_BYTES, STATES, counters
from iosonde.results.schema import Record

Json = Mapping[str, Any]


class ServerFacts:
    """The parts of a record about a server and its clients; empty without one."""

    def __init__(self, record: Record) -> None:
        self.server: Json = record.server or {}
        self._begin = counters(self.server.get("statistics_at_start") or {})
        self._end = counters(self.server.get("statistics_at_end") or {})
        self.means: Json = self.server.get("statistics_mean") or {}
        self.durability: Json = self.server.get("durability") or {}
        self.client: Json = ((record.result or {}).get("oltp") or {}).get("counters") or {}

    def increase(self, name: str) -> int | None:
        """Increase of a counter over the measurement."""
        return _increase(name, self._begin, self._end)

    @property
    def load_seconds(self) -> float | None:
        load: Json = (self.server.get("template") or {}).get("result", {}).get("load") or {}
        return load["duration_ns"] / 1e9 if load else None


def _row(name: str, dtype: DType, text: str, value: Callable[[ServerFacts], Any]) -> Column:
    return Column(name, dtype, text, lambda run: value(run.server))


def _counter(name: str, text: str) -> Column:
    return _row(name, U64, text, lambda facts: facts.increase(name))


def _state(name: str) -> Column:
    text = "Mean over the intervals of sessions in that state"
    return _row(name, NUMBER, text, lambda facts: facts.means.get(name))


def _client(name: str, text: str) -> Column:
    return _row(name, U64, text, lambda facts: facts.client.get(name))


COLUMNS = (
    _row("server_title", TEXT, "Database server; null without one", lambda facts: facts.server.get("title")),
    _row("server_version", TEXT, "Its version, as it reports it", lambda facts: facts.server.get("version")),
    *(_counter(name, f"Server, in the measurement: {text}") for name, text in COUNTERS.items()),
    *map(_state, STATES),
    _counter(DATA_BYTES, "Bytes of data pages that the server wrote in the measurement"),
    _client("statements", "Statements that the clients executed"),
    _client("round_trips", "Times that a client waited for an answer of the server"),
    _client("aborted_attempts", "Attempts that ended in a serialization failure, deadlock or lock timeout"),
    _client("failed_transactions", "Transactions that failed after all retries"),
    _row(
        "restore_seconds",
        NUMBER,
        "Time to restore the database from its template, s",
        lambda facts: (facts.server.get("restored") or {}).get("seconds"),
    ),
    _row("load_seconds", NUMBER, "Time to load the template, s", lambda facts: facts.load_seconds),
    _row(
        "acknowledged_commits",
        U64,
        "Commits that were acknowledged before the server was killed",
        lambda facts: facts.durability.get("acknowledged"),
    ),
    _row(
        "lost_commits",
        U64,
        "Of these, commits that the restarted server does not have",
        lambda facts: facts.durability.get("lost"),
    ),
    _row(
        "recovery_seconds",
        NUMBER,
        "Time from the restart of a killed server to its first connection, s",
        lambda facts: facts.durability.get("recovery_seconds"),
    ),
    _row(
        "recovery_error",
        TEXT,
        "Why these could not be looked up: the server did not restart, or answered with an error; null if they were",
        lambda facts: facts.durability.get("error"),
    ),
)
"""Columns of `runs` about database servers."""


def _increase(name: str, begin: Mapping[str, int], end: Mapping[str, int]) -> int | None:
    return max(0, end[name] - begin[name]) if name in begin and name in end else None
