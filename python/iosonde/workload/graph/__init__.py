"""Algorithms on a graph whose adjacency lists are on the target: a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`), the size of a graph (`size`), the engine's spec (`spec`), what a run
needs and takes (`needs`).
"""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.graph.description import DESCRIPTION
from iosonde.workload.graph.needs import (
    addressed_bytes,
    buffer_bytes,
    cost,
    files,
    layout,
    must_align,
    notes,
    prepares,
    room_by,
)
from iosonde.workload.graph.parameters import DURATIONS, SHOWN, SIZES, GraphParameters
from iosonde.workload.graph.spec import fit, resolve

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "GraphParameters",
    "addressed_bytes",
    "buffer_bytes",
    "build",
    "cost",
    "files",
    "fit",
    "layout",
    "must_align",
    "notes",
    "prepares",
    "read_value",
    "resolve",
    "room_by",
]

TITLE = "graph algorithms"

PARAMETERS: type[BaseModel] = GraphParameters

SMALLER = "use a smaller graph with `--set scale=...`, or a shorter `edge_list`"
LESS_MEMORY = "use a smaller graph with `--set scale=...`, or a smaller page cache with `--set cache_fraction=...`"

read_value = partial(reading.value, GraphParameters, TITLE)
build = partial(reading.build, GraphParameters, TITLE)
