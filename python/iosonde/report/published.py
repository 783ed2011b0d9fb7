"""Published values in a figure: over one's own, or in panels beside them."""

from __future__ import annotations

from iosonde.report.charts import Axis
from iosonde.report.layout import Layout, Row, level_phrase, scaled, unique, x_value
from iosonde.report.material import Material
from iosonde.report.quantities import Scale, level_text, metric_text
from iosonde.report.subjects import same_level
from iosonde.study.model import View

PUBLISHED_TO_OVERLAY = 6
"""With more published lines than this, they stand beside one's own instead of over them."""


def published_rows(view: View, material: Material, layout: Layout, scale: Scale, x: Axis) -> list[Row]:
    """Return rows of the published values that a view names, in the panels of one's own."""
    from iosonde.analysis.reference import published

    reference = next((r for r in material.study.references if r.name == view.reference), None)
    if reference is None or view.x is None:
        return []
    table = [r for r in published(reference).to_dicts() if r["metric"] == view.y and r.get(view.x) is not None]
    table = [r for r in table if all(name not in r or same_level(name, r[name], w) for name, w in view.where.items())]
    rows = []
    for r in table:
        source = f"{r['label']} ({r['source']})" if r["label"] else r["source"]
        panel = " · ".join(level_phrase(name, r[name]) for name in layout.panel_factors if r.get(name) is not None)
        known = view.series in r and not layout.series_is_source
        rows.append(
            {
                "panel": panel,
                "x": x_value(view.x, r[view.x], x),
                "x_level": x_value(view.x, r[view.x], x),
                "series": level_text(view.series or "", r[view.series]) if known and view.series else source,
                "source": source,
                "published": True,
                "y": scaled(r["value"], scale),
                "low": None,
                "high": None,
                "repeats": None,
                "x_text": level_text(view.x, r[view.x]),
                "text": f"{metric_text(view.y, r['value'])} (published)",
                "hole": "",
                "verdict": "",
            }
        )
    return rows


def set_beside(cited: list[Row]) -> list[Row]:
    """Give published values panels of their own."""
    return [{**row, "panel": " · ".join(filter(None, [row["source"], row["panel"]]))} for row in cited]


def own_panels(rows: list[Row], cited: list[Row]) -> list[Row]:
    """Name one's own panels where published ones stand beside them."""
    if not cited:
        return rows
    return [{**row, "panel": " · ".join(filter(None, ["Measured", row["panel"]]))} for row in rows]


def cited_note(rows: list[Row]) -> str:
    """Say whose figures are drawn besides one's own, and how they are told apart."""
    sources = ", ".join(unique(row["source"] for row in rows if row["published"]))
    mixed = {row["panel"] for row in rows if row["published"]} & {row["panel"] for row in rows if not row["published"]}
    return f"Published: {sources}." if mixed else f"Published, each on its own scale: {sources}."
