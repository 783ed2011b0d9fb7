"""What a run on a database server needs of its target, and the time that it takes.

The workloads differ only in what their parameters report as `population` and `loaded_bytes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from iosonde.errors import StudyError, TargetError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.units import format_bytes, format_duration
from iosonde.workload.interface import Layout, Room
from iosonde.workload.oltp.fields import OltpFields

START_SECONDS = 3.0
"""Start, consistency checks of a small database, and shutdown, as assumed by a plan."""

RECOVERY_SECONDS = 3.0
"""Restart of a killed server, as assumed by a plan."""

EMPTY_BYTES = 160 << 20
"""A data directory without tables, including its first log files."""

LOG_BYTES = 1 << 30
"""Room for the write-ahead log and for rows that runs add."""

DECIDED_AT_CREATION = ("wal_segment_size", "innodb_page_size", "innodb_checksum_algorithm", "innodb_data_file_path")
"""Settings that belong to a data directory: others do not need a template of their own."""


def only(streams: Mapping[str, Any]) -> Any:
    """The parameters of the only stream."""
    if len(streams) > 1:
        raise StudyError(
            f"a workload on a server has one stream, not {len(streams)}",
            hint="leave out `streams`: terminals and transaction mix are parameters",
        )
    return next(iter(streams.values()))


def fit(streams: Mapping[str, Any], target: Room, *, room_bytes: int) -> dict[str, Any]:
    """The parameters with what they decide of each other: the kind of a running server is in its URL."""
    whole = only(streams)
    changes: JsonObject = {}
    if whole.server_url:
        from iosonde.servers import url

        changes["server"] = url.parse(whole.server_url).kind
    elif target.backend() is not None:
        raise TargetError(
            "a database server needs a file system, and a simulated or null device has none",
            hint="name a directory as the target",
        )
    return {name: stream.model_copy(update=changes) for name, stream in streams.items()}


def identity(whole: Any) -> str:
    """Eight digits that differ between databases whose loaded data differ."""
    at_creation = {name: value for name, value in whole.settings.items() if name in DECIDED_AT_CREATION}
    facts = json.dumps([whole.server, at_creation, whole.population()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:8]


def addressed_bytes(streams: Mapping[str, OltpFields]) -> int:
    """The template, its copy for a run, and the log."""
    whole = only(streams)
    return 0 if whole.server_url else 2 * _data_bytes(whole) + LOG_BYTES


def files(streams: Mapping[str, OltpFields]) -> dict[str, int]:
    """The database that a run uses, with its template."""
    whole = only(streams)
    return {} if whole.server_url else {f"{whole.server}-{identity(whole)}": addressed_bytes(streams)}


def buffer_bytes(streams: Mapping[str, OltpFields]) -> int:
    """Negligible: a connection has one transaction in flight."""
    return 0


def must_align(stream: OltpFields) -> dict[str, list[int]]:
    """Nothing: the server aligns its own direct I/O."""
    return {}


def layout(streams: Mapping[str, OltpFields]) -> Layout:
    """A database is loaded once, as a template."""
    whole = only(streams)
    return "missing" if whole.loaded_bytes() and not whole.server_url else "never"


def prepares(stream: OltpFields) -> bool:
    """Never: every run starts from the template."""
    return False


def cost(streams: Mapping[str, OltpFields]) -> Cost:
    """Time of a run with restoring; streams must be fitted to the target. Written bytes depend on the server."""
    whole = only(streams)
    measured_ns = whole.duration if whole.kill_server_after is None else whole.kill_server_after
    seconds = (whole.ramp + measured_ns) / 10**9 + (RECOVERY_SECONDS if whole.kill_server_after else 0)
    if whole.server_url:
        return Cost(seconds=seconds, write_bytes=None)
    return Cost(seconds=seconds + START_SECONDS + _restore_seconds(_data_bytes(whole)), write_bytes=None)


def notes(streams: Mapping[str, OltpFields]) -> list[str]:
    """What restoring the database before each run costs; nothing for a server that the user runs."""
    whole = only(streams)
    if whole.server_url:
        return []
    data_bytes = _data_bytes(whole)
    loaded = f" after {format_bytes(data_bytes)} are loaded once" if whole.loaded_bytes() else ""
    return [
        f"each run on {whole.server} starts from a copy of a template{loaded}: about {format_bytes(data_bytes)} and "
        f"{format_duration(_restore_seconds(data_bytes) * 1e9)} to copy and compare"
    ]


def _data_bytes(whole: OltpFields) -> int:
    """Size that the loaded database is assumed to have."""
    return whole.loaded_bytes() + EMPTY_BYTES


def _restore_seconds(data_bytes: int) -> float:
    """Time to copy the template and to read the copy for comparison."""
    return 2 * data_bytes / ASSUMED_BYTES_PER_SECOND
