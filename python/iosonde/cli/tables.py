"""Data on standard output: tables and JSON, without trailing spaces where a program reads them."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

if TYPE_CHECKING:
    from rich.console import Console

LEAST_WIDTH, MOST_WIDTH = 40, 120
"""Limits of the width of running text on a terminal."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def stdout(*, at_least: int = 0) -> Console:
    """Standard output as a rich console, of the terminal's width or more."""
    from iosonde.cli.terminal import rich_console

    file = None if sys.stdout.isatty() else cast(TextIO, Stripped(sys.stdout))
    console = rich_console(file, highlight=False)
    if console.width < at_least:
        console.width = at_least
    return console


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    heads: Sequence[str] = (),
    right: Sequence[int] = (),
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print aligned columns, of which only the last is wrapped, between words.

    `right` are the columns aligned to the right, `styles` the styles of cells with a certain text. A table that does
    not fit is printed wider than the terminal: a word is never broken.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    number = len(heads) or max(map(len, cells), default=0)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(heads))
    for place in range(number):
        table.add_column(
            Text(heads[place]) if heads else "",
            justify="right" if place in right else "left",
            no_wrap=place < number - 1,
        )
    for row in cells:
        table.add_row(*(Text(text, style=(styles or {}).get(text, "")) for text in row))
    stdout(at_least=least_width([list(heads), *cells], number)).print(table)


def least_width(rows: Sequence[Sequence[str]], columns: int) -> int:
    """The width below which a word of the last column, or a cell of another, would be cut."""
    widths = [0] * columns
    for row in rows:
        for place, cell in enumerate(row):
            parts = cell.split() if place == columns - 1 else cell.splitlines()
            widths[place] = max([widths[place], *map(len, parts)])
    return sum(widths) + 2 * columns


class Stripped(io.TextIOBase):
    """A text stream that strips trailing spaces from each line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._rest = ""

    def write(self, text: str) -> int:
        """Write complete lines, and keep the rest until it is one."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join(f"{line.rstrip()}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        """Write an incomplete line too."""
        self._stream.write(self._rest)
        self._rest = ""
        self._stream.flush()


def text_width() -> int:
    """Return the width of running text: `COLUMNS`, else the terminal's, within limits; 80 without either."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 80
    return min(max(shutil.get_terminal_size().columns, LEAST_WIDTH), MOST_WIDTH)


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines no longer than the terminal is wide; continued lines are indented further."""
    columns = shutil.get_terminal_size().columns
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        yield from textwrap.wrap(
            line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]


def joined_levels(levels: Sequence[str]) -> str:
    """Levels of a factor in one line: separated by spaces, or by semicolons where a label contains spaces."""
    return ("; " if any(" " in level for level in levels) else " ").join(levels)
