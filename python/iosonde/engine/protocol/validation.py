"""Checks of values from JSON against the types of the protocol.

An engine may be defective, a result set may be damaged, edited or malicious.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, SchemaValidator, core_schema

from iosonde.engine.protocol import VERSION, Event, schema

_RETIRED_STORES = ("redb", "fjall")
_RETIRED_ALGORITHMS = ("bfs", "components")
"""Earlier versions measured these. Their result sets stay readable; engines refuse such a spec."""

_OF_NUMBERS = ("greater_than_equal", "less_than", "finite_number")
"""Kinds of errors about numbers that are out of range."""

_SHOWN = 40
"""Characters of an invalid value that a message shows."""


def event_parser(*, of_command: bool) -> Callable[[bytes], Event]:
    """Return the function that parses a line of the engine, or of the supervisor of a command.

    It raises `ValueError` if the line is not an event. Unknown fields are kept.
    """
    validator = _validator("Event", of_command=of_command)

    def parse(line: bytes) -> Event:
        try:
            return cast("Event", validator.validate_json(line, strict=True, extra="allow"))
        except ValidationError as error:
            raise ValueError(_description_of_event(error)) from None

    return parse


def mismatch(value: Any, kind: Any, *, at: str = "", is_closed: bool = False) -> str:
    """Return the first place where a value is not of its type, and why; empty if it is.

    Places start with `at`. Unknown fields are an error where `is_closed`.
    """
    return _mismatch(_adapter(kind), value, at=at, is_closed=is_closed)


def mismatch_of_spec(value: Any) -> str:
    """Return the first part of a spec that is not as the protocol defines it; empty if there is none.

    Engines refuse fields that they do not know, so a spec with one was never carried out.
    """
    version = value.get("protocol") if isinstance(value, dict) else None
    if type(version) is not int or version != VERSION:
        return f"`protocol` of a spec is {_shown(version)}, this iosonde reads {VERSION}"
    workload = value.get("workload")
    is_command = isinstance(workload, dict) and workload.get("kind") == "command"
    if isinstance(workload, dict):
        value = {**value, "workload": _without_retired(workload)}
    found = _mismatch(_validator("Spec", of_command=is_command), value, is_closed=True)
    return found and f"in a spec: {found}"


def mismatch_of_result(value: Any) -> str:
    """Return the first part of a recorded `result` event that is not as the protocol defines it."""
    if isinstance(value, dict):
        value = _without_retired(value)
    found = _mismatch(_validator("RunResult"), value)
    return found and f"in the result: {found}"


def mismatch_of_hello(value: Any) -> str:
    """Return the first part of a recorded `hello` event that has another type; any may be missing."""
    try:
        _validator("Hello").validate_python(value, strict=True)
    except ValidationError as error:
        wrong = [each for each in error.errors(include_url=False) if each["type"] != "missing"]
        return f"in `engine`: {_describe(wrong[0], value, '')}" if wrong else ""
    return ""


def unsupported(spec: Any, schema_of_engine: Mapping[str, Any]) -> str:
    """Return a clause about the first part of a spec that an engine does not have in its schema; empty if it has all.

    Names and kinds are compared, not numbers: the engine checks those when it gets the spec.
    """
    validator = SchemaValidator(_core(schema_of_engine, schema_of_engine.get("$defs", {})))
    try:
        validator.validate_python(spec, strict=True, extra="forbid")
    except ValidationError as error:
        errors = [each for each in error.errors(include_url=False) if each["type"] not in _OF_NUMBERS]
        return _why_unsupported(_of_claimed_kind(errors), spec) if errors else ""
    return ""


def _why_unsupported(found: ErrorDetails, spec: Any) -> str:
    place = _place(found["loc"], spec)
    if found["type"] == "missing":
        return f"it needs `{_located([*place, found['loc'][-1]])}`, which is missing"
    if found["type"] == "extra_forbidden":
        return f"it does not support `{_located(place)}`"
    return f"it does not support `{_located(place[:-1] if place[-1] == 'kind' else place)}: {found['input']}`"


def _located(place: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _without_retired(value: dict[str, Any]) -> dict[str, Any]:
    """Return a workload or result with alternatives that the protocol has instead of retired ones."""
    store, reading, algorithm = (value.get(name) for name in ("store", "reading", "algorithm"))
    current = dict(value)
    if isinstance(store, dict) and store.get("kind") in _RETIRED_STORES:
        current["store"] = {**store, "kind": "null"}
    if isinstance(reading, dict):
        current["reading"] = {name: each for name, each in reading.items() if name != "merge_gap_bytes"}
    if isinstance(algorithm, dict) and algorithm.get("kind") in _RETIRED_ALGORITHMS:
        pagerank = {"kind": "pagerank", "mode": "pull", "damping": 0.85, "tolerance": 0.0, "iterations": 1}
        current["algorithm"] = pagerank
    return current


def _mismatch(validator: Any, value: Any, *, at: str = "", is_closed: bool = False) -> str:
    try:
        validator.validate_python(value, strict=True, extra="forbid" if is_closed else "ignore")
    except ValidationError as error:
        return _describe(_of_claimed_kind(error.errors(include_url=False)), value, at)
    return ""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _validator(definition: str, *, of_command: bool = False) -> SchemaValidator:
    definitions = schema()
    if of_command:  # No operations are known.
        events = {"oneOf": [*schema()["Event"]["oneOf"], _VALUES]}
        definitions = {**schema(), "Spec": COMMAND_SPEC, "Event": events, "Operation": {"const": "command"}}
    return SchemaValidator(_core({"$ref": definition}, definitions))


def _core(part: Any, definitions: Mapping[str, Any]) -> CoreSchema:
    """Pydantic's schema for a part of the engine's, which uses few of the words of JSON schema."""
    if part is True:
        return core_schema.any_schema()
    if "$ref" in part:
        return _core(_resolved(part, definitions), definitions)
    if "const" in part:
        return core_schema.literal_schema([part["const"]])
    if "enum" in part:
        return core_schema.literal_schema(part["enum"])
    if alternatives := part.get("oneOf") or part.get("anyOf"):
        return _core_of_alternatives([_resolved(each, definitions) for each in alternatives], definitions)
    kinds = part.get("type")
    if isinstance(kinds, list):
        return core_schema.nullable_schema(_core({**part, "type": kinds[0]}, definitions))
    match kinds:
        case "integer":
            bits = str(part.get("format", "")).removeprefix("uint")
            return core_schema.int_schema(ge=0, lt=1 << int(bits)) if bits else core_schema.int_schema()
        case "number":
            return core_schema.float_schema(allow_inf_nan="format" not in part)
        case "string":
            return core_schema.str_schema()
        case "boolean":
            return core_schema.bool_schema()
        case "array" if "prefixItems" in part:
            return core_schema.tuple_schema([_core(each, definitions) for each in part["prefixItems"]])
        case "array":
            return core_schema.list_schema(_core(part["items"], definitions))
        case "object" if "properties" not in part:
            return core_schema.dict_schema(core_schema.str_schema(), _core(part["additionalProperties"], definitions))
        case "object":
            return core_schema.typed_dict_schema(
                {
                    name: core_schema.typed_dict_field(
                        _core(each, definitions), required=name in part.get("required", ())
                    )
                    for name, each in part["properties"].items()
                }
            )
    return core_schema.any_schema()


def _core_of_alternatives(alternatives: Sequence[Any], definitions: Mapping[str, Any]) -> CoreSchema:
    if all("const" in each for each in alternatives):
        return core_schema.literal_schema([each["const"] for each in alternatives])
    if alternatives[-1].get("type") == "null":
        return core_schema.nullable_schema(_core(alternatives[0], definitions))
    found = [_core(each, definitions) for each in alternatives]
    if all("event" in each["properties"] for each in alternatives):
        names = (each["properties"]["event"]["const"] for each in alternatives)
        return core_schema.tagged_union_schema(dict(zip(names, found, strict=True)), "event")
    return core_schema.union_schema([(each, f"alternative {number}") for number, each in enumerate(found)])


def _resolved(part: Any, definitions: Mapping[str, Any]) -> Any:
    """A part with the definition that it refers to, to which an event adds its name."""
    if "$ref" not in part:
        return part
    whole = definitions[part["$ref"].rpartition("/")[2]]
    if "properties" not in part:
        return whole
    properties = {**whole["properties"], **part["properties"]}
    return {**whole, "properties": properties, "required": [*whole["required"], *part["required"]]}


def _of_claimed_kind(errors: list[ErrorDetails]) -> ErrorDetails:
    """Return the first error that is not of an alternative with another `kind` than the value claims."""
    others = [each["loc"][:-1] for each in errors if each["type"] == "literal_error" and each["loc"][-1:] == ("kind",)]
    return next((each for each in errors if not any(each["loc"][: len(loc)] == loc for loc in others)), errors[0])


def _description_of_event(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    if found["type"] == "union_tag_invalid":
        return f"`event` is {found['ctx']['tag']!r:.40}, and there is no such event"
    return "`event` is missing" if found["type"] == "union_tag_not_found" else _sentence(found, _join(found["loc"][1:]))


def _describe(found: ErrorDetails, value: Any, at: str) -> str:
    place = [*([at] if at else []), *_place(found["loc"], value)]
    return _sentence(found, _join([*place, found["loc"][-1]] if found["type"] == "missing" else place))


def _sentence(found: ErrorDetails, place: str) -> str:
    if found["type"] == "missing":
        return f"`{place}` is missing"
    if found["type"] == "extra_forbidden":
        return f"`{place}` is {_shown(found['input'])}, and there is no such field"
    if found["type"] == "json_invalid":
        return found["msg"].removeprefix("Invalid JSON: ")
    rule = found["msg"].replace("Input should be", "must be").replace("dictionary", "object")
    return f"`{place or 'content'}` {rule}, got {_shown(found['input'])}"


def _place(loc: tuple[int | str, ...], value: Any) -> list[int | str]:
    """Return the keys and indices of a place in a value: without the names of alternatives, which are types."""
    found = []
    for part in loc:
        if (isinstance(value, dict) and part in value) or (isinstance(value, list | tuple) and isinstance(part, int)):
            found.append(part)
            value = value[part]  # type: ignore[index]
    return found


def _join(place: Sequence[int | str]) -> str:
    return ".".join(str(part)[:_SHOWN] for part in place)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Specs and events of external commands, which the supervisor runs and not the engine (docs/commands.md)

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_TEXTS = {"type": "array", "items": _TEXT}


def _object(*, optional: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**fields, **(optional or {})}, "required": [*fields]}


def _table(each: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": each}


_METRIC = _object(
    title=_TEXT,
    unit=_TEXT,
    better=_TEXT,
    json=_TEXT,
    pattern=_TEXT,
    lines=_TEXT,
    aggregate=_TEXT,
    scale={"type": "number"},
)
"""Place and meaning of a value in the output; of `json`, `pattern` and `lines` one is not empty."""

_WORKLOAD = _object(
    kind=_TEXT,
    target=_object(kind=_TEXT, path=_TEXT, log_path={"type": ["string", "null"]}),
    programs=_table(_object(path=_TEXT, sha256=_TEXT)),
    versions=_table(_TEXTS),
    prepare={"type": "array", "items": _TEXTS},
    background={"type": "array", "items": _object(command=_TEXTS, ready=_TEXT)},
    command=_TEXTS,
    environment=_table(_TEXT),
    timeout_ns=_NUMBER,
    interval_ns=_NUMBER,
    exit_codes={"type": "array", "items": _NUMBER},
    output=_TEXT,
    output_limit_bytes=_NUMBER,
    metrics=_table(_METRIC),
    optional={"server": _table({})},
)
"""Commands of a run, and the places of its values. The target is the working directory, new for each run."""


COMMAND_SPEC = _object(protocol=_NUMBER, run_id=_TEXT, seed=_NUMBER, workload=_WORKLOAD, observe={"$ref": "Observe"})
"""One run of an external command."""

_VALUE = _object(
    metric=_TEXT,
    point={"type": "integer", "format": "uint32"},
    begin_ns={"type": "integer", "format": "uint64"},
    end_ns={"type": "integer", "format": "uint64"},
    value={"type": "number", "format": "double"},
)
_VALUES = _object(event={"const": "values"}, values={"type": "array", "items": _VALUE})
"""Event of the supervisor: all values that the command printed, before the result."""
