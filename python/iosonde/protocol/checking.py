"""Whether a spec has the fields and types of the protocol: specs in a result set may be damaged, edited or malicious.

Types are compiled to functions once. Of a spec of an earlier protocol only types are compared: it may lack fields.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from iosonde.protocol import command
from iosonde.protocol import spec as types_of_specs
from iosonde.protocol.version import VERSION

Check = Callable[[Any], bool]

_LARGEST = 1 << 64


def mismatch(spec: Mapping[str, Any]) -> str:
    """Return the first part of a spec that is not as the protocol defines it; empty if there is none."""
    is_current = spec.get("protocol") == VERSION
    workload = spec.get("workload")
    is_command = isinstance(workload, dict) and workload.get("kind") == "command"
    for field in _fields(command.Spec if is_command else types_of_specs.Spec, is_current):
        if not field.is_right(spec):
            return f"`{field.name}` of a spec is not as the protocol defines it"
    return ""


@dataclass(frozen=True)
class _Field:
    name: str
    is_required: bool
    check: Check

    def is_right(self, fields: Mapping[str, Any]) -> bool:
        return self.check(fields[self.name]) if self.name in fields else not self.is_required


@cache
def _fields(kind: Any, is_current: bool) -> tuple[_Field, ...]:
    # `__required_keys__` does not know `NotRequired` where annotations are postponed.
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if is_optional else hint
        found.append(_Field(name, is_current and not is_optional, _compile(inner, is_current)))
    return tuple(found)


def _compile(kind: Any, is_current: bool) -> Check:
    """Return the check of a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: True
    if is_typeddict(kind):
        return _object(kind, is_current)
    if origin is Literal:
        return (lambda value: isinstance(value, str | int) and value in arguments) if is_current else _is_text
    if origin in (Union, types.UnionType):
        choices = [_compile(each, is_current) for each in arguments]
        return lambda value: any(check(value) for check in choices)
    if origin is list:
        inner = _compile(arguments[0], is_current)
        return lambda value: isinstance(value, list) and all(map(inner, value))
    if origin is dict:
        values = _compile(arguments[1], is_current)
        return lambda value: isinstance(value, dict) and all(map(values, value.values()))
    return _SIMPLE[kind]


def _object(kind: Any, is_current: bool) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(field.is_right(value) for field in _fields(kind, is_current))

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
}
