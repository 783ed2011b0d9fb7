"""Accesses to mapped memory (PMbench's method): a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`), the engine's spec (`spec`), what a run needs and takes (`needs`).
"""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.paging.description import DESCRIPTION
from iosonde.workload.paging.needs import (
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
from iosonde.workload.paging.parameters import DURATIONS, SHOWN, SIZES, PagingParameters
from iosonde.workload.paging.spec import fit, resolve

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "PagingParameters",
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

TITLE = "paging"

PARAMETERS: type[BaseModel] = PagingParameters

SMALLER = "map less with `--set size=...`"
LESS_MEMORY = "map less with `--set size=...`, or set a `memory_limit`"

read_value = partial(reading.value, PagingParameters, TITLE)
build = partial(reading.build, PagingParameters, TITLE)
