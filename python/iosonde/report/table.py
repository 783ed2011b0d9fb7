"""A table: heads, rows, and which of its columns a reader needs to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosonde.report.quantities import ends_text, is_number, level_text, metric_text

VERDICT = "Limited by"
"""Head of the column that names what limited a case: device, harness, cache."""
LIMITED_BY = {
    "device-limited": "device",
    "harness-limited": "harness",
    "cache-served": "cache",
    "network-limited": "network",
    "server-limited": "server",
    "server-CPU-limited": "server CPU",
    "lock-limited": "locks",
    "undetermined": "undetermined",
}
"""Verdicts as they are written under this head."""
RESULT = "Result"
"""Head of the column with pass, fail or undecided."""
DEVICE_STATE = "Device state"
"""Head of the column with the device state that a case measured (`findings/device_state.py`)."""
REPEATS = "Repeats"
"""Head of the column with the number of values that a median and its interval are based on."""
SCOPE = "I/Os"
"""Head of the column that distinguishes a case's reads, its writes and both together."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A value with its interval, as written, and as a number to sort by."""

    text: str
    interval: str = ""
    number: float | None = None


DASH = Cell(text="-")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table; the first `labels` columns name the row."""

    title: str
    caption: str = ""
    heads: Sequence[str]
    labels: int
    rows: Sequence[Sequence[Cell]]
    keys: Sequence[str] = ()
    """Case of each row, as in the page: label of the result set, a newline, case."""
    columns_left_out: int = 0
    """Number of columns that this summary of a larger table omits."""


Column = tuple[str, Sequence[Cell | str]]
"""Head of a column and its cells; text is a cell without a number."""


def tabulated(
    title: str,
    labels: Iterable[Column | None],
    values: Iterable[Column | None],
    *,
    caption: str = "",
    keys: Sequence[str] = (),
) -> Table:
    """Return a table of columns, of which `labels` name the rows; those that are None are left out."""
    named = [column for column in labels if column]
    columns = [*named, *(column for column in values if column)]
    cells = [[Cell(text=cell) if isinstance(cell, str) else cell for cell in column] for _, column in columns]
    heads = [head for head, _ in columns]
    rows = list(zip(*cells, strict=True))
    return Table(title=title, caption=caption, heads=heads, labels=len(named), rows=rows, keys=keys)


def selected(table: Table, places: Sequence[int]) -> Table:
    """Return a table with some of its columns."""
    return replace(
        table,
        heads=[table.heads[place] for place in places],
        labels=sum(place < table.labels for place in places),
        rows=[[row[place] for place in places] for row in table.rows],
    )


def metric_cell(metric: str, median: float | None, low: float | None = None, high: float | None = None) -> Cell:
    """Return the cell of a value of a metric, with its interval; a dash without one."""
    return Cell(text=metric_text(metric, median), interval=ends_text(metric, low, high), number=median)


def level_cell(name: str, level: Any, *, missing: str = "") -> Cell:
    """Return the cell of a level of a factor, or `missing` where there is none."""
    return Cell(text=missing if level is None else level_text(name, level), number=level if is_number(level) else None)


def cell_of(value: float | None, text: Callable[[Any], str] = str) -> Cell:
    """Return the cell of a number as `text` writes it; a dash without one."""
    return Cell(text="-" if value is None else text(value), number=value)


def folded(table: Table) -> Table:
    """Move columns with one value in all rows to the caption, and drop columns without any value.

    The columns of verdicts and results stay, unless no case has any: a reader looks for them in every row. The first
    column of values stays if all of them are constant.
    """
    if len(table.rows) < 2:
        return table
    columns = list(zip(*table.rows, strict=True))
    constant = [
        place
        for place, cells in enumerate(columns)
        if _is_constant(cells) and (table.heads[place] not in (VERDICT, RESULT) or cells[0].text == "-")
    ]
    values = [place for place in range(table.labels, len(columns)) if table.heads[place] != REPEATS]
    if values and set(values) <= set(constant):
        constant.remove(values[0])
    if len(constant) == len(columns):
        return table
    kept = [place for place in range(len(columns)) if place not in constant]
    facts = [
        f"{table.heads[place]}: {columns[place][0].text}."
        for place in constant
        if table.heads[place] and columns[place][0].text not in ("", "-")
    ]
    return replace(selected(table, kept), caption=" ".join(filter(None, [table.caption, *facts])))


def _is_constant(cells: Sequence[Cell]) -> bool:
    return len({cell.text for cell in cells}) == 1 and not any(cell.interval for cell in cells)
