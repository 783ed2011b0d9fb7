"""The engine's spec of a graph algorithm."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.errors import StudyError, TargetError
from iosonde.features.graph.parameters import PAGE_BYTES, GraphParameters
from iosonde.features.graph.size import area_bytes, of_any_vertices, size_of
from iosonde.plan import JsonObject
from iosonde.text_files import expanded
from iosonde.workload.workload import Room, engine_spec

if TYPE_CHECKING:
    from iosonde.storage import Target

GRAPH500 = {"a": 0.57, "b": 0.19, "c": 0.19}
"""Probabilities of the quadrants of an R-MAT graph."""

_GRAPH = ("lists", "scale", "edge_factor", "graph_seed", "edge_list", "edge_format")
"""Parameters that decide which graph it is."""


def fit(streams: Mapping[str, GraphParameters], target: Room, *, room_bytes: int) -> dict[str, GraphParameters]:
    """The parameters with the path of an edge list written out, and the size of the page cache."""
    if target.backend() is not None:
        raise TargetError(
            "graph algorithms need a real directory or device, and a simulated one stores no graph",
            hint="name a directory or a block device as the target",
        )
    if len(streams) > 1:
        raise StudyError(
            f"{len(streams)} graph algorithms cannot run together",
            hint="use one stream, and a part or factor for each computation",
        )
    fitted = {name: _with_cache(_with_edge_list(stream)) for name, stream in streams.items()}
    if target.kind == "device":
        for stream in fitted.values():
            if stream.edge_list is not None:
                stream._device_bytes = min(room_bytes, of_any_vertices(stream))
    return fitted


def _with_cache(stream: GraphParameters) -> GraphParameters:
    if stream.cache_fraction is None:
        return stream
    size = int(stream.cache_fraction * size_of(stream).adjacency_bytes)
    # Each job has an equal part of the cache, and ranges with a few pages more or less than the others.
    spare = stream.jobs * (PAGE_BYTES + size // 50) if stream.cache_fraction == 1 else 0
    return stream.model_copy(update={"cache_size": size + spare, "cache_fraction": None})


def _with_edge_list(stream: GraphParameters) -> GraphParameters:
    if stream.edge_list is None:
        return stream
    path = Path(os.path.realpath(expanded(stream.edge_list)))
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
        readable = os.access(path, os.R_OK)
    except OSError as error:
        raise _no_list(stream.edge_list, error.strerror or str(error)) from None
    if not is_file or not readable:
        raise _no_list(stream.edge_list, "it is not readable" if is_file else "it is not a regular file")
    return stream.model_copy(update={"edge_list": str(path)})


def _no_list(path: str, reason: str) -> StudyError:
    return StudyError(
        f"cannot read the edge list `{path}`: {reason}",
        where="by the parameter `edge_list`",
        hint="name a file with one edge after the other, in the format of `edge_format`",
    )


def resolve(streams: Mapping[str, GraphParameters], target: Target, *, seed: int, run_id: str) -> JsonObject:
    """The engine's spec."""
    stream = only(fit(streams, target, room_bytes=target.free_bytes()))
    workload: JsonObject = {
        "kind": "graph",
        "target": _target(stream, target),
        "backend": _backend(stream),
        "graph": {"source": _source(stream), "lists": stream.lists},
        "layout": "missing",
        "sort_memory_bytes": stream.sort_memory,
        "algorithm": {
            "kind": "pagerank",
            "mode": stream.mode,
            "damping": stream.damping,
            "tolerance": stream.tolerance,
            "iterations": stream.iterations,
        },
        "reading": {
            "queue_depth": stream.queue_depth,
            "request_bytes": stream.request_size,
            "cache_bytes": stream.cache_size,
        },
        "jobs": stream.jobs,
        "duration_ns": stream.duration,
        "interval_ns": stream.interval,
        "verify_after": stream.verify_after,
        "cpus": stream.cpus,
        "result_path": None,
    }
    return engine_spec(workload, seed=seed, run_id=run_id, devices=target.block_devices())


def _target(stream: GraphParameters, target: Target) -> Any:
    """The graph's own file, so that block I/O of the same study does not overwrite it; or the device."""
    found = target.spec_target("shared", area_bytes(stream))
    if found["kind"] == "file" and target.kind == "directory":
        found["path"] = str(Path(found["path"]).with_name(graph_name(stream)))
    return found


def _backend(stream: GraphParameters) -> Any:
    if stream.backend == "sync":
        return {"kind": "sync"}
    return {
        "kind": "uring",
        "registered_files": True,
        "registered_buffers": True,
        "submission_polling": False,
        "completion_polling": False,
    }


def _source(stream: GraphParameters) -> Any:
    if stream.edge_list is not None:
        return {"kind": "edge_list", "path": stream.edge_list, "format": stream.edge_format}
    return {
        "kind": "rmat",
        "scale": stream.scale,
        "edge_factor": stream.edge_factor,
        **GRAPH500,
        "seed": stream.graph_seed,
    }


def graph_name(stream: GraphParameters) -> str:
    """The file of the graph: runs on the same graph share it."""
    identity = "|".join(str(getattr(stream, name)) for name in _GRAPH)
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:8]}.graph"


def only(streams: Mapping[str, GraphParameters]) -> GraphParameters:
    """The only stream: computations do not run together."""
    return next(iter(streams.values()))
