"""Whether specs and results have the fields and types of the protocol: those in a result set may be damaged, edited or
malicious.

Types are compiled to functions once, and are the same for every version of the protocol: whatever version a spec
claims, it must have every field that is required today.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from iosonde.protocol import command, event
from iosonde.protocol import spec as types_of_specs
from iosonde.protocol.version import VERSION

Check = Callable[[Any], bool]

_LARGEST = 1 << 64

_SHOWN = 40
"""Characters of an invalid value that a message shows."""


def mismatch(spec: Any) -> str:
    """Return the first part of a spec that is not as the protocol defines it; empty if there is none.

    Engines refuse fields that they do not know, so a spec with one was never carried out.
    """
    if not isinstance(spec, dict):
        return "a spec is not an object"
    version: Any = spec.get("protocol")
    if not (_is_integer(version) and 1 <= version <= VERSION):
        return f"`protocol` of a spec is {str(version)[:20]!r}, and this iosonde reads 1 to {VERSION}"
    workload = spec.get("workload")
    is_command = isinstance(workload, dict) and workload.get("kind") == "command"
    kind = command.Spec if is_command else types_of_specs.Spec
    return "" if _compile(kind, True)(spec) else f"in a spec: {explain(kind, spec, is_closed=True)}"


def mismatch_of_result(result: Any) -> str:
    """Return the first part of a recorded `result` event that is not as the protocol defines it."""
    if not isinstance(result, dict):
        return "the result is not an object"
    oltp = result.get("oltp")
    oltp = oltp if isinstance(oltp, dict) else {}
    consistency = oltp.get("consistency") or []
    # The generated types do not have these: they are events of their own, too.
    embedded = [
        (event.VerificationEvent, result.get("verification"), "the verification"),
        (event.DurabilityEvent, oltp.get("durability"), "the durability"),
        *(
            (event.ConsistencyEvent, each, "a consistency check")
            for each in consistency
            if isinstance(consistency, list)
        ),
    ]
    problems = [_mismatch(event.ResultEvent, result, "the result")]
    problems += [_mismatch(kind, part, what) for kind, part, what in embedded if part is not None]
    return next(filter(None, problems), "")


def mismatch_of_hello(hello: Any) -> str:
    """Return the first part of a recorded `hello` event that has another type; any may be missing."""
    if not isinstance(hello, dict):
        return "`engine` is not an object"
    present = [field for field in _fields(event.HelloEvent, False) if field.name in hello]
    return next((f"`{each.name}` of the engine has another type" for each in present if not each.is_right(hello)), "")


def fits(kind: Any, value: Any) -> bool:
    """Return whether a value from JSON is of a type: a `TypedDict`, or what its fields may be."""
    return _compile(kind, False)(value)


def explain(kind: Any, value: Any, *, at: str = "", is_closed: bool = False) -> str:
    """Return where a value is not of its type and why; empty if it is.

    Unknown fields are an error where `is_closed`.
    """
    if _compile(kind, is_closed)(value):
        return ""
    if get_origin(kind) in (Union, types.UnionType):
        kind = _chosen(kind, value)
    if is_typeddict(kind) and isinstance(value, dict):
        return _explain_object(kind, value, at, is_closed)
    if get_origin(kind) is list and isinstance(value, list):
        parts: Iterable[tuple[Any, Any, Any]] = ((get_args(kind)[0], place, each) for place, each in enumerate(value))
    elif get_origin(kind) is dict and isinstance(value, dict):
        parts = ((get_args(kind)[1], name, each) for name, each in value.items())
    else:
        parts = ()
    below = (explain(inner, each, at=_below(at, name), is_closed=is_closed) for inner, name, each in parts)
    return next(filter(None, below), f"`{at or 'content'}` is {_shown(value)}, which is not {_described(kind)}")


def _explain_object(kind: Any, value: Mapping[str, Any], at: str, is_closed: bool) -> str:
    fields = _fields(kind, is_closed)
    for field in fields:
        place = _below(at, field.name)
        if field.name not in value and field.is_required:
            return f"`{place}` is missing"
        if not field.is_right(value):
            return explain(field.kind, value[field.name], at=place, is_closed=is_closed)
    unknown = next(name for name in value if name not in {field.name for field in fields})
    return f"`{_below(at, unknown)}` is {_shown(value[unknown])}, and there is no such field"


def _below(at: str, name: Any) -> str:
    return f"{at}.{str(name)[:_SHOWN]}" if at else str(name)[:_SHOWN]


def _chosen(kind: Any, value: Any) -> Any:
    """Return the type of a union that a value claims by its `kind`; the union itself if there is none."""
    choices = [each for each in get_args(kind) if is_typeddict(each)]
    claimed = value.get("kind") if isinstance(value, dict) else None
    named = (
        each for each in choices for field in _fields(each, False) if field.name == "kind" and field.check(claimed)
    )
    return next(named, choices[0] if len(choices) == 1 and isinstance(value, dict) else kind)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _described(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, get_args(kind))))
    if origin is Literal:
        return " or ".join(map(_shown, get_args(kind)))
    if is_typeddict(kind) or origin is dict:
        return "an object of a known kind" if origin is None else "an object"
    return "a list" if origin in (list, tuple) else _DESCRIBED.get(kind, "of a known type")


def _mismatch(kind: Any, value: Any, what: str) -> str:
    found = explain(kind, value)
    return f"in {what}: {found}" if found else ""


@dataclass(frozen=True)
class _Field:
    name: str
    kind: Any
    is_required: bool
    check: Check

    def is_right(self, fields: Mapping[str, Any]) -> bool:
        return self.check(fields[self.name]) if self.name in fields else not self.is_required


@cache
def _fields(kind: Any, is_closed: bool) -> tuple[_Field, ...]:
    # `__required_keys__` does not know `NotRequired` where annotations are postponed.
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if is_optional else hint
        # Events are recorded without their name.
        found.append(_Field(name, inner, not is_optional and name != "event", _compile(inner, is_closed)))
    return tuple(found)


@cache
def _compile(kind: Any, is_closed: bool) -> Check:
    """Return the check of a type; closed, it refuses unknown fields of objects."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return _object(kind, is_closed)
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in arguments
    if origin in (Union, types.UnionType):
        choices = [_compile(each, is_closed) for each in arguments]
        return lambda value: any(check(value) for check in choices)
    if origin is list:
        inner = _compile(arguments[0], is_closed)
        return lambda value: isinstance(value, list) and all(map(inner, value))
    if origin is tuple:
        places = [_compile(each, is_closed) for each in arguments]
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(places)
            and all(check(each) for check, each in zip(places, value, strict=True))
        )
    if origin is dict:
        values = _compile(arguments[1], is_closed)
        return lambda value: isinstance(value, dict) and all(map(values, value.values()))
    return _SIMPLE[kind]


def _object(kind: Any, is_closed: bool) -> Check:
    def check(value: Any) -> bool:
        fields = _fields(kind, is_closed)
        if not isinstance(value, dict) or not all(field.is_right(value) for field in fields):
            return False
        return not is_closed or value.keys() <= {field.name for field in fields}

    return check


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


_SIMPLE: dict[Any, Check] = {
    str: _is_text,
    int: _is_integer,
    float: _is_number,
    bool: lambda value: isinstance(value, bool),
    type(None): lambda value: value is None,
    object: lambda value: True,
    Any: lambda value: True,
}

_DESCRIBED = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
