"""From a view to a figure: roles of factors, published values next to measured ones, panels with their notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from iosonde.findings.published import published
from iosonde.metrics.statistics import WIDE_TEXT, is_wide
from iosonde.metrics.wording import counted
from iosonde.report import vega
from iosonde.report.figure import Chart, Figure, Panel, columns, least_width
from iosonde.report.material import (
    Estimate,
    Material,
    Subject,
    device_state_note,
    durability_note,
    intervals_of,
    same_level,
)
from iosonde.report.quantities import (
    BYTES_LABEL,
    Axis,
    Scale,
    axis_title,
    factor_column,
    factor_title,
    interval_text,
    is_number,
    is_percentile,
    level_phrase,
    level_text,
    metric_text,
    metric_title,
    metric_unit,
    unit_of_factor,
)
from iosonde.report.vega import MARKS, Frame
from iosonde.study.model import Level, Reference, View

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

    def drawn_sources(self, cited: Iterable[Row] = ()) -> list[str]:
        """Return the sources that differ by their dashes: publications, and result sets that share a colour."""
        published = unique(row["source"] for row in cited)
        return [*self.sources, *published] if published or self.dash_sources else []

    @property
    def tooltip(self) -> list[tuple[str, str]]:
        """Columns that identify the line of a point, and their names."""
        series = [("series", self.series_title)] if self.series else []
        return [*series, *([("source", "Source")] if self.dash_sources else [])]

    def frame(self, *, x: Axis, y: Axis, tooltip: Iterable[tuple[str, str]], **others: Any) -> Frame:
        """Return the frame of panels whose lines, colours and dashes are those of this layout, apart from `others`."""
        own: dict[str, Any] = {
            "series_title": self.series_title,
            "series": self.series,
            "graded": self.graded,
            "sources": self.drawn_sources(),
        }
        return Frame(x=x, y=y, tooltip=[*self.tooltip, *tooltip], **(own | others))

    def heads(self, x_factor: str = "", **columns: str) -> dict[str, str]:
        """Return the columns of a figure's rows, and their names in a CSV."""
        levels = {"x_level": factor_column(x_factor)} if x_factor else {}
        series = factor_column(self.series_factor)
        return {"panel": "panel", **levels, "series": series, "source": "result_set", **columns}


def row_of(
    subject: Subject,
    layout: ChartLayout,
    value: Estimate,
    metric: str,
    scale: Scale,
    *,
    x: Any,
    x_factor: str | None = None,
) -> Row:
    """Return the row of a figure for a subject and its value; `x` is the axis of a level of `x_factor`, or a number."""
    median, low, high, repeats = value
    if isinstance(x, Axis):
        x = x_value(x_factor, subject.level(x_factor), x)
    level = subject.level(layout.series_factor)
    series = "" if level is None else level_text(layout.series_factor, level)
    return {
        **UNKNOWN,
        "panel": layout.panel(subject.level, subject.source.label),
        "x": x,
        "x_level": x,
        "_x": subject.level(x_factor),
        "_series": None if layout.series_is_source else level,
        "series": subject.source.label if layout.series_is_source else series,
        "source": subject.source.label,
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


def widened(axis: Axis, rows: list[Row], cited: list[Row]) -> Axis:
    """Make room on the x axis for published values outside one's own range, in order of value.

    The measured rows show which numbers the labels of categories represent.
    """
    if axis.kind == "category":
        return replace(axis, order=by_value([*axis.order, *(str(row["x"]) for row in cited)], [*rows, *cited], "x"))
    levels = sorted({*(axis.values or ()), *(row["x"] for row in cited)})
    return replace(axis, values=levels, domain=(levels[0], levels[-1]))


def by_value(labels: Iterable[str], rows: Iterable[Row], name: str) -> list[str]:
    """Return labels, each once, in the order of the numbers that they represent; names keep their order."""
    labels = unique(labels)
    values = {str(row[name]): row[f"_{name}"] for row in rows}
    if all(is_number(values.get(label)) for label in labels):
        return sorted(labels, key=lambda label: float(values[label]))
    return labels


def x_tooltip(view: View, metric: str) -> list[tuple[str, str]]:
    """Return the tooltip of a point over a factor: columns and their names."""
    x = [("x_text", factor_title(view.x))] if view.x else []
    return [*x, ("text", metric_title(metric)), ("repeats", "Repeats")]


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


_PUBLISHED = ", published"
PUBLISHED_TO_OVERLAY = 6
"""With more published lines than this, they are drawn next to one's own instead of over them."""


def published_rows(view: View, material: Material, layout: ChartLayout, scale: Scale, x: Axis) -> list[Row]:
    """Return rows of the published values that a view names, in the panels of one's own.

    Of a factor whose levels are names, only those that the view's part has: one publication may cover several parts.
    All of them next to a single level, as a profile has that measures a target as it is.
    """
    if view.x is None:
        return []
    part = next(part for part in material.study.parts if part.name == view.part)
    named = [level.label for level in part.factors.get(view.x, ()) if isinstance(level, Level)]
    table = [r for r in cited_values(view, material) if r["metric"] == view.y and r.get(view.x) is not None]
    table = [r for r in table if len(named) < 2 or str(r[view.x]) in named]
    several = len({r["label"] for r in table}) > 1
    rows = []
    for r in table:
        x_level, series = r[view.x], None if layout.series_is_source else r.get(view.series or "")
        rows.append(
            {
                **UNKNOWN,
                "panel": " · ".join(level_phrase(f, r[f]) for f in layout.panel_factors if r.get(f) is not None),
                "x": x_value(view.x, x_level, x),
                "x_level": x_value(view.x, x_level, x),
                "_x": x_level,
                "_series": series,
                "series": _source(r, several=several) if series is None else level_text(view.series or "", series),
                "source": _source(r, several=several),
                "published": True,
                "y": scaled(r["value"], scale),
                "x_text": level_text(view.x, x_level),
                "text": f"{metric_text(view.y, r['value'])} (published)",
            }
        )
    return rows


def cited_values(view: View, material: Material) -> list[dict[str, Any]]:
    """Return the published values that a view names, without those of other levels than it wants."""
    reference = reference_of(view, material)
    return [
        row
        for row in (published(reference).to_dicts() if reference else ())
        if all(name not in row or same_level(name, row[name], wanted) for name, wanted in view.where.items())
    ]


def _source(row: Mapping[str, Any], *, several: bool) -> str:
    """Name where a value comes from: the publication each time would be too long for a legend of several devices."""
    if not row["label"]:
        return str(row["source"])
    return f"{row['label']}{_PUBLISHED}" if several else f"{row['label']} ({row['source']})"


def reference_of(view: View, material: Material) -> Reference | None:
    """Return the publication that a view names."""
    return next((each for each in material.study.references if each.name == view.reference), None)


def cited_note(rows: list[Row], reference: Reference) -> str:
    """Name the source of figures that are drawn besides one's own, and on which scale."""
    names = unique(row["source"].removesuffix(_PUBLISHED) for row in rows if row["published"])
    sources = names[0] if len(names) == 1 else f"{', '.join(names)} ({reference.source})"
    mixed = {row["panel"] for row in rows if row["published"]} & {row["panel"] for row in rows if not row["published"]}
    return f"Published: {sources}." if mixed else f"Published, each on its own scale: {sources}."


PANELS_AT_MOST = 24
ROOM = 1.5
"""Extent of an axis beyond the values, as a ratio, which leaves space for their intervals."""
Draw = Callable[[Frame], Chart]


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """Rows and frame of a figure, before they are divided into panels."""

    draw: Draw
    rows: list[Row]
    frame: Frame
    heads: dict[str, str]
    notes: Sequence[str] = ()
    zero: bool = True
    """True if the y axis starts at 0."""
    step_title: str = ""
    """Factor whose levels label the points of a trade-off."""


def drawn_metric(view: View) -> str:
    """Return the metric whose values a view shows: some kinds show a latency, whatever metric the view names."""
    match view.kind:
        case "percentiles":
            return "response_latency_ns" if view.y.startswith("response") else "completion_latency_ns"
        case "tradeoff" if metric_unit(view.y) != "ns":
            return "completion_latency_ns_p99"
        case _:
            return view.y


def has_mark(row: Row) -> bool:
    """Return True if a row shows in a figure: by its value, or by a cross where there is no result."""
    return row["y"] is not None or bool(row["no_value"])


def finish(sketch: Sketch, view: View, number: int, material: Material) -> Figure:
    """Divide a sketch into panels, with a caption below it."""
    metric = drawn_metric(view)
    marked = unique(row["panel"] for row in sketch.rows if has_mark(row))
    panels, cut = marked[:PANELS_AT_MOST], marked[PANELS_AT_MOST:]
    notes = list(sketch.notes)
    if cut:
        notes.append(f"Only the first {len(panels)} of {len(marked)} panels are drawn; the table of cases is complete.")
    kept = [row for row in sketch.rows if row["panel"] not in set(cut)]
    if view.kind != "heatmap" and any(row["low"] is not None for row in kept):
        mark = "Bands" if view.kind == "lines" else "Error bars"
        if sketch.draw is not vega.expectation:
            notes.append(f"{mark}: {intervals_of(material, [metric])}; cut at the edge of the plot.")
        if any(map(_is_wide, kept)):
            notes.append(f"Not drawn: intervals {WIDE_TEXT}.")
    # The CSV keeps the ends of intervals that are too wide to be drawn.
    kept = [{**row, "csv_low": row["low"], "csv_high": row["high"]} for row in kept]
    kept = [row | ({"low": None, "high": None} if _is_wide(row) else {}) for row in kept]
    verdicts = [kind for kind in MARKS if any(row["verdict"] == kind and row["y"] is not None for row in kept)]
    if verdicts:
        if view.kind != "timeseries":  # Lines over time have no marks.
            listed = ", ".join(f"{MARKS[kind]} {kind}" for kind in verdicts)
            notes.append(f"Hollow marks: not device-limited ({listed}).")
        kept = [{**row, "mark": "" if row["y"] is None else MARKS.get(row["verdict"], "")} for row in kept]
    if any(row["no_value"] for row in kept):
        notes.append("✕: no result.")
    unsupported = sum(row["y"] is None and not row["no_value"] for row in kept)
    if unsupported:
        lacking = "with too few samples for this percentile" if is_percentile(metric) else "without this metric"
        notes.append(f"Not drawn: {counted(unsupported, 'case')} {lacking}.")
    reference = reference_of(view, material)
    if reference is not None and any(row["published"] for row in kept):
        notes.append(cited_note(kept, reference))
    notes += filter(None, [durability_note(material, view.part)])
    with_values = {row[name] for row in kept if has_mark(row) for name in ("series", "source")}
    absent = frozenset({*sketch.frame.series, *sketch.frame.sources} - with_values)
    width = least_width(columns(len(panels)))
    frame = replace(sketch.frame, width=width, verdicts=verdicts, absent=absent)
    own = _domain([row for row in kept if row["y"] is not None and not row["published"]] or kept, sketch)
    shared = own if view.shared_y else None
    notes += filter(None, [device_state_note(view, material)])
    return Figure(
        name=f"{number:02}-{_slug(material.study.name)}-{_slug(view.title) or view.kind}",
        title=view.title,
        caption=" ".join(filter(None, [view.caption, *notes])),
        description=_description(view, sketch, kept, panels),
        part=view.part,
        metric=metric,
        kind=view.kind,
        intervals=intervals_of(material, [metric]),
        x_title=sketch.frame.x.title,
        series_title=sketch.frame.series_title,
        step_title=sketch.step_title,
        panels=[_panel(panel, kept, shared, frame, sketch) for panel in panels],
        rows=as_frame(kept),
        heads=_of_csv(sketch.heads | ({"verdict": "verdict"} if verdicts else {})),
        one_legend=view.kind != "heatmap",
    )


def _of_csv(heads: dict[str, str]) -> dict[str, str]:
    """Return columns and their names, each name once: lines that are result sets have no column next to that.

    The ends of intervals are those of the columns that have all of them.
    """
    named = {head: f"csv_{column}" if column in ("low", "high") else column for column, head in heads.items()}
    return {column: head for head, column in named.items()}


def _panel(panel: str, rows: list[Row], own: tuple[float, float] | None, frame: Frame, sketch: Sketch) -> Panel:
    y = replace(frame.y, domain=_panel_domain(rows, panel, own, sketch))
    return Panel(key=panel, chart=sketch.draw(replace(frame, y=y)))


def _panel_domain(rows: list[Row], panel: str, own: tuple[float, float] | None, sketch: Sketch) -> tuple[float, float]:
    """Return the domain of a panel's y axis: `own`, which one's own panels share, or else one that fits the panel.

    A panel of published values has its own, since devices differ by magnitudes.
    """
    inside = [row for row in rows if row["panel"] == panel]
    if own is None or all(row["published"] for row in inside):
        return _domain([row for row in inside if row["y"] is not None] or inside, sketch)
    cited = [row for row in inside if row["published"]]
    if not cited:
        return own
    low, high = _domain(cited, sketch)
    return min(low, own[0]), max(high, own[1])


def _is_wide(row: Row) -> bool:
    return row["y"] is not None and is_wide(row["low"], row["high"])


def _domain(rows: list[Row], sketch: Sketch) -> tuple[float, float]:
    """Return the range of values with their intervals, up to `ROOM` times: what reaches further is cut off."""
    logarithmic = sketch.frame.y.kind == "log"
    values = [row["y"] for row in rows if row["y"] is not None]
    if not values:
        return (1, 10) if logarithmic else (0, 1)
    ends = [row[name] for row in rows for name in ("y", "low", "high") if row[name] is not None]
    low = max(min(ends), min(values) / ROOM) if min(values) > 0 else min(ends)
    high = min(max(ends), max(values) * ROOM) if max(values) > 0 else max(ends)
    if logarithmic:
        return max(low, 1e-9) / 1.25, max(high, 1e-9) * 1.25
    return (0 if sketch.zero else low), (1.05 * high if sketch.zero else max(high, low * 1.001)) or 1


def _description(view: View, sketch: Sketch, rows: list[Row], panels: Sequence[str]) -> str:
    """Describe the figure, for readers who cannot see it."""
    own = [row for row in rows if row["y"] is not None and not row["published"]]
    kinds = {
        "lines": "Line chart",
        "heatmap": "Heat map",
        "bars": "Bar chart",
        "tradeoff": "Curve",
        "percentiles": "Percentile curves",
        "timeseries": "Time series",
        "stack": "Stacked bar chart",
    }
    what = f"{kinds[view.kind]}: {sketch.frame.y.title} over {sketch.frame.x.title}"
    if len(sketch.frame.series) > 1:
        what += f", for {len(sketch.frame.series)} values of {sketch.frame.series_title}"
    if len(panels) > 1:
        what += f", in {len(panels)} panels"
    if not own:
        return what + ". No case has a value."
    lowest, highest = min(own, key=lambda row: row["y"]), max(own, key=lambda row: row["y"])
    return f"{what}. From {lowest['text']} ({_where(lowest)}) to {highest['text']} ({_where(highest)})."


def _where(row: Row) -> str:
    return ", ".join(str(part) for part in (row["panel"], row["series"]) if part) or row["source"]


_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("panel", "series", "source", "text", "no_value", "verdict", "mark"), pl.String),
    **dict.fromkeys(("y", "low", "high", "csv_low", "csv_high"), pl.Float64),
    "published": pl.Boolean,
    "repeats": pl.UInt32,
}


def as_frame(rows: list[Row]) -> pl.DataFrame:
    """Return rows as a frame, whatever columns happen to be empty."""
    shown = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    complete = [{"mark": "", "csv_low": row["low"], "csv_high": row["high"], **row} for row in shown]
    return pl.DataFrame(complete, infer_schema_length=None, schema_overrides=_TYPES)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].strip("-")
