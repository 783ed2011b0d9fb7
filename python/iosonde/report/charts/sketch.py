"""From rows to a figure: panels, domains of their axes, notes under it, and a description in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from iosonde.metrics.statistics import WIDE_TEXT, is_wide
from iosonde.metrics.wording import counted
from iosonde.report.charts import vega
from iosonde.report.charts.figure import Chart, Figure, Panel, columns, least_width
from iosonde.report.charts.layout import Row, unique
from iosonde.report.charts.published import cited_note, reference_of
from iosonde.report.charts.vega import MARKS, Frame
from iosonde.report.material import device_states, durability
from iosonde.report.material.intervals import intervals_of
from iosonde.report.material.quantities import is_percentile, metric_unit
from iosonde.report.material.result_sets import Material
from iosonde.study.model import View

if TYPE_CHECKING:
    from iosonde.verdict.verdict import Kind

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
    part: str = ""
    """Part of the study, where no view of the study requires the figure."""
    metric: str = "efficiency"
    """Metric, where no view of the study requires the figure."""
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
    kept = [_without_wide_interval(row) for row in kept]
    verdicts = [kind for kind in MARKS if any(row["verdict"] == kind and row["y"] is not None for row in kept)]
    if verdicts:
        notes += [_verdict_note(verdicts)] if view.kind != "timeseries" else []  # Lines over time have no marks.
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
    notes += filter(None, [durability.note(material, view.part)])
    with_values = {row[name] for row in kept if has_mark(row) for name in ("series", "source")}
    absent = frozenset({*sketch.frame.series, *sketch.frame.sources} - with_values)
    own = _domain([row for row in kept if row["y"] is not None and not row["published"]] or kept, sketch)
    shared = own if view.shared_y else None
    drawn = [
        Panel(
            title=panel if len(panels) > 1 else "",
            key=panel,
            chart=sketch.draw(
                replace(
                    sketch.frame,
                    panel=index,
                    width=least_width(columns(len(panels))),
                    y=replace(sketch.frame.y, domain=_panel_domain(kept, panel, shared, sketch)),
                    verdicts=verdicts,
                    absent=absent,
                )
            ),
        )
        for index, panel in enumerate(panels)
    ]
    notes += filter(None, [device_states.caption(view, material)])
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
        panels=drawn,
        rows=as_frame(kept),
        heads=_distinct(_of_csv(sketch.heads) | ({"verdict": "verdict"} if verdicts else {})),
        one_legend=view.kind != "heatmap",
    )


def _of_csv(heads: dict[str, str]) -> dict[str, str]:
    """Take the ends of intervals from the columns that have all of them."""
    return {f"csv_{column}" if column in ("low", "high") else column: head for column, head in heads.items()}


def _distinct(heads: dict[str, str]) -> dict[str, str]:
    """Each name once: lines that are result sets have no column next to that of the result set."""
    return {column: head for head, column in {head: column for column, head in heads.items()}.items()}


def _verdict_note(verdicts: Sequence[Kind]) -> str:
    """Explain hollow marks."""
    listed = ", ".join(f"{MARKS[kind]} {kind}" for kind in verdicts)
    return f"Hollow marks: not device-limited ({listed})."


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


def _without_wide_interval(row: Row) -> Row:
    """Return a row to draw; the CSV keeps the ends of its interval."""
    ends = {"csv_low": row["low"], "csv_high": row["high"]}
    return {**row, **ends, **({"low": None, "high": None} if _is_wide(row) else {})}


def drawn_ends(row: Row) -> list[str]:
    """Columns of a row that an axis must reach: the value, and its interval unless that has no meaning."""
    names = ("y",) if _is_wide(row) else ("y", "low", "high")
    return [name for name in names if row[name] is not None]


def _with_intervals(rows: list[Row], lowest: float, highest: float) -> tuple[float, float]:
    """Widen the range of values by their intervals, up to `ROOM` times: what reaches further is cut off."""
    ends = [row[name] for row in rows for name in drawn_ends(row)]
    low, high = min(ends), max(ends)
    return (max(low, lowest / ROOM) if lowest > 0 else low), (min(high, highest * ROOM) if highest > 0 else high)


def _domain(rows: list[Row], sketch: Sketch) -> tuple[float, float]:
    values = [row["y"] for row in rows if row["y"] is not None]
    if not values:
        return (1, 10) if sketch.frame.y.kind == "log" else (0, 1)
    low, high = _with_intervals(rows, min(values), max(values))
    if sketch.frame.y.kind == "log":
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


COLUMNS = {
    "panel": pl.String,
    "x": None,
    "x_level": None,
    "series": pl.String,
    "source": pl.String,
    "published": pl.Boolean,
    "y": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "csv_low": pl.Float64,
    "csv_high": pl.Float64,
    "repeats": pl.UInt32,
    "text": pl.String,
    "no_value": pl.String,
    "verdict": pl.String,
    "mark": pl.String,
}


def as_frame(rows: list[Row]) -> pl.DataFrame:
    """Return rows as a frame, whatever columns happen to be empty."""
    shown = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
    frame = pl.DataFrame(
        [{"mark": "", "csv_low": row["low"], "csv_high": row["high"], **row} for row in shown], infer_schema_length=None
    )
    return frame.with_columns(pl.col(name).cast(kind) for name, kind in COLUMNS.items() if kind is not None)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48].strip("-")
