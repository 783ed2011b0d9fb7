"""Targets and traces that a spec of a received plan may name: another person may have edited it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.features.key_value_stores import trace
from iosonde.features.key_value_stores.requirements import READ_CACHE
from iosonde.plan import JsonObject

if TYPE_CHECKING:
    from iosonde.storage import Target

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def expected_target(workload: Mapping[str, Any], case: Mapping[str, Any], place: Target) -> JsonObject | None:
    """The target that a spec must have; None on a device and with a simulated one, which have no directories."""
    named = workload["target"]
    match named["kind"]:
        case "read_only":
            return {"kind": "read_only", "path": str(case.get("user_database"))}
        case "server":
            return _running_server(case, named)
        case "directory" if place.backend() is None:
            return _database(case, named, place)
        case "socket" if place.backend() is None:
            return _socket(_own(place), Path(named["path"]))
        case _:
            return None


def problem(workload: Mapping[str, Any], case: Mapping[str, Any], place: Target) -> str:
    """Traces are converted by iosonde, into its own directory."""
    traces = [Path(stream["trace"]["path"]) for stream in workload["streams"] if stream.get("trace")]
    is_own = all(each.parent == trace.directory() for each in traces)
    return "" if is_own else "the spec names a trace outside of the cache directory"


def _own(place: Target) -> Path:
    return Path(place.spec_target("per_job", 0)["directory"])


def _database(case: Mapping[str, Any], named: Mapping[str, Any], place: Target) -> JsonObject:
    """Directories of a database: one in the target's own; log and read cache may be on second targets."""
    from iosonde.storage.opening import open_target
    from iosonde.storage.targets.workspace import MEMORY_DIRECTORY

    own = _own(place)
    if case.get("in_memory"):
        own = MEMORY_DIRECTORY / own.name
    name = Path(named["path"]).name
    if not _NAME.fullmatch(name):
        return {}
    expected: JsonObject = {"kind": "directory", "path": str(own / name), "log_path": None}
    if named.get("log_path"):
        second = open_target(str(case["log_target"]))
        expected["log_path"] = str(Path(second.name, own.name, f"{name}-log"))
    if cache := named.get("read_cache"):
        second_name = case.get("read_cache_target")
        parent = Path(open_target(str(second_name)).name, own.name) if second_name else own
        expected["read_cache"] = {**cache, "path": str(parent / f"{name}{READ_CACHE}")}
    return expected


def _running_server(case: Mapping[str, Any], named: Mapping[str, Any]) -> JsonObject:
    """Return a target that names a database of iosonde on a server of the user; the consent names the server."""
    is_named = case.get("server_url") and re.fullmatch(r"iosonde_[0-9a-f]{8}", str(named["database"]))
    fields = {"kind", "host", "port", "database", "user"}
    return dict(named) if is_named and set(named) <= fields else {}


def _socket(own: Path, named: Path) -> JsonObject:
    """The socket of a server of ours: in a directory of its own, in the target's."""
    pattern = rf"{re.escape(str(own))}/memcached-[0-9a-f]{{8}}/socket/memcached\.sock"
    return {"kind": "socket", "path": str(named)} if re.fullmatch(pattern, str(named)) else {}
