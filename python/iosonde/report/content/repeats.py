"""Repeats until precise: how often each case was repeated, how precise it became, and why its repeats ended."""

from __future__ import annotations

from iosonde.procedure.until import UntilConclusion
from iosonde.report.content.table import Cell, Table
from iosonde.report.material.quantities import case_name, metric_title
from iosonde.report.material.result_sets import Material, Source


def repeat_tables(material: Material) -> list[Table]:
    """Return a table for each result set whose cases were repeated until they were precise."""
    several = len(material.sources) > 1
    return [table for source in material.sources if (table := _table(source, several=several)).rows]


def _table(source: Source, *, several: bool) -> Table:
    found = [(case, end) for case, end in source.procedures if isinstance(end, UntilConclusion)]
    metrics = list(dict.fromkeys(metric for _, end in found for metric in end.half_widths))
    rows = [
        [
            Cell(text=case_name(case)),
            Cell(text=str(end.repeats), number=end.repeats),
            *(_width(end.half_widths.get(metric)) for metric in metrics),
            Cell(text=end.stopped_by),
        ]
        for case, end in found
    ]
    wanted = next((case.procedure.settings["half_width"] for case, _ in found if case.procedure), 0.0)
    return Table(
        title=f"Repeats until precise{f': {source.label}' if several else ''}",
        caption=f"Half the width of the 95 % confidence interval; target: {100 * wanted:g} % for every metric. "
        "Stopped by: precise, the maximum of repeats, the time budget, or no result.",
        heads=["Case", "Repeats", *map(metric_title, metrics), "Stopped by"],
        labels=1,
        rows=rows,
        keys=[f"{source.label}\n{case.case_id}" for case, _ in found],
    )


def _width(share: float | None) -> Cell:
    return Cell(text="-") if share is None else Cell(text=f"{100 * share:.2g} %", number=share)
