"""Key-value stores: a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`, with the loads by name in `phases`), how values are written
(`notation`), what must fit together (`rules`), what phases and the target decide (`fitting`), the engine's spec
(`spec`), what a run needs (`requirements`) and takes (`cost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.kv.cost import cost
from iosonde.workload.kv.fields import DURATIONS, SHOWN, SIZES, STORES
from iosonde.workload.kv.fitting import fit
from iosonde.workload.kv.parameters import KvParameters
from iosonde.workload.kv.requirements import (
    addressed_bytes,
    buffer_bytes,
    files,
    layout,
    must_align,
    notes,
    prepares,
    room_by,
)
from iosonde.workload.kv.spec import resolve

__all__ = [
    "DURATIONS",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "STORES",
    "TITLE",
    "KvParameters",
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

TITLE = "key-value stores"

PARAMETERS: type[BaseModel] = KvParameters

SMALLER = "make the database smaller with `--set records=...`"


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` says what is wrong with it."""
    return reading.value(KvParameters, TITLE, name, value)


def build(parameters: Mapping[str, Any]) -> KvParameters:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    return reading.build(KvParameters, TITLE, parameters)
