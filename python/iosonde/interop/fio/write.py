"""The study as a TOML file, with what was not carried over as comments at its top."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.interop.fio.notes import Note, wrapped

_WIDTH = 118


def toml(study: Mapping[str, Any], *, origin: str, notes: Sequence[Note]) -> str:
    """The file's text."""
    lines = [f"# Converted from {_plain(origin)} by `iosonde import fio`.", *_comments(notes), ""]
    plain = {name: value for name, value in study.items() if not isinstance(value, (list, dict))}
    lines += _assignments(plain)
    for part in study["parts"]:
        lines += ["", "[[parts]]", *_assignments({name: part[name] for name in ("name", "title")})]
        lines += ["", "[parts.measurement]", *_assignments(part["measurement"])]
        for stream in part.get("streams", []):
            lines += ["", "[[parts.streams]]", *_assignments({"name": stream["name"]})]
            lines += ["", "[parts.streams.set]", *_assignments(stream["set"])]
    for name, profile in study["profiles"].items():
        lines += ["", f"[profiles.{name}]", *_assignments(profile)]
    for view in study["views"]:
        lines += ["", "[[views]]", *_assignments(view)]
    return "\n".join(lines) + "\n"


def _comments(notes: Sequence[Note]) -> list[str]:
    if not notes:
        return ["# Everything in it is carried over."]
    return [
        "#",
        "# Not carried over unchanged (place, option: reason; replacement):",
        *(_plain(line) for line in wrapped(notes, width=_WIDTH, indent="# - ", further="#   ")),
    ]


def _plain(text: str) -> str:
    """Without characters that end a comment or are invalid in one."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _assignments(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in values.items()]


def _value(value: Any) -> str:
    """JSON's notation of text, numbers, lists of numbers, true and false is TOML's too."""
    return json.dumps(value, ensure_ascii=False)
