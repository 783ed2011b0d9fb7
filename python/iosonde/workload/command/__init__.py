"""An external command as a case: any benchmark, with everything else from iosonde. See docs/commands.md.

A workload as `workload.interface.Workload` has it. The engine of its specs is `iosonde.supervisor`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from iosonde.errors import StudyError
from iosonde.plan import commands
from iosonde.workload import reading
from iosonde.workload.command.description import DESCRIPTION
from iosonde.workload.command.footprint import (
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
from iosonde.workload.command.parameters import CommandParameters, check_variable
from iosonde.workload.command.spec import resolve

__all__ = [
    "DESCRIPTION",
    "DURATIONS",
    "LESS_MEMORY",
    "PARAMETERS",
    "SHOWN",
    "SIZES",
    "SMALLER",
    "TITLE",
    "CommandParameters",
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

TITLE = commands.TITLE

PARAMETERS: type[BaseModel] = CommandParameters

SIZES: Sequence[str] = ("output_limit", "space", "memory_limit")

DURATIONS: Sequence[str] = ("duration", "timeout", "interval")

SHOWN: Sequence[str] = ("memory_limit", "timeout")

SMALLER = "need less room with `--set space=...`"
LESS_MEMORY = ""


def read_value(name: str, value: Any) -> Any:
    """One parameter or variable as written -> checked; `StudyError` where it is invalid."""
    if name in CommandParameters.model_fields:
        return reading.value(CommandParameters, TITLE, name, value)
    try:
        return check_variable(name, value)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise StudyError(what, hint=hint) from None


def build(parameters: Mapping[str, Any]) -> CommandParameters:
    """A command's parameters and variables as written, with defaults, checked each by itself and together."""
    try:
        return CommandParameters.model_validate(dict(parameters))
    except ValidationError as error:
        for name, given in parameters.items():
            read_value(name, given)
        what, _, hint = error.errors()[0]["msg"].removeprefix("Value error, ").partition("; ")
        raise StudyError(what, hint=hint) from None
