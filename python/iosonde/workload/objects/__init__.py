"""Whole objects in an object store: a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`), the engine's spec (`spec`), what a run needs and takes (`needs`).
"""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.objects.description import DESCRIPTION
from iosonde.workload.objects.needs import (
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
from iosonde.workload.objects.parameters import DURATIONS, SHOWN, SIZES, ObjectsParameters
from iosonde.workload.objects.spec import fit, resolve

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "ObjectsParameters",
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

TITLE = "objects"

PARAMETERS: type[BaseModel] = ObjectsParameters

SMALLER = "use smaller object daemons with `--set osd_size=...`, or fewer with `--set osds=1`"
LESS_MEMORY = (
    "use smaller objects or fewer operations in flight, with `--set object_size=...`, `--set "
    "queue_depth=...` or `--set jobs=...`"
)

read_value = partial(reading.value, ObjectsParameters, TITLE)
build = partial(reading.build, ObjectsParameters, TITLE)
