"""Tables of published results next to measured ones: limits of searches, and improvements over another device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.data import reference_file
from iosonde.metrics.registry import METRICS
from iosonde.report.charts.published import reference_of
from iosonde.report.content.table import Cell, Table
from iosonde.report.material.quantities import factor_title, level_text, metric_text, metric_title
from iosonde.report.material.result_sets import Material, Source
from iosonde.report.material.subjects import Subject, Values, subjects
from iosonde.study.model import Reference, View

if TYPE_CHECKING:
    from iosonde.procedure.search import SearchConclusion

MEASURED = "measured"
_DASH = Cell(text="-")


def limits_table(view: View, material: Material) -> Table:
    """Limits that a search found, between published ones, the highest first."""
    reference = _reference(view, material)
    own = [(_label(source, material), found) for source, found in _searches(view, material)]
    rows = [(row[reference.value], str(row[reference.label]), "published") for row in _published(reference)]
    rows += [(found.value, label, MEASURED) for label, found in own if found.reached and found.value is not None]
    unknown = [(label, found.reason) for label, found in own if not found.reached or found.value is None]
    over = next(part.search.over for part in material.study.parts if part.name == view.part and part.search)
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, f"Published: {reference.source}."])),
        heads=["Device", factor_title(over), "Source"],
        labels=1,
        rows=[
            *([Cell(text=label), Cell(text="-"), Cell(text=f"no limit found: {why}")] for label, why in unknown),
            *(
                [Cell(text=label), Cell(text=f"{value:,.4g}", number=value), Cell(text=source)]
                for value, label, source in sorted(rows, key=lambda row: (-row[0], row[2] != MEASURED))
            ),
        ],
    )


def improvements_table(view: View, material: Material) -> Table:
    """Published improvements of one device over another, below those of two result sets or of the levels of `x`."""
    reference = _reference(view, material)
    cited = [
        [
            *(Cell(text=str(row[column])) for column in (reference.label, reference.against)),
            _DASH,
            _DASH,
            _range(row, reference),
        ]
        for row in _published(reference)
    ]
    searched = any(part.search for part in material.study.parts if part.name == view.part)
    measured = _own_limits if searched else _own_levels if view.x else _own_values
    what = "Highest passing value" if searched else metric_title(view.y)
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, f"Published: {reference.source}."])),
        heads=["Device", "Compared with", "Case", what, "Improvement"],
        labels=3,
        rows=[*measured(view, material), *cited],
    )


def _reference(view: View, material: Material) -> Reference:
    reference = reference_of(view, material)
    assert reference is not None, "the check of studies requires it"
    return reference


def _published(reference: Reference) -> list[dict[str, Any]]:
    table = pl.read_csv(reference_file(reference.csv))
    return table.filter(*(pl.col(name) == value for name, value in reference.where.items())).to_dicts()


def _range(row: Mapping[str, Any], reference: Reference) -> Cell:
    low, high = row[reference.value], row[reference.value_high or reference.value]
    return Cell(text=_times(low) if low == high else f"{low:g} to {_times(high)}", number=high)


def _own_values(view: View, material: Material) -> Iterator[list[Cell]]:
    values, found = Values(material, view.y), subjects(view, material)
    for subject in found:
        own = values.estimate(subject)[0]
        others = [(each, values.estimate(each)[0]) for each in found if _is_baseline_of(each, subject, material)]
        base, before = others[0] if others else (None, None)
        yield [
            Cell(text=_label(subject.source, material)),
            Cell(text=base.source.label if base else "-"),
            Cell(text=", ".join(level_text(name, level) for name, level in subject.case.levels.items())),
            Cell(text=metric_text(view.y, own), number=own),
            _gain(view, own, before),
        ]


def _own_levels(view: View, material: Material) -> Iterator[list[Cell]]:
    """The last level of the factor `x` over each other level, with the same levels of all other factors."""
    values, found = Values(material, view.y), subjects(view, material)
    part = next(part for part in material.study.parts if part.name == view.part)
    last = part.all_factors[view.x or ""][-1]
    for subject in found:
        own = values.estimate(subject)[0]
        if own is None or subject.level(view.x) != getattr(last, "label", last):
            continue
        levels = _other_levels(subject, view)
        for base in found:
            before = values.estimate(base)[0]
            if base is subject or base.source is not subject.source or before is None:
                continue
            if _other_levels(base, view) == levels:
                yield [
                    Cell(text=": ".join([*_label_of_several(subject.source, material), str(subject.level(view.x))])),
                    Cell(text=level_text(view.x or "", base.level(view.x))),
                    Cell(text=", ".join(_named_level(name, level) for name, level in levels.items())),
                    Cell(text=metric_text(view.y, own), number=own),
                    _gain(view, own, before),
                ]


def _other_levels(subject: Subject, view: View) -> dict[str, Any]:
    return {name: level for name, level in subject.case.levels.items() if name != view.x}


def _named_level(name: str, level: Any) -> str:
    text = level_text(name, level)
    return f"{factor_title(name).lower()} {text}" if text[:1].isdigit() else text


def _label_of_several(source: Source, material: Material) -> list[str]:
    return [source.label] if len(material.sources) > 1 else []


def _gain(view: View, own: float | None, before: float | None) -> Cell:
    """The improvement of a value over another."""
    if not own or not before:
        return _DASH
    metric = METRICS.get(view.y)
    lower_is_better = metric is not None and metric.better == "lower"
    ratio = before / own if lower_is_better else own / before
    return Cell(text=_times(ratio), number=ratio)


def _own_limits(view: View, material: Material) -> Iterator[list[Cell]]:
    found = [(source, each.value) for source, each in _searches(view, material) if each.reached and each.value]
    systems = _systems(material)
    for source, value in found:
        number = systems.get(source.label, 0)
        base, before = next((each for each in found if systems.get(each[0].label, 0) < number), (None, None))
        ratio = value / before if before else None
        yield [
            Cell(text=_label(source, material)),
            Cell(text=base.label if base else "-"),
            Cell(text=""),
            Cell(text=f"{value:,.4g}", number=value),
            Cell(text=_times(ratio) if ratio else "-", number=ratio),
        ]


def _is_baseline_of(other: Subject, subject: Subject, material: Material) -> bool:
    """Return True if another line of evidence has the same case in the baseline system of the first one."""
    systems = _systems(material)
    same = (other.case.case_id, other.stream, other.operation) == (
        subject.case.case_id,
        subject.stream,
        subject.operation,
    )
    return same and systems.get(other.source.label, 0) < systems.get(subject.source.label, 0)


def _systems(material: Material) -> dict[str, int]:
    """The number of the system of each result set, where two are compared."""
    numbered = enumerate(material.systems)
    return {source.label: number for number, sources in numbered for source in sources}


def _searches(view: View, material: Material) -> list[tuple[Source, SearchConclusion]]:
    from iosonde.procedure.search import SearchConclusion

    return [
        (source, found)
        for source in material.sources
        for case, found in source.procedures
        if case.part == view.part and isinstance(found, SearchConclusion)
    ]


def _label(source: Source, material: Material) -> str:
    return source.label if len(material.sources) > 1 else MEASURED


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×"
