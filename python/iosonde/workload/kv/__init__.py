"""Key-value stores: a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`, with the loads by name in `phases`), how values are written
(`notation`), what must fit together (`rules`), what phases and the target decide (`fitting`), the engine's spec
(`spec`), what a run needs (`requirements`) and takes (`cost`).
"""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.kv.cost import cost
from iosonde.workload.kv.description import DESCRIPTION
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
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
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
LESS_MEMORY = ""

read_value = partial(reading.value, KvParameters, TITLE)
build = partial(reading.build, KvParameters, TITLE)
