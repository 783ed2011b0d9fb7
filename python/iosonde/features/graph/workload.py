"""Graph algorithms as a workload: parameters, size of graphs, the spec, and what a run needs and takes."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from iosonde.base import text_files
from iosonde.base.text_files import expanded
from iosonde.errors import StudyError
from iosonde.plan import ASSUMED_BYTES_PER_SECOND, Cost, JsonObject
from iosonde.study.workload.reading import Cpus, DurationOrNone, Interval, Size, SizeOrZero, WithRules, none_as_empty
from iosonde.study.workload.workload import CLOSED, Hints, Layout, Spec, Workload, taken, whole_of
from iosonde.units import MIB, format_count, format_estimate

if TYPE_CHECKING:
    from iosonde.storage import Target


_INDEX_BYTES = 8
_OUT_DEGREE_BYTES = 4
_EDGE_BYTES = 4
_RECORD_BYTES = 8
"""Bytes of an edge in the sort area."""

_PAIR_BYTES = {"u32": 8, "u64": 16}

_SAMPLE_BYTES = 1 << 18
"""Read at the start, in the middle and at the end of a text list: its lines are often shortest at the start."""

VERTICES_MAX = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class GraphSize:
    """Upper bounds for R-MAT graphs, which lose duplicates; estimates for edge lists."""

    vertices: int
    stored_edges: int
    lists: str

    @property
    def graph_bytes(self) -> int:
        """The graph itself: header, index and adjacency lists."""
        index = _pages((self.vertices + 1) * _INDEX_BYTES)
        degrees = _pages(self.vertices * _OUT_DEGREE_BYTES) if self.lists == "in" else 0
        return PAGE_BYTES + index + degrees + self.adjacency_bytes

    @property
    def adjacency_bytes(self) -> int:
        """The adjacency lists, which an iteration over all vertices reads."""
        return _pages(self.stored_edges * _EDGE_BYTES)

    def written_bytes(self, sort_memory: int) -> int:
        """The graph and the area in which its edges are sorted, which follows it until it is complete."""
        records = self.stored_edges * _RECORD_BYTES
        # Each part ends on a page. Two neighbours never fit into the memory together, so on average it is half full.
        parts = 2 * (records // sort_memory + 1)
        return self.graph_bytes + records + parts * PAGE_BYTES


def area_bytes(parameters: GraphParameters) -> int:
    """Bytes that the graph takes of its target while it is written; of a device those that it may take."""
    return parameters._device_bytes or size_of(parameters).written_bytes(parameters.sort_memory)


def size_of(parameters: GraphParameters) -> GraphSize:
    """The size of the graph that these parameters describe."""
    if parameters.edge_list is None:
        vertices = 1 << parameters.scale
        edges = vertices * parameters.edge_factor
    else:
        found, pair_bytes = Path(parameters.edge_list).stat(), _PAIR_BYTES.get(parameters.edge_format)
        edges = (
            found.st_size // pair_bytes + 1
            if pair_bytes
            else _edges_of_text(parameters.edge_list, found.st_size, found.st_mtime_ns)
        )
        vertices = min(edges, VERTICES_MAX)
    directions = 2 if parameters.lists == "both" else 1
    return GraphSize(vertices=vertices, stored_edges=directions * edges, lists=parameters.lists)


@lru_cache(maxsize=8)
def _edges_of_text(path: str, size_bytes: int, _changed_ns: int) -> int:
    """Lines with an edge: counted in a short list, else as many for each byte as in the samples."""
    is_short = size_bytes <= 3 * _SAMPLE_BYTES
    starts = [0] if is_short else [0, (size_bytes - _SAMPLE_BYTES) // 2, size_bytes - _SAMPLE_BYTES]
    edges = sampled = 0
    with os.fdopen(text_files.open_regular(path), "rb") as file:
        for start in starts:
            file.seek(start)
            sample = file.read(size_bytes if is_short else _SAMPLE_BYTES)
            sampled += len(sample)
            edges += sum(not line.startswith((b"#", b"%")) for line in sample.split(b"\n") if line.strip())
    return -(-edges * size_bytes // max(sampled, 1)) + 1


def _pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


PAGE_BYTES = 4096
"""Unit in which adjacency lists are read and cached."""

REQUEST_MAX = 16 * MIB


class GraphParameters(WithRules):
    """One computation on one graph: `jobs` threads, each with `queue_depth` reads in flight."""

    _device_bytes: int | None = PrivateAttr(None)
    """Of an edge list on a device, once it is fitted to it: what its graph may take of the device."""

    mode: Literal["pull", "push"] = "pull"
    """A vertex sums the ranks of its neighbours (`pull`), or adds its rank to them (`push`)."""
    lists: Literal["both", "out", "in"] = "both"
    """Adjacency lists on the target: `out` (targets of edges; for `push`), `in` (sources; for `pull`), or `both`
    (undirected)."""
    scale: int = Field(20, ge=1, le=31)
    """R-MAT graph: base 2 logarithm of the number of vertices."""
    edge_factor: int = Field(16, ge=1, le=4096)
    """R-MAT graph: generated edges per vertex."""
    graph_seed: int = Field(1, ge=0)
    """R-MAT graph: seed of edges and vertex numbers."""
    edge_list: Annotated[str | None, BeforeValidator(none_as_empty)] = None
    """File with a list of edges to import instead of an R-MAT graph."""
    edge_format: Literal["text", "u32", "u64"] = "text"
    """Format of `edge_list`: one edge per line (`text`), or pairs of little-endian numbers (`u32`, `u64`)."""
    damping: float = Field(0.85, gt=0, lt=1)
    """Damping factor."""
    tolerance: float = Field(1e-6, ge=0, lt=1)
    """Converged once the sum of all changes of an iteration is below this."""
    iterations: int = Field(30, ge=1, le=100_000)
    """Maximum number of iterations."""
    jobs: int = Field(1, ge=1, le=1024)
    """Threads. The result does not depend on their number."""
    queue_depth: int = Field(16, ge=1, le=4096)
    """Reads in flight in each job."""
    request_size: Size = 256 << 10
    """Largest read."""
    cache_size: SizeOrZero = 0
    """Page cache of the engine, of all jobs together; pages are admitted until it is full, and stay."""
    cache_fraction: float | None = Field(None, ge=0, le=1)
    """Page cache as a fraction of the adjacency lists, instead of `cache_size`."""
    sort_memory: Size = 256 * MIB
    """Memory for sorting edges while the graph is written."""
    backend: Literal["uring", "sync"] = "uring"
    """`uring`: io_uring; `sync`: one blocking read at a time in each job (queue depth 1)."""
    verify_after: bool = True
    """After the measurement, read the whole graph and check the result against it."""
    duration: DurationOrNone = None
    """Maximum length of the measurement; `none`: until the computation is complete."""
    interval: Interval = 5 * 10**8
    """Length of an interval of the time series, at least 100 ms."""
    cpus: Cpus = Field(default_factory=list)
    """CPUs to run on (job `i` on the `i`-th), as a list or `0-3`; empty: any."""

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            (self.mode == "pull" and self.lists == "out", '`pull` needs `lists = "in"` or `"both"`'),
            (self.mode == "push" and self.lists == "in", '`push` needs `lists = "out"` or `"both"`'),
            (
                self.request_size % PAGE_BYTES != 0 or self.request_size > REQUEST_MAX,
                "`request_size` must be a multiple of 4 KiB and at most 16 MiB",
            ),
            (
                self.cache_fraction is not None and self.cache_size > 0,
                "`cache_size` and `cache_fraction` decide the same: set one of them",
            ),
            (self.sort_memory < MIB, "`sort_memory` must be at least 1 MiB"),
            (
                self.backend == "sync" and self.queue_depth != 1,
                'with `backend = "sync"` a job has one read in flight: set `queue_depth = 1`',
            ),
        ]


GRAPH500 = {"a": 0.57, "b": 0.19, "c": 0.19}
"""Probabilities of the quadrants of an R-MAT graph."""

_GRAPH = ("lists", "scale", "edge_factor", "graph_seed", "edge_list", "edge_format")
"""Parameters that decide which graph it is."""


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


def _target(stream: GraphParameters, target: Target) -> JsonObject:
    """The graph's own file, so that block I/O of the same study does not overwrite it; or the device."""
    found = target.spec_target("shared", area_bytes(stream))
    if found["kind"] == "file" and target.kind == "directory":
        found["path"] = str(Path(found["path"]).with_name(graph_name(stream)))
    return found


def _source(stream: GraphParameters) -> JsonObject:
    if stream.edge_list is not None:
        return {"kind": "edge_list", "path": stream.edge_list, "format": stream.edge_format}
    return {"kind": "rmat", **taken(stream, "scale", "edge_factor"), **GRAPH500, "seed": stream.graph_seed}


def graph_name(stream: GraphParameters) -> str:
    """The file of the graph: runs on the same graph share it."""
    identity = "|".join(str(getattr(stream, name)) for name in _GRAPH)
    return f"{hashlib.sha256(identity.encode()).hexdigest()[:8]}.graph"


ASSUMED_EDGES_PER_SECOND = 40_000_000
"""Edges that a job processes, when a plan estimates time."""

ASSUMED_BUILD_EDGES_PER_SECOND = 4_000_000
"""Edges that are generated, sorted and written, when a plan estimates time."""

_STATE_BYTES = 24
"""Memory of a vertex, without its entry in the index."""

_FILE = re.compile(r"[0-9a-f]{8}\.graph")
_ALGORITHMS = {"bfs": "breadth-first search", "components": "connected components"}
"""Algorithms of earlier versions, whose result sets stay readable."""


class GraphWorkload(Workload[GraphParameters]):
    """Graph algorithms with adjacency lists on the target."""

    name = "graph"
    title = "graph algorithms"
    parameters = GraphParameters
    shown = ("scale", "edge_factor", "jobs", "queue_depth", "request_size", "cache_size")
    places = ("edge_list",)
    hints = Hints(
        smaller="use a smaller graph with `--set scale=...`, or a shorter `edge_list`",
        sized_by="by the parameters `scale`, `edge_factor` and `lists`, or `edge_list`",
        less_memory="use a smaller graph with `--set scale=...`, or a smaller page cache with "
        "`--set cache_fraction=...`",
    )
    judge = "iterations"
    simulated = (
        "graph algorithms need a real directory or device, and a simulated one stores no graph",
        "name a directory or a block device as the target",
    )
    several = (
        "{} graph algorithms cannot run together",
        "use one stream, and a part or factor for each computation",
    )
    subject = "edge_factor"
    worded = stated = ("mode",)

    def fit(
        self, streams: Mapping[str, GraphParameters], target: Target, *, room_bytes: int
    ) -> Mapping[str, GraphParameters]:
        """The parameters with the path of an edge list written out, and the size of the page cache."""
        super().fit(streams, target, room_bytes=room_bytes)
        fitted = {name: _with_cache(_with_edge_list(stream)) for name, stream in streams.items()}
        stream = whole_of(fitted)
        if target.kind == "device" and stream.edge_list is not None:
            # The index of a list has all numbers up to that of its largest vertex, which may be any.
            largest = replace(size_of(stream), vertices=VERTICES_MAX)
            stream._device_bytes = min(room_bytes, largest.written_bytes(stream.sort_memory))
        return fitted

    def load(self, streams: Mapping[str, GraphParameters], target: Target, *, seed: int) -> JsonObject:
        """One computation, on a graph that is written unless the target has it."""
        stream = whole_of(streams)
        features = dict.fromkeys(("registered_files", "registered_buffers"), True)
        features |= dict.fromkeys(("submission_polling", "completion_polling"), False)
        return {
            "target": _target(stream, target),
            "backend": {"kind": stream.backend, **(features if stream.backend == "uring" else {})},
            "graph": {"source": _source(stream), "lists": stream.lists},
            "layout": "missing",
            "sort_memory_bytes": stream.sort_memory,
            "algorithm": {"kind": "pagerank", **taken(stream, "mode", "damping", "tolerance", "iterations")},
            "reading": {
                "queue_depth": stream.queue_depth,
                "request_bytes": stream.request_size,
                "cache_bytes": stream.cache_size,
            },
            "jobs": stream.jobs,
            "duration_ns": stream.duration,
            "interval_ns": stream.interval,
            **taken(stream, "verify_after", "cpus"),
            "result_path": None,
        }

    def cost(self, streams: Mapping[str, GraphParameters]) -> Cost:
        """Time at most, of a computation that needs all its iterations; nothing is written except the graph."""
        stream = whole_of(streams)
        size = size_of(stream)
        reading = size.adjacency_bytes / ASSUMED_BYTES_PER_SECOND
        computing = size.stored_edges / ASSUMED_EDGES_PER_SECOND
        seconds = stream.iterations * max(reading, computing / stream.jobs)
        if stream.duration is not None:
            seconds = min(seconds, stream.duration / 10**9)
        checking = max(reading, computing) if stream.verify_after else 0.0
        return Cost(seconds=seconds + checking, write_bytes=0)

    def files(self, streams: Mapping[str, GraphParameters]) -> dict[str, int]:
        """The graph, with the room in which its edges are sorted."""
        stream = whole_of(streams)
        return {graph_name(stream): area_bytes(stream)}

    def buffer_bytes(self, streams: Mapping[str, GraphParameters]) -> int:
        """Memory that a run takes at once: vertex state, index, page cache and buffers.

        The vertices of an edge list are not known, and a plan refuses only what cannot run: the engine counts them
        while it imports the list, and refuses those for which there is no memory.
        """
        stream = whole_of(streams)
        vertices = size_of(stream).vertices if stream.edge_list is None else 0
        state = vertices * (8 + _STATE_BYTES)
        buffers = 2 * stream.jobs * stream.queue_depth * stream.request_size
        return state + buffers + stream.cache_size

    def must_align(self, stream: GraphParameters) -> dict[str, list[int]]:
        """Reads are direct, in multiples of a page."""
        return {"request_size": [stream.request_size]}

    def layout(self, streams: Mapping[str, GraphParameters]) -> Layout:
        """A graph is written unless the target has it."""
        return "missing"

    def notes(self, streams: Mapping[str, GraphParameters]) -> list[str]:
        """The time to write the graph."""
        stream = whole_of(streams)
        edges = size_of(stream).stored_edges
        seconds = edges / ASSUMED_BUILD_EDGES_PER_SECOND
        if seconds < 1:
            return []
        time = format_estimate(seconds)
        return [f"writing a graph of {format_count(edges)} stored edges takes about {time} of CPU time, once"]

    def streams(self, workload: Spec) -> list[Mapping[str, Any]]:
        """The jobs of the algorithm, which read the lists."""
        return [{"name": "main", "jobs": workload["jobs"], "arrival": CLOSED, **workload["reading"]}]

    def problem(self, workload: Spec, case: Mapping[str, Any], place: Target) -> str:
        """A graph is imported from the file of its case, and its result is not written anywhere."""
        path = workload["graph"]["source"].get("path")
        if path is not None and path != case["edge_list"]:
            return f"the spec imports `{path}`, and the case has another edge list"
        if workload.get("result_path") is not None:
            return f"the spec writes its result to `{workload['result_path']}`"
        return ""

    def file_name(self, workload: Spec) -> str:
        """Each graph has a file of its own."""
        name = Path(workload["target"]["path"]).name
        return name if _FILE.fullmatch(name) else ""

    def words(self, case: Mapping[str, Any]) -> dict[str, str]:
        """Words that make up `PageRank (pull)`."""
        if (algorithm := case.get("algorithm")) in _ALGORITHMS:
            return {self.subject: _ALGORITHMS[algorithm]}
        return {self.subject: f"PageRank ({case['mode']})" if case.get("mode") else "PageRank"}


WORKLOADS = (GraphWorkload(),)
