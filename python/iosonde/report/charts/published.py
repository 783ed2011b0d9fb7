"""Published values in a figure: over one's own, or in panels next to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosonde.report.charts.layout import UNKNOWN, ChartLayout, Row, scaled, unique, x_value
from iosonde.report.charts.vega import Axis
from iosonde.report.material.quantities import Scale, level_phrase, level_text, metric_text
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import same_level
from iosonde.study.model import Level, Reference, View

_PUBLISHED = ", published"
PUBLISHED_TO_OVERLAY = 6
"""With more published lines than this, they are drawn next to one's own instead of over them."""


def published_rows(view: View, material: Material, layout: ChartLayout, scale: Scale, x: Axis) -> list[Row]:
    """Return rows of the published values that a view names, in the panels of one's own.

    Of a factor whose levels are names, only those that the view's part has: one publication may cover several parts.
    All of them next to a single level, as a profile has that measures a target as it is.
    """
    from iosonde.findings.observations.reference import published

    reference = reference_of(view, material)
    if reference is None or view.x is None:
        return []
    part = next(part for part in material.study.parts if part.name == view.part)
    named = [level.label for level in part.factors.get(view.x, ()) if isinstance(level, Level)]
    table = [r for r in published(reference).to_dicts() if r["metric"] == view.y and r.get(view.x) is not None]
    table = [r for r in table if all(name not in r or same_level(name, r[name], w) for name, w in view.where.items())]
    table = [r for r in table if len(named) < 2 or str(r[view.x]) in named]
    several = len({r["label"] for r in table}) > 1
    rows = []
    for r in table:
        source = _source(r, several=several)
        panel = " · ".join(level_phrase(name, r[name]) for name in layout.panel_factors if r.get(name) is not None)
        known = view.series in r and not layout.series_is_source
        rows.append(
            {
                **UNKNOWN,
                "panel": panel,
                "x": x_value(view.x, r[view.x], x),
                "x_level": x_value(view.x, r[view.x], x),
                "_x": r[view.x],
                "_series": r[view.series] if known and view.series else None,
                "series": level_text(view.series or "", r[view.series]) if known and view.series else source,
                "source": source,
                "published": True,
                "y": scaled(r["value"], scale),
                "x_text": level_text(view.x, r[view.x]),
                "text": f"{metric_text(view.y, r['value'])} (published)",
            }
        )
    return rows


def _source(row: Mapping[str, Any], *, several: bool) -> str:
    """Name where a value comes from: the publication each time would be too long for a legend of several devices."""
    if not row["label"]:
        return str(row["source"])
    return f"{row['label']}{_PUBLISHED}" if several else f"{row['label']} ({row['source']})"


def published_panels(cited: list[Row]) -> list[Row]:
    """Give published values panels of their own."""
    return [{**row, "panel": " · ".join(filter(None, [row["source"], row["panel"]]))} for row in cited]


def measured_panels(rows: list[Row], cited: list[Row]) -> list[Row]:
    """Name one's own panels where published ones are next to them."""
    if not cited:
        return rows
    return [{**row, "panel": " · ".join(filter(None, ["Measured", row["panel"]]))} for row in rows]


def reference_of(view: View, material: Material) -> Reference | None:
    """Return the publication that a view names."""
    return next((each for each in material.study.references if each.name == view.reference), None)


def cited_note(rows: list[Row], reference: Reference) -> str:
    """Name the source of figures that are drawn besides one's own, and on which scale."""
    names = unique(row["source"].removesuffix(_PUBLISHED) for row in rows if row["published"])
    sources = names[0] if len(names) == 1 else f"{', '.join(names)} ({reference.source})"
    mixed = {row["panel"] for row in rows if row["published"]} & {row["panel"] for row in rows if not row["published"]}
    return f"Published: {sources}." if mixed else f"Published, each on its own scale: {sources}."
