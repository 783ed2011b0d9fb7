"""Text of others in what iosonde writes: titles, names of devices, levels, messages of errors, named metrics.

A result set may come from another person, and text in it could act where it is shown: control characters change a
terminal, markup changes a page, and a spreadsheet evaluates cells that look like formulas. Jinja escapes HTML; this
module does the rest. Each writer uses it in one place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape as html_escape
from typing import Any

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)
"""C0 and C1 controls besides tab and newline, separators and marks that change the direction of text, surrogates."""

FORMULA = r"(?s)^[=+\-@\t\r\n＝＋－＠]."
"""Texts that a spreadsheet evaluates, in the syntax that Python, Polars and DuckDB share."""
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""Of those, the ones that are harmless."""
_FORMULA, _NUMBER = re.compile(FORMULA), re.compile(NUMBER)

_PLAIN_MARKUP = re.compile(r"([\\`*_\[\]|!#~])")
_CODE = re.compile(r"(`[^`\n]+`)")
_BLOCK = re.compile(r"^([-+=]|\d+(?=[.)]))")


def printable(text: str) -> str:
    """Replace control characters by visible escapes such as `\\x1b`.

    Those beyond ASCII become `\\u009b`, which is also what JSON calls them.
    """
    return _CONTROL.sub(_visible, text)


def printable_within(value: Any) -> Any:
    """Return a value for JSON with `printable` texts, those of keys included."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable_within(key): printable_within(each) for key, each in value.items()}
    return [printable_within(each) for each in value] if isinstance(value, list | tuple) else value


def _visible(match: re.Match[str]) -> str:
    character = match[0]
    if character < "\x7f":
        return character.encode("unicode_escape").decode()
    return f"\\u{ord(character):04x}"


def markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is: no markup, no HTML, one line; code spans stay."""
    pieces = _CODE.split(" ".join(printable(text).split()))
    return "".join(_in_span(piece) if _CODE.fullmatch(piece) else _plain_markdown(piece) for piece in pieces)


def markdown_paragraph(text: str) -> str:
    """The same at the start of a line, where `- ` would begin a list."""
    return _BLOCK.sub(lambda match: f"\\{match[1]}" if match[1] in "-+=" else f"{match[1]}\\", markdown(text))


def markdown_code(text: str) -> str:
    """Write text as a code span, whatever backticks are in it."""
    line = " ".join(printable(text).split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    return _in_span(f"{fence}{padding}{line}{padding}{fence}") if line else ""


def markdown_block(text: str, *, language: str = "") -> list[str]:
    """Write text as a block of code, whatever backticks are in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [f"{fence}{language}", printable(text), fence]


def html(text: str) -> str:
    """Write text for a line of HTML within Markdown, where Markdown itself is not read."""
    return html_escape(" ".join(printable(text).split()))


def cell(text: str) -> str:
    """Write a text into a CSV file so that a spreadsheet does not evaluate it: with an apostrophe before it."""
    return f"'{text}" if _FORMULA.search(text) and not _NUMBER.search(text) else text


def _plain_markdown(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _PLAIN_MARKUP.sub(r"\\\1", text)


def _in_span(text: str) -> str:
    return text.replace("|", "\\|")
