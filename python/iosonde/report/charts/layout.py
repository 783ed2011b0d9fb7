"""Assignment of factors to lines, panels and row fields of a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosonde.report.charts.vega import Axis
from iosonde.report.material.quantities import (
    BYTES_LABEL,
    Scale,
    axis_title,
    factor_title,
    interval_text,
    is_number,
    level_phrase,
    level_text,
    metric_title,
    unit_of_factor,
)
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import Subject
from iosonde.study.model import View

SERIES_TO_OVERLAY = 3
"""With more lines than this, result sets are compared in a panel for each series."""
Row = dict[str, Any]
UNKNOWN: Row = {"published": False, "low": None, "high": None, "repeats": None, "no_value": "", "verdict": ""}
"""Fields of a row that have no value unless it gives one."""


@dataclass(frozen=True, kw_only=True)
class ChartLayout:
    """Assignment of factors to lines and panels."""

    series_factor: str
    series_title: str
    series: Sequence[str]
    graded: bool
    panel_factors: Sequence[str]
    sources: Sequence[str]
    dash_sources: bool
    """True if dashes distinguish result sets; otherwise colours or panels do, or there is only one."""
    series_is_source: bool
    panel_is_source: bool

    @classmethod
    def for_view(
        cls, view: View, found: list[Subject], material: Material, *, surface: bool = False, taken: Iterable[str] = ()
    ) -> ChartLayout:
        """Give every factor that varies a role; what the view leaves open becomes panels."""
        sources = [source.label for source in material.sources]
        several = len(sources) > 1
        series = in_order([s.level(view.series) for s in found]) if view.series else []
        crowded = several and not surface and len(series) > SERIES_TO_OVERLAY
        series_is_source = several and not surface and (not series or crowded)
        names = [name for s in found for name in s.case.levels]
        axes = {view.series if not crowded else None, view.x, *taken}
        left = [
            f for f in unique([view.facet, *names]) if f and f not in axes and len({str(s.level(f)) for s in found}) > 1
        ]
        labels = [level_text(view.series or "", level) for level in series]
        return cls(
            series_factor="result_set" if series_is_source else view.series or "series",
            series_title="Result set" if series_is_source else axis_title(view.series or ""),
            series=sources if series_is_source else labels,
            graded=not series_is_source and len(series) > 2 and all(is_number(level) for level in series),
            panel_factors=left,
            sources=sources,
            dash_sources=several and not series_is_source and not surface,
            series_is_source=series_is_source,
            panel_is_source=several and surface,
        )

    def panel(self, levels: Callable[[str], Any], source: str) -> str:
        """Name the panel that a row belongs to."""
        parts = [level_phrase(name, levels(name)) for name in self.panel_factors if levels(name) is not None]
        return " · ".join([*([source] if self.panel_is_source else []), *parts])

    def series_label(self, view_series: str | None, level: Any, source: str) -> str:
        """Name the line that a row belongs to."""
        if self.series_is_source:
            return source
        return level_text(view_series or "", level) if level is not None else ""


def row_of(
    subject: Subject,
    layout: ChartLayout,
    value: tuple[float | None, float | None, float | None, int],
    metric: str,
    scale: Scale,
    *,
    x: Any,
    x_factor: str | None = None,
) -> Row:
    """Return the row of a figure for a subject and its value."""
    median, low, high, repeats = value
    factor = None if layout.series_is_source else layout.series_factor
    return {
        "panel": layout.panel(subject.level, subject.source.label),
        "x": x,
        "x_level": x,
        "_x": subject.level(x_factor),
        "_series": None if factor is None else subject.level(factor),
        "series": layout.series_label(factor, subject.level(factor), subject.source.label),
        "source": subject.source.label,
        "published": False,
        "y": scaled(median, scale),
        "low": scaled(low, scale),
        "high": scaled(high, scale),
        "repeats": repeats or None,
        "x_text": level_text(x_factor, subject.level(x_factor)) if x_factor else str(x),
        "text": interval_text(metric, median, low, high),
        "no_value": subject.source.no_value(subject.case.case_id) if median is None else "",
        "verdict": subject.source.verdict(subject.case.case_id) or "",
    }


def factor_axis(name: str | None, levels: Iterable[Any], *, categories: bool) -> Axis:
    """Return the axis for the levels of a factor: doubling ones on a logarithmic scale of base 2."""
    factor = name or ""
    ordered = in_order(levels)
    title = axis_title(factor)
    numeric = bool(ordered) and all(is_number(level) for level in ordered)
    if categories or not numeric or len(ordered) < 2:
        return Axis(title=title, kind="category", order=[level_text(factor, level) for level in ordered])
    label = BYTES_LABEL if unit_of_factor(factor) == "B" else None
    geometric = ordered[0] > 0 and ordered[-1] / ordered[0] >= 8
    domain = (ordered[0], ordered[-1])
    return Axis(
        title=title,
        kind="log2" if geometric else "linear",
        values=ordered,
        domain=domain,
        label=label,
        format="~s" if label is None and ordered[-1] >= 1e4 else ".4~r",
    )


def x_value(name: str | None, level: Any, axis: Axis) -> Any:
    """Return where a level is on its axis."""
    return level_text(name or "", level) if axis.kind == "category" else level


def widened(axis: Axis, cited: list[Row]) -> Axis:
    """Make room on the x axis for published values outside one's own range, in order of value."""
    if axis.kind == "category":
        return replace(axis, order=by_value([*axis.order, *(str(row["x"]) for row in cited)], cited, "x"))
    levels = sorted({*(axis.values or ()), *(row["x"] for row in cited)})
    return replace(axis, values=levels, domain=(levels[0], levels[-1]))


def by_value(labels: Iterable[str], rows: Iterable[Row], name: str) -> list[str]:
    """Return labels, each once, in the order of the numbers that they represent; names keep their order."""
    labels = unique(labels)
    values = {str(row[name]): row[f"_{name}"] for row in rows}
    if all(is_number(values.get(label)) for label in labels):
        return sorted(labels, key=lambda label: float(values[label]))
    return labels


def drawn_sources(layout: ChartLayout, cited: list[Row]) -> list[str]:
    """Return the sources that differ by their dashes: publications, and result sets that share a colour."""
    if not cited and not layout.dash_sources:
        return []
    return [*layout.sources, *unique(row["source"] for row in cited)]


def tooltip(view: View, layout: ChartLayout, metric: str) -> list[tuple[str, str]]:
    """Return the tooltip of a point: columns and their names."""
    x = [("x_text", factor_title(view.x))] if view.x else []
    return [*series_tooltip(layout), *x, ("text", metric_title(metric)), ("repeats", "Repeats")]


def series_tooltip(layout: ChartLayout) -> list[tuple[str, str]]:
    """Return what identifies the line of a point."""
    series = [("series", layout.series_title)] if layout.series else []
    return [*series, *([("source", "Source")] if layout.dash_sources else [])]


def in_order(levels: Iterable[Any]) -> list[Any]:
    """Sort numbers; leave other levels in the order of the study."""
    known = unique(level for level in levels if level is not None)
    return sorted(known) if all(is_number(level) for level in known) else known


def scaled(value: float | None, scale: Scale) -> float | None:
    """Return a value in the unit of its axis, with six digits."""
    return None if value is None else float(f"{value / scale.divisor:.6g}")


def unique(items: Iterable[Any]) -> list[Any]:
    """Return each item once, in the order of their first coming."""
    return list(dict.fromkeys(items))
