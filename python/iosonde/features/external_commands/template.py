"""Arguments with placeholders: `--bs={block_size}`, `-T {duration}`, `--size={space:MiB}`.

A placeholder names a parameter or a variable of the study. A unit after a colon converts a size or a time. What is
known only when a run starts (`AT_START`) stays in the text until then, as do escapes of braces (`{{`, `}}`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from iosonde.errors import StudyError
from iosonde.units import parse_duration, parse_size

AT_START = {
    "directory": "the working directory of the run",
    "seed": "the seed of the run, a number below 2^31",
    "port": "a TCP port of the loopback interface that nothing else uses",
    "server_directory": "the directory of the server's Unix socket",
    "server_socket": "the server's Unix socket",
    "server_user": "the user to connect as",
    "server_database": "the name of the database",
}
"""Placeholders that the start of a run fills in."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_SIZES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}


def names_in(texts: Iterable[str]) -> Iterator[str]:
    """The names of all placeholders."""
    for text in texts:
        for match in _PLACEHOLDER.finditer(text):
            if match[1] is not None:
                yield match[1].partition(":")[0]
            elif match[0] in "{}":
                raise StudyError(f"`{text}` has a single brace", hint="write `{{` and `}}` for braces")


def fill(text: str, variables: Mapping[str, Any]) -> str:
    """The text with every variable that is known now."""
    return _PLACEHOLDER.sub(lambda match: match[0] if match[1] is None else _value(match[1], text, variables), text)


def _value(placeholder: str, text: str, variables: Mapping[str, Any]) -> str:
    name, _, unit = placeholder.partition(":")
    if name in AT_START and not unit:
        return f"{{{name}}}"
    if name not in variables:
        near = difflib.get_close_matches(name, [*variables, *AT_START], n=1, cutoff=0.5)
        known = ", ".join(f"`{each}`" for each in (*variables, *AT_START))
        raise StudyError(
            f"there is no parameter or variable `{name}`",
            where=f"in the argument `{text}`",
            hint=f"did you mean `{near[0]}`?" if near else f"placeholders are {known}; `{{{{` is a brace",
        )
    value = variables[name]
    unit = unit or ("s" if name == "duration" else "")
    written = converted(value, unit, text) if unit else plain(value)
    return written.replace("{", "{{").replace("}", "}}")


def converted(value: Any, unit: str, text: str) -> str:
    """A size or a time as a number of that unit."""
    try:
        if unit in _SIZES:
            return _number(parse_size(value) / _SIZES[unit])
        if unit in _TIMES:
            return _number(parse_duration(value) / _TIMES[unit])
    except (ValueError, TypeError) as error:
        raise StudyError(f"`{value}` cannot be converted: {error}", where=f"in the argument `{text}`") from None
    raise StudyError(
        f"there is no unit `{unit}`",
        where=f"in the argument `{text}`",
        hint=f"units are {', '.join(f'`{each}`' for each in (*_SIZES, *_TIMES))}",
    )


def plain(value: Any) -> str:
    """A value as an argument."""
    if isinstance(value, bool):
        return str(value).lower()
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return str(round(value)) if float(value).is_integer() else f"{value:g}"
