"""TPC-C on a database server: a workload as `workload.interface.Workload` has it.

Without keying and think times a result is not TPC-C: reports label it "TPC-C-like, no think time".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.oltp.fields import DURATIONS, SIZES
from iosonde.workload.oltp.footprint import (
    addressed_bytes,
    buffer_bytes,
    cost,
    files,
    fit,
    layout,
    must_align,
    notes,
    prepares,
)
from iosonde.workload.tpcc.description import DESCRIPTION
from iosonde.workload.tpcc.parameters import TpccParameters
from iosonde.workload.tpcc.spec import load_spec, resolve

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "TpccParameters",
    "addressed_bytes",
    "buffer_bytes",
    "build",
    "cost",
    "files",
    "fit",
    "layout",
    "load_spec",
    "must_align",
    "notes",
    "prepares",
    "read_value",
    "resolve",
    "room_by",
]

TITLE = "TPC-C"

PARAMETERS: type[BaseModel] = TpccParameters

SHOWN: Sequence[str] = ("server", "warehouses", "terminals", "think", "memory_limit", "duration")

SMALLER = "make the database smaller with `--set warehouses=...`"
LESS_MEMORY = ""

read_value = partial(reading.value, TpccParameters, TITLE)
build = partial(reading.build, TpccParameters, TITLE)


def room_by(files: int) -> str:
    """A clause that names the parameters which decide how much room this many databases need."""
    return f"for {files} databases, by the parameter `warehouses`" if files > 1 else "by the parameter `warehouses`"
