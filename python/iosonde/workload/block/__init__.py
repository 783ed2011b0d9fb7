"""Block I/O: a workload as `workload.interface.Workload` has it.

One file each: what a study may set (`parameters`), how values are written (`notation`), what must fit together
(`rules`), what the target decides (`fitting`), the engine's spec (`spec`), what a run needs (`requirements`) and takes
(`cost`).
"""

from __future__ import annotations

from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.block.cost import cost
from iosonde.workload.block.description import DESCRIPTION
from iosonde.workload.block.fields import DURATIONS, SCALABLE, SHOWN, SIZES, WHOLE_NUMBERS
from iosonde.workload.block.fitting import fit
from iosonde.workload.block.parameters import BlockParameters
from iosonde.workload.block.requirements import (
    addressed_bytes,
    buffer_bytes,
    files,
    layout,
    must_align,
    notes,
    prepares,
    room_by,
)
from iosonde.workload.block.spec import prepare, resolve, vary

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SCALABLE",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "WHOLE_NUMBERS",
    "BlockParameters",
    "addressed_bytes",
    "buffer_bytes",
    "build",
    "cost",
    "files",
    "fit",
    "layout",
    "must_align",
    "notes",
    "prepare",
    "prepares",
    "read_value",
    "resolve",
    "room_by",
    "vary",
]

TITLE = "block I/O"

PARAMETERS: type[BaseModel] = BlockParameters

SMALLER = "make the span smaller with `--set span=...`"
LESS_MEMORY = (
    "leave out the largest blocks, the deepest queues or the most jobs, with `--set block_size=...`, "
    "`--set queue_depth=...` or `--set jobs=...`"
)

read_value = partial(reading.value, BlockParameters, TITLE)
build = partial(reading.build, BlockParameters, TITLE)
