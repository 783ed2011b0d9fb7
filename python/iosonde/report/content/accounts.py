"""Tables of accounts: a row for each case, a column for each of several metrics, what was published below its like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from iosonde.report.charts.published import reference_of
from iosonde.report.content.table import DEVICE_STATE, REPEATS, Cell, Table
from iosonde.report.material.device_states import has_device_state, state_text
from iosonde.report.material.durability import HEAD, durability
from iosonde.report.material.intervals import medians_of
from iosonde.report.material.quantities import ends_text, factor_title, level_text, metric_text, metric_title
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import Values, same_level, subjects
from iosonde.study.model import View


def accounts_table(view: View, material: Material) -> Table:
    """Lay several metrics out, of each case of a part, or the reason why it has none; no rows without any of both."""
    found = subjects(view, material)
    values = {metric: Values(material, metric) for metric in view.metrics}
    factors = list(dict.fromkeys(name for subject in found for name in subject.case.levels))
    several = len(material.sources) > 1
    published = _published(view, material, factors)
    named = several or bool(published)
    survival = [durability(subject.source, subject.case.case_id) for subject in found]
    survives = [HEAD] if any(survival) else []
    reasons = [subject.source.no_value(subject.case.case_id) for subject in found]
    missing = ["No result because"] if any(reasons) else []
    state = [DEVICE_STATE] if has_device_state(material, ((each.source, each.case) for each in found)) else []
    rows = []
    for subject, reason, surviving in zip(found, reasons, survival, strict=True):
        row = [
            *(Cell(text=level_text(name, subject.level(name))) for name in factors),
            *([Cell(text=subject.source.label if several else "measured")] if named else []),
            *([Cell(text=state_text(material, [(subject.source, subject.case)]))] if state else []),
            *([Cell(text=surviving or "-")] if survives else []),
            *(_cell(metric, known.estimate(subject)) for metric, known in values.items()),
            _repeats(known.estimate(subject)[3] for known in values.values()),
            *([Cell(text=reason)] if missing else []),
        ]
        rows.append((f"{subject.source.label}\n{subject.case.case_id}", row))
    if not any(reasons) and not any(cell.number is not None for _, row in rows for cell in row[:-1]):
        rows = []
    own = len(factors) + bool(named)
    dash, empty = Cell(text="-"), Cell(text="")
    rows += [
        ("", [*row[:own], *(dash for _ in (*state, *survives)), *row[own:], dash, *(empty for _ in missing)])
        for row in published
    ]
    rows = _together(rows, of=len(factors))
    labels = [*map(factor_title, factors), *(["Source"] if named else []), *state, *survives]
    heads = [*labels, *map(metric_title, view.metrics), REPEATS, *missing]
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, medians_of(material, view.metrics)])),
        heads=heads,
        labels=len(labels),
        rows=[row for _, row in rows],
        keys=[key for key, _ in rows],
    )


def _together(rows: Sequence[tuple[str, list[Cell]]], *, of: int) -> list[tuple[str, list[Cell]]]:
    """Put rows whose first cells (levels) are alike below one another, in the order of the first of each."""
    alike: dict[tuple[str, ...], list[tuple[str, list[Cell]]]] = {}
    for key, row in rows:
        alike.setdefault(tuple(cell.text for cell in row[:of]), []).append((key, row))
    return [each for group in alike.values() for each in group]


def _cell(metric: str, value: tuple[float | None, float | None, float | None, int]) -> Cell:
    median, low, high, _ = value
    return Cell(text=metric_text(metric, median), interval=ends_text(metric, low, high), number=median)


def _repeats(counts: Iterable[int]) -> Cell:
    repeats = max(counts, default=0)
    return Cell(text=str(repeats) if repeats else "-", number=repeats)


def _published(view: View, material: Material, factors: Sequence[str]) -> list[list[Cell]]:
    """One row for each case that was published, in the order of the publication."""
    from iosonde.findings.observations.reference import published

    reference = reference_of(view, material)
    if reference is None:
        return []
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in published(reference).to_dicts():
        if all(name not in row or same_level(name, row[name], wanted) for name, wanted in view.where.items()):
            place = (row["label"], *(row.get(name) for name in factors))
            rows.setdefault(place, {})[row["metric"]] = row["value"]
    return [
        [
            *(
                Cell(text="" if level is None else level_text(name, level))
                for name, level in zip(factors, levels, strict=True)
            ),
            Cell(text=f"{label}, published" if label else "published"),
            *(Cell(text=metric_text(metric, known.get(metric)), number=known.get(metric)) for metric in view.metrics),
        ]
        for (label, *levels), known in rows.items()
    ]
