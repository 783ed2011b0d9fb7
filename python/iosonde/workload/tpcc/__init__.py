"""TPC-C on a database server: a workload as `workload.interface.Workload` has it.

Without keying and think times a result is not TPC-C: reports label it "TPC-C-like, no think time".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.oltp.fields import DURATIONS, SIZES
from iosonde.workload.tpcc.footprint import (
    addressed_bytes,
    buffer_bytes,
    cost,
    files,
    fit,
    layout,
    must_align,
    notes,
    prepares,
    room_by,
)
from iosonde.workload.tpcc.parameters import TpccParameters
from iosonde.workload.tpcc.spec import load_spec, resolve

__all__ = [
    "DURATIONS",
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


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` says what is wrong with it."""
    return reading.value(TpccParameters, TITLE, name, value)


def build(parameters: Mapping[str, Any]) -> TpccParameters:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    return reading.build(TpccParameters, TITLE, parameters)
