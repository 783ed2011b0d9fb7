"""Whether specs and results have the fields and types of the protocol: those in a result set may be damaged, edited or
malicious.

Types are compiled to functions once, and are the same for every version of the protocol. No version has renamed or
removed a field, and those that were added are optional (`tests/results/test_old_result_sets.py`), so whatever version
a spec claims, it has every field that is required today.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from iosonde.protocol import command, event
from iosonde.protocol import spec as types_of_specs
from iosonde.protocol.version import VERSION

Check = Callable[[Any], bool]

_LARGEST = 1 << 64


def mismatch(spec: Any) -> str:
    """Return the first part of a spec that is not as the protocol defines it; empty if there is none."""
    if not isinstance(spec, dict):
        return "a spec is not an object"
    version: Any = spec.get("protocol")
    if not (_is_integer(version) and 1 <= version <= VERSION):
        return f"`protocol` of a spec is {str(version)[:20]!r}, and this iosonde reads 1 to {VERSION}"
    workload = spec.get("workload")
    is_command = isinstance(workload, dict) and workload.get("kind") == "command"
    return _mismatch(command.Spec if is_command else types_of_specs.Spec, spec, "a spec")


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
    present = [field for field in _fields(event.HelloEvent) if field.name in hello]
    return next((f"`{each.name}` of the engine has another type" for each in present if not each.is_right(hello)), "")


def fits(kind: Any, value: Any) -> bool:
    """Return whether a value from JSON is of a type: a `TypedDict`, or what its fields may be."""
    return _compile(kind)(value)


def _mismatch(kind: Any, value: Any, what: str) -> str:
    if not isinstance(value, dict):
        return f"{what} is not an object"
    for field in _fields(kind):
        if not field.is_right(value):
            return f"`{field.name}` of {what} is not as the protocol defines it"
    return ""


@dataclass(frozen=True)
class _Field:
    name: str
    is_required: bool
    check: Check

    def is_right(self, fields: Mapping[str, Any]) -> bool:
        return self.check(fields[self.name]) if self.name in fields else not self.is_required


@cache
def _fields(kind: Any) -> tuple[_Field, ...]:
    # `__required_keys__` does not know `NotRequired` where annotations are postponed.
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if is_optional else hint
        # Events are recorded without their name.
        found.append(_Field(name, not is_optional and name != "event", _compile(inner)))
    return tuple(found)


@cache
def _compile(kind: Any) -> Check:
    """Return the check of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return _object(kind)
    if origin is Literal:
        return lambda value: isinstance(value, str | int) and value in arguments
    if origin in (Union, types.UnionType):
        choices = [_compile(each) for each in arguments]
        return lambda value: any(check(value) for check in choices)
    if origin is list:
        inner = _compile(arguments[0])
        return lambda value: isinstance(value, list) and all(map(inner, value))
    if origin is tuple:
        places = [_compile(each) for each in arguments]
        return lambda value: (
            isinstance(value, list)
            and len(value) == len(places)
            and all(check(each) for check, each in zip(places, value, strict=True))
        )
    if origin is dict:
        values = _compile(arguments[1])
        return lambda value: isinstance(value, dict) and all(map(values, value.values()))
    return _SIMPLE[kind]


def _object(kind: Any) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(field.is_right(value) for field in _fields(kind))

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
