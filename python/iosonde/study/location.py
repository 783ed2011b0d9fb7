"""Locations in a study file, for errors: `factors.queue_depth` of part `main`, line 12."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Keys = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """The text of a study, to find the line of a key."""

    name: str = ""
    """As the user called it; empty for a study that was not read from a file."""
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def where(self, *keys: str | int) -> str:
        """The place of a key as a clause, with its line where the text has it."""
        at = f"at `{self._path(keys)}`" if keys else ""
        line = _line_of(self.text, keys)
        of = f"{'of' if line else 'in'} `{self.name}`" if self.name else ""
        return " ".join(part for part in (f"{at}," if at and (line or of) else at, line and f"line {line}", of) if part)

    def _path(self, keys: Keys) -> str:
        """Dotted, with the name of a part, view or other entry of a list instead of its number."""
        found: Any = self.data
        path = ""
        for key in keys:
            found = _entry(found, key)
            if isinstance(key, int):
                named = found.get("name") or found.get("title") if isinstance(found, Mapping) else None
                path += f"[{named or key + 1}]"
            else:
                path += f".{key}" if path else key
        return path


def in_data(data: Any, keys: Sequence[str | int]) -> Keys:
    """Those of `keys` that lead somewhere in `data`: types add names of their own, and a missing key leads nowhere."""
    real: list[str | int] = []
    for key in keys:
        found = _entry(data, key)
        if found is not None:
            data = found
            real.append(key)
    return tuple(real)


def _entry(data: Any, key: str | int) -> Any:
    try:
        return data[key]
    except (KeyError, IndexError, TypeError):
        return None


def _line_of(text: str, keys: Keys) -> int | None:
    """The line that names the most of `keys`; an inline table's keys are on the line of their parent."""
    lines = _lines(text)
    return next((lines[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in lines), None)


@functools.lru_cache(maxsize=4)
def _lines(text: str) -> dict[Keys, int]:
    """The first line of every header and key of a TOML text; entries of `[[lists]]` are numbered."""
    found: dict[Keys, int] = {}
    table: Keys = ()
    counts: dict[Keys, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _numbered(_split(header[2]), counts, is_list=header[1] == "[[")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault(table + _split(key[1]), number)
    return found


def _numbered(names: Keys, counts: dict[Keys, int], *, is_list: bool) -> Keys:
    path: Keys = ()
    for position, name in enumerate(names):
        path += (name,)
        if is_list and position == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path += (counts[path],)
    return path


def _split(dotted: str) -> Keys:
    return tuple(part.strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", dotted))
