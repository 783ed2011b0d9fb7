"""Single-row durable commits on a database server: the group-commit curve of a log device.

A workload as `workload.interface.Workload` has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.commit.description import DESCRIPTION
from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.commit.spec import resolve
from iosonde.workload.oltp.fields import DURATIONS
from iosonde.workload.oltp.fields import SIZES as _SIZES
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

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "CommitParameters",
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

TITLE = "durable commits"

PARAMETERS: type[BaseModel] = CommitParameters

SIZES: Sequence[str] = (*_SIZES, "payload")

SHOWN: Sequence[str] = ("server", "clients", "operation", "payload", "memory_limit", "duration")

SMALLER = "commit for a shorter time with `--set duration=...`"
LESS_MEMORY = ""

read_value = partial(reading.value, CommitParameters, TITLE)
build = partial(reading.build, CommitParameters, TITLE)


def room_by(files: int) -> str:
    """A clause that states what this many databases need room for."""
    return f"for the logs of {files} servers" if files > 1 else "for the log of a server"
