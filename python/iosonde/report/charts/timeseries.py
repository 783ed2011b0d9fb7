"""A metric within runs: over time, or over what was written as a multiple of the active range.

SNIA's write saturation is drawn both ways: the one shows how long a drive keeps up, the other how much it takes, which
drives of different speed and size have in common. On a whole drive the active range is its user capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from iosonde.report.charts import vega
from iosonde.report.charts.layout import ChartLayout, drawn_sources, row_of, series_tooltip
from iosonde.report.charts.sketch import Sketch
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.quantities import factor_column, metric_scale, metric_title
from iosonde.report.material.result_sets import Material
from iosonde.report.material.subjects import Subject, metric_title_of
from iosonde.study.model import ROUND, STAGE, View
from iosonde.units import format_bytes
from iosonde.workload.block.requirements import active_range_bytes

RUNS_TO_DRAW = 60

_RUN = ("result_set", "run_id")


@dataclass(frozen=True, kw_only=True)
class _TimeAxis:
    """The x axis: its title, the name of its column in a CSV, what a tooltip calls it, and every interval on it."""

    title: str
    column: str
    called: str
    places: pl.DataFrame
    """`result_set, run_id, interval, x` (end of the interval), `x_text`."""


def sketch(view: View, found: list[Subject], material: Material) -> Sketch | None:
    """Draw every run of what was found, one row an interval; None where there is nothing to draw."""
    by_key = {s.key: s for s in found}
    chosen, notes = _runs(found, material)
    if not chosen:
        return None
    table = _measured(material, view.y, chosen)
    axis = _over_written(found, table, chosen, view, material) if view.over == "written" else None
    axis = axis or _over_time(table, view, material)
    if any(s.operation is None for s in found):
        table = _whole_load(table)
    keys = ("result_set", "case_id", "stream", "operation")
    placed = table.join(axis.places, on=[*_RUN, "interval"]).sort(*_RUN, "begin_ns")
    measured = [(r, by_key[key]) for r in placed.to_dicts() if (key := tuple(r[name] for name in keys)) in by_key]
    largest = max((r["value"] for r, _ in measured), default=1)
    stalled = set(material.stalled_intervals(chosen).rows())
    layout, scale = (
        ChartLayout.for_view(view, found, material),
        metric_scale(view.y, largest, title=metric_title_of(view.y, found)),
    )
    rows = [
        {
            **row_of(subject, layout, (r["value"], None, None, 0), view.y, scale, x=r["x"]),
            "run": f"{r['run_id']}",
            "x_text": r["x_text"],
            **({"stalled": (r["result_set"], r["run_id"], r["interval"]) in stalled} if stalled else {}),
        }
        for r, subject in measured
    ]
    frame = Frame(
        x=Axis(title=axis.title, domain=(0, max((row["x"] for row in rows), default=1))),
        y=Axis(
            title=scale.title, kind="log" if scale.logarithmic else "linear", label=scale.label, format=scale.format
        ),
        series_title=layout.series_title,
        series=layout.series,
        graded=layout.graded,
        sources=drawn_sources(layout, []),
        tooltip=[*series_tooltip(layout), ("run", "Run"), ("x_text", axis.called), ("text", metric_title(view.y))],
    )
    heads = {
        "panel": "panel",
        "series": factor_column(layout.series_factor),
        "source": "result_set",
        "run": "run_id",
        "x": axis.column,
        "y": scale.column,
    }
    if stalled:
        notes.append("Crosses: the engine itself was stalled; not counted towards steady state.")
    return Sketch(
        draw=vega.timeseries_with_stalls if stalled else vega.timeseries,
        rows=rows,
        frame=frame,
        heads=heads,
        notes=notes,
    )


def _runs(found: list[Subject], material: Material) -> tuple[dict[str, list[str]], list[str]]:
    """The ids of the runs to draw, by result set; and what a reader must know of the choice."""
    drawn = {s.key[:2] for s in found}
    runs = [
        (source.label, record.run_id, record.repeat)
        for source in material.sources
        for record in source.records
        if (source.label, record.case_id) in drawn and record.outcome != "failed"
    ]
    notes = []
    if len(runs) > RUNS_TO_DRAW:
        runs = [run for run in runs if run[2] == 1]
        notes = ["Only the first repeat of each case is drawn."]
    elif any(repeat > 1 for *_, repeat in runs):
        notes = ["One line per run: repeats have the same colour."]
    return {label: [run_id for of, run_id, _ in runs if of == label] for label, _, _ in runs}, notes


def _measured(material: Material, metric: str, chosen: dict[str, list[str]]) -> pl.DataFrame:
    return material.intervals(metric, chosen).filter(pl.col("phase") == "measure")


def _whole_load(table: pl.DataFrame) -> pl.DataFrame:
    from iosonde.metrics.scopes import overall

    return overall(table).with_columns(stream=pl.lit(None), operation=pl.lit(None))


def _over_time(table: pl.DataFrame, view: View, material: Material) -> _TimeAxis:
    """Seconds since the measurement began; of rounds and stages since the first did."""
    end_to_end = view.x in (ROUND, STAGE)
    ends = table.select(*_RUN, "interval", "begin_ns", "end_ns").unique().sort(*_RUN, "begin_ns")
    begin = _begins(ends, material, end_to_end=end_to_end)
    seconds = [round((r["end_ns"] - begin[r["result_set"], r["run_id"]]) / 1e9, 3) for r in ends.to_dicts()]
    return _TimeAxis(
        title="Time (s), one load after the other" if end_to_end else "Time in the measurement (s)",
        column="seconds",
        called="Time",
        places=ends.select(*_RUN, "interval").with_columns(
            x=pl.Series(seconds, dtype=pl.Float64),
            x_text=pl.Series([f"{each:g} s" for each in seconds], dtype=pl.String),
        ),
    )


def _begins(ends: pl.DataFrame, material: Material, *, end_to_end: bool) -> dict[tuple[str, str], int]:
    """The start of each run's measurement on the axis: 0, or where the one before it ends."""
    spans = ends.group_by(*_RUN).agg(pl.col("begin_ns").min(), pl.col("end_ns").max())
    if not end_to_end:
        return {(label, run_id): begin for label, run_id, begin, _ in spans.rows()}
    begins: dict[tuple[str, str], int] = {}
    elapsed: dict[str, int] = {}
    for label, run_id, begin, end in sorted(spans.rows(), key=lambda row: _order(material)[row[0], row[1]]):
        begins[label, run_id] = begin - elapsed.get(label, 0)
        elapsed[label] = elapsed.get(label, 0) + end - begin
    return begins


def _order(material: Material) -> dict[tuple[str, str], int]:
    return {(source.label, each.run_id): each.order for source in material.sources for each in source.records}


def _over_written(
    found: list[Subject], table: pl.DataFrame, chosen: dict[str, list[str]], view: View, material: Material
) -> _TimeAxis | None:
    """Bytes written since the measurement began; None where streams have ranges of their own, or nothing is written.

    Of rounds and stages since the first began, as time is.
    """
    ranges = {s.key[:2]: active_range_bytes(s.case.parameters | s.case.levels) for s in found}
    bandwidth = table if view.y == "bandwidth" else _measured(material, "bandwidth", chosen)
    written = bandwidth.filter(pl.col("operation") == "write")
    if written.is_empty() or None in ranges.values():
        return None
    seconds = (pl.col("end_ns") - pl.col("begin_ns")) / 1e9
    order = _order(material)
    by = ["result_set"] if view.x in (ROUND, STAGE) else list(_RUN)
    places = (
        written.group_by(*_RUN, "case_id", "interval", "begin_ns")
        .agg(moved=(pl.col("value") * seconds).sum())
        .with_columns(place=pl.struct(_RUN).map_elements(lambda run: order[tuple(run.values())], return_dtype=pl.Int64))
        .sort("place", "begin_ns")
        .with_columns(bytes=pl.col("moved").cum_sum().over(by))
    )
    rows = [(r, ranges[r["result_set"], r["case_id"]] or 1) for r in places.to_dicts()]
    return _TimeAxis(
        title=f"Written (multiples of the active range{_of(ranges)})",
        column="active_ranges_written",
        called="Written",
        places=places.select(*_RUN, "interval").with_columns(
            x=pl.Series([round(r["bytes"] / whole, 6) for r, whole in rows], dtype=pl.Float64),
            x_text=pl.Series([_written_text(r["bytes"], whole) for r, whole in rows], dtype=pl.String),
        ),
    )


def _of(ranges: dict[Any, int | None]) -> str:
    sizes = {size for size in ranges.values() if size}
    return f" of {format_bytes(sizes.pop())}" if len(sizes) == 1 else ""


def _written_text(moved: float, whole: int) -> str:
    return f"{format_bytes(round(moved))}, {moved / whole:.3g} times the active range"
