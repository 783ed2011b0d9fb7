"""The values of a figure as a table: the x axis downwards, the series across."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from iosonde.report.charts.figure import Figure
from iosonde.report.content.table import REPEATS, Cell, Table

MOST_ROWS = 300
"""A longer table is of no use to a reader; the CSV of the figure has every row."""
PERCENTILES = (0.301, 1.0, 2.0, 3.0, 4.0, 5.0)
"""Nines of the percentiles in a table of percentile curves: 50 %, 90 %, 99 % and so on."""


def figure_table(figure: Figure) -> Table | None:
    """Return the values of a figure, or nothing where it shows runs over time."""
    makers: Mapping[str, Callable[[Figure], Table | None]] = {
        "lines": _pivoted,
        "bars": _pivoted,
        "heatmap": _pivoted,
        "points": _pivoted,
        "percentiles": _percentiles,
        "tradeoff": _listed,
    }
    make = makers.get(figure.kind)
    table = make(figure) if make else None
    return table if table and 0 < len(table.rows) <= MOST_ROWS else None


def _pivoted(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    rows = figure.rows.to_dicts()
    rows = [row | {"series": f"{row['series']}, {row['role']}"} if "role" in row else row for row in rows]
    several = len({row["source"] for row in rows}) > 1
    across = list(dict.fromkeys(row["series"] for row in rows))
    for row in rows:
        source = row["source"] if several and row["source"] != row["series"] else ""
        cells.setdefault((row["panel"], row["x_text"], source), {})[row["series"]] = _cell(row)
    return _table(figure, cells, [_series_head(figure, name) for name in across], across)


def _percentiles(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    several = figure.rows["source"].n_unique() > 1
    heads: dict[str, str] = {}
    for row in figure.rows.to_dicts():
        nines = next((each for each in PERCENTILES if abs(row["x"] - each) < 1e-3), None)
        if nines is not None and row["y"] is not None:
            heads[str(nines)] = row["x_text"]
            source = row["source"] if several and row["source"] != row["series"] else ""
            cells.setdefault((row["panel"], row["series"], source), {})[str(nines)] = _cell(row)
    known = sorted(heads, key=float)
    return _table(figure, cells, [heads[name] for name in known], known, down=figure.series_title)


def _listed(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for row in figure.rows.to_dicts():
        place = (" · ".join(filter(None, [row["panel"], row["series"]])), row.get("label") or "", row["source"])
        cells[place] = {"x": Cell(text=row["x_text"], number=row["x"]), "y": _cell(row)}
    if len({source for _, _, source in cells}) == 1:
        cells = {(panel, label, ""): found for (panel, label, _), found in cells.items()}
    return _table(figure, cells, [figure.x_title, _metric_title(figure)], ["x", "y"], down=figure.step_title)


def _table(
    figure: Figure,
    cells: Mapping[tuple[str, str, str], Mapping[str, Cell]],
    heads: list[str],
    across: list[str],
    *,
    down: str = "",
) -> Table:
    panelled = any(panel for panel, _, _ in cells)
    sourced = any(source for _, _, source in cells)
    labels = [*(["Panel"] if panelled else []), down or figure.x_title or "Case", *(["Source"] if sourced else [])]
    return Table(
        title=f"{figure.title}: values",
        caption=" ".join(
            filter(None, [f"{_metric_title(figure)}.", f"{figure.intervals}." if figure.intervals else ""])
        ),
        heads=[*labels, *heads, REPEATS],
        labels=len(labels),
        rows=[
            [
                *([Cell(text=panel)] if panelled else []),
                Cell(text=level),
                *([Cell(text=source)] if sourced else []),
                *(found.get(name, Cell(text="-")) for name in across),
                _repeats(figure, panel, level, source),
            ]
            for (panel, level, source), found in cells.items()
        ],
    )


def _repeats(figure: Figure, panel: str, level: str, source: str) -> Cell:
    """Return the number of values behind the medians of a row."""
    counts = [
        row["repeats"]
        for row in figure.rows.to_dicts()
        if row["repeats"]
        and row["panel"] == panel
        and level in (row["x_text"], row["series"], row.get("label"))
        and source in ("", row["source"])
    ]
    return Cell(text=str(max(counts)), number=max(counts)) if counts else Cell(text="-")


def _cell(row: Mapping[str, Any]) -> Cell:
    if row["y"] is None:
        return Cell(text="-")
    text, _, interval = row["text"].removesuffix(" (published)").partition(" [")
    return Cell(text=f"{text} {row['mark']}".strip(), interval=interval.rstrip("]"), number=row["y"])


def _series_head(figure: Figure, name: str) -> str:
    """Name a column: numbers need the name of their factor."""
    if not name:
        return _metric_title(figure)
    return f"{figure.series_title} {name}" if name[:1].isdigit() and figure.series_title else name


def _metric_title(figure: Figure) -> str:
    from iosonde.report.material.quantities import metric_title

    return metric_title(figure.metric) if figure.metric else "Value"
