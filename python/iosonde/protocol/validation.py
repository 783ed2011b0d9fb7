"""Checks of values from JSON against the types of the protocol.

An engine may be defective, a result set may be damaged, edited or malicious.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, cast

from pydantic import Discriminator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from iosonde.protocol import command, event, spec
from iosonde.protocol.version import VERSION

_RETIRED_STORES = ("redb", "fjall")
_RETIRED_ALGORITHMS = ("bfs", "components")
"""Earlier versions measured these. Their result sets stay readable; engines refuse such a spec."""

_SHOWN = 40
"""Characters of an invalid value that a message shows."""


def event_parser(*, of_command: bool) -> Callable[[bytes], event.Event]:
    """Return the function that parses a line of the engine, or of the supervisor of a command.

    It raises `ValueError` if the line is not an event. Unknown fields are kept.
    """
    kinds = command.Event if of_command else event.Event
    adapter = _adapter(Annotated[kinds, Discriminator("event")])

    def parse(line: bytes) -> event.Event:
        try:
            return cast("event.Event", adapter.validate_json(line, strict=True, extra="allow"))
        except ValidationError as error:
            raise ValueError(_description_of_event(error)) from None

    return parse


def mismatch(value: Any, kind: Any, *, at: str = "", is_closed: bool = False) -> str:
    """Return the first place where a value is not of its type, and why; empty if it is.

    Places start with `at`. Unknown fields are an error where `is_closed`.
    """
    try:
        _adapter(kind).validate_python(value, strict=True, extra="forbid" if is_closed else "ignore")
    except ValidationError as error:
        return _describe(_of_claimed_kind(error.errors(include_url=False)), value, at)
    return ""


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
    found = mismatch(value, command.Spec if is_command else spec.Spec, is_closed=True)
    return found and f"in a spec: {found}"


def mismatch_of_result(value: Any) -> str:
    """Return the first part of a recorded `result` event that is not as the protocol defines it."""
    if isinstance(value, dict):
        value = _without_retired(value)
    found = mismatch(_as_event(value, "result"), event.ResultEvent)
    return found and f"in the result: {found}"


def mismatch_of_hello(value: Any) -> str:
    """Return the first part of a recorded `hello` event that has another type; any may be missing."""
    try:
        _adapter(event.HelloEvent).validate_python(_as_event(value, "hello"), strict=True)
    except ValidationError as error:
        wrong = [each for each in error.errors(include_url=False) if each["type"] != "missing"]
        return f"in `engine`: {_describe(wrong[0], value, '')}" if wrong else ""
    return ""


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


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _as_event(value: Any, name: str) -> Any:
    """Events are recorded without their name."""
    return {**value, "event": name} if isinstance(value, dict) else value


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
