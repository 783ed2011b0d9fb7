"""Tables of accounts: one row a case, a column for each of several metrics, published rows below one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iosonde.report.material import Material
from iosonde.report.quantities import factor_title, level_text, metric_text, metric_title
from iosonde.report.subjects import Values, same_level, subjects
from iosonde.report.tables import Cell, Table
from iosonde.study.model import View


def accounts_table(view: View, material: Material) -> Table:
    """Lay several metrics out, of each case of a part that has any, or the reason why it has none."""
    found = subjects(view, material)
    values = {metric: Values(material, metric) for metric in view.metrics}
    factors = list(dict.fromkeys(name for subject in found for name in subject.case.levels))
    several = len(material.sources) > 1
    published = _published(view, material, factors)
    named = several or bool(published)
    rows, keys = [], []
    for subject in found:
        rows.append(
            [
                *([Cell(text=subject.source.label if several else "measured")] if named else []),
                *(Cell(text=level_text(name, subject.level(name))) for name in factors),
                *(_cell(metric, known.of(subject)) for metric, known in values.items()),
            ]
        )
        keys.append(f"{subject.source.label}\n{subject.case.case_id}")
    reasons = [Cell(text=subject.source.hole(subject.case.case_id)) for subject in found]
    if any(reason.text for reason in reasons):
        rows = [[*row, reason] for row, reason in zip(rows, reasons, strict=True)]
        published = [[*row, Cell(text="")] for row in published]
    labels = [*(["Whose"] if named else []), *map(factor_title, factors)]
    missing = ["Why not"] if any(reason.text for reason in reasons) else []
    heads = [*labels, *map(metric_title, view.metrics), *missing]
    return Table(
        title=view.title,
        caption=view.caption or "Medians over repeats; below each its 95 % interval.",
        heads=heads,
        labels=len(labels),
        rows=[*rows, *published],
        keys=[*keys, *([""] * len(published))],
    )


def _cell(metric: str, value: tuple[float | None, float | None, float | None, int]) -> Cell:
    median, low, high, _ = value
    interval = "" if low is None or high is None else f"{metric_text(metric, low)} .. {metric_text(metric, high)}"
    return Cell(text=metric_text(metric, median), interval=interval, number=median)


def _published(view: View, material: Material, factors: Sequence[str]) -> list[list[Cell]]:
    """One row for each case that was published, in the order of the publication."""
    from iosonde.analysis.reference import published

    reference = next((each for each in material.study.references if each.name == view.reference), None)
    if reference is None:
        return []
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in published(reference).to_dicts():
        if all(name not in row or same_level(name, row[name], wanted) for name, wanted in view.where.items()):
            place = (row["label"], *(row.get(name) for name in factors))
            rows.setdefault(place, {})[row["metric"]] = row["value"]
    return [
        [
            Cell(text=f"{label}, published" if label else "published"),
            *(
                Cell(text="" if level is None else level_text(name, level))
                for name, level in zip(factors, levels, strict=True)
            ),
            *(Cell(text=metric_text(metric, known.get(metric)), number=known.get(metric)) for metric in view.metrics),
        ]
        for (label, *levels), known in rows.items()
    ]
