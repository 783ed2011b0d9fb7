"""Schema of specs and events of external commands, which the supervisor runs, not the engine (docs/commands.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.engine.protocol import schema

Json = dict[str, Any]

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
TEXTS = {"type": "array", "items": TEXT}


def _object(*, optional: Mapping[str, Json] | None = None, **fields: Json) -> Json:
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": [*fields]}


def _table(each: Json) -> Json:
    return {"type": "object", "additionalProperties": each}


METRIC = _object(
    title=TEXT,
    unit=TEXT,
    better=TEXT,
    json=TEXT,
    pattern=TEXT,
    lines=TEXT,
    aggregate=TEXT,
    scale={"type": "number"},
)
"""Place and meaning of a value in the output; of `json`, `pattern` and `lines` one is not empty."""

WORKLOAD = _object(
    kind=TEXT,
    target=_object(kind=TEXT, path=TEXT, log_path={"type": ["string", "null"]}),
    programs=_table(_object(path=TEXT, sha256=TEXT)),
    versions=_table(TEXTS),
    prepare={"type": "array", "items": TEXTS},
    background={"type": "array", "items": _object(command=TEXTS, ready=TEXT)},
    command=TEXTS,
    environment=_table(TEXT),
    timeout_ns=NUMBER,
    interval_ns=NUMBER,
    exit_codes={"type": "array", "items": NUMBER},
    output=TEXT,
    output_limit_bytes=NUMBER,
    metrics=_table(METRIC),
    optional={"server": _table({})},
)
"""Commands of a run, and the places of its values. The target is the working directory, new for each run."""


SPEC = _object(protocol=NUMBER, run_id=TEXT, seed=NUMBER, workload=WORKLOAD, observe={"$ref": "Observe"})
"""One run of an external command."""

VALUE = _object(
    metric=TEXT,
    point={"type": "integer", "format": "uint32"},
    begin_ns={"type": "integer", "format": "uint64"},
    end_ns={"type": "integer", "format": "uint64"},
    value={"type": "number", "format": "double"},
)
VALUES = _object(event={"const": "values"}, values={"type": "array", "items": VALUE})
"""Event of the supervisor: all values that the command printed, before the result."""


def definitions() -> Mapping[str, Any]:
    """The engine's schema with what the supervisor has instead: of a command no operations are known."""
    events = {"oneOf": [*schema()["Event"]["oneOf"], VALUES]}
    return {**schema(), "Spec": SPEC, "Event": events, "Operation": {"const": "command"}}
