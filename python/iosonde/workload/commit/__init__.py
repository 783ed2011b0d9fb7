"""Single-row durable commits on a database server: the group-commit curve of a log device.

A workload as `workload.interface.Workload` has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from iosonde.workload import reading
from iosonde.workload.commit.footprint import (
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
from iosonde.workload.commit.parameters import CommitParameters
from iosonde.workload.commit.spec import resolve
from iosonde.workload.oltp.fields import DURATIONS
from iosonde.workload.oltp.fields import SIZES as _SIZES

__all__ = [
    "DURATIONS",
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


def read_value(name: str, value: Any) -> Any:
    """One parameter as written -> checked and in bytes or nanoseconds; `StudyError` says what is wrong with it."""
    return reading.value(CommitParameters, TITLE, name, value)


def build(parameters: Mapping[str, Any]) -> CommitParameters:
    """A stream's parameters as written, with defaults, checked each by itself and together."""
    return reading.build(CommitParameters, TITLE, parameters)
