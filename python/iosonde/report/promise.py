"""What arrays promised and delivered: a surface of efficiency, curves beside the promise, a table of all numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from iosonde.report import charts
from iosonde.report.charts import Axis, Frame
from iosonde.report.figure import Figure
from iosonde.report.layout import Row, factor_axis, level_phrase, scaled, unique, x_value
from iosonde.report.material import Material, Source
from iosonde.report.quantities import factor_title, interval_text, level_text, metric_scale, metric_text, metric_title
from iosonde.report.sketch import Sketch, finish
from iosonde.report.tables import Cell, Table
from iosonde.study.model import Analysis, View

BRIGHTEST = 120
"""Percent of the promise from which on a surface has its brightest colour."""
MEASURED, PROMISED, BOUND = "measured", "promised", "bound"


@dataclass(frozen=True, kw_only=True)
class Promises:
    """The answers to one question about arrays, of one result set."""

    source: Source
    analysis: Analysis
    material: Material

    @cached_property
    def _loads(self) -> Any:
        from iosonde.findings.loads import Loads
        from iosonde.findings.question import Question

        results = self.source.results
        metrics = self.material.run_metrics.filter(pl.col("result_set") == self.source.label)
        return Loads(
            Question(
                study=self.material.study,
                analysis=self.analysis,
                cases=results.cases,
                runs=metrics,
                outcomes=results.runs,
            )
        )

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One for each array and load."""
        asked = self._loads
        return [] if asked.question.cells().is_empty() else list(asked.answers())

    @property
    def factors(self) -> list[str]:
        """Those of the load."""
        return list(self._loads.factors)

    @property
    def quantities(self) -> list[str]:
        """Those of them whose levels are numbers."""
        return list(self._loads.quantities)


def asked(material: Material) -> Iterator[Promises]:
    """Yield every question about promises that has an answer."""
    for analysis in material.study.analysis:
        if analysis.kind == "promise":
            for source in material.sources:
                found = Promises(source=source, analysis=analysis, material=material)
                if found.rows:
                    yield found


def figures(material: Material, *, first: int) -> list[Figure]:
    """Draw the surface of efficiency and, for each level, measured beside promised; numbered from `first`."""
    sketches = [sketch for found in asked(material) for sketch in (_surface(found), _curves(found)) if sketch.rows]
    return [
        finish(sketch, _view(sketch, found=number), first + number, material) for number, sketch in enumerate(sketches)
    ]


def _view(sketch: Sketch, *, found: int) -> View:
    surface = sketch.draw is charts.heatmap
    return View(
        kind="heatmap" if surface else "lines",
        title="Efficiency: measured over promised" if surface else "Measured beside promised",
        caption="The promise is the expected model of each level times what one device gave under the same load."
        if surface
        else "The bound is sharper than the promise: it knows block size, chunk and I/Os in flight (docs/arrays.md).",
    )


def _surface(found: Promises) -> Sketch:
    """Draw the efficiency of every array under every load; over loads that differ in quantities, the worst."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.rows:
        place = (_layout(row), _load(found, row))
        if place not in cells or row["efficiency"] < cells[place]["efficiency"]:
            cells[place] = row
    layouts = unique(_layout(row) for row in sorted(found.rows, key=_order))
    rows = [
        _row(found, each, x=load, series=layout, y=100 * each["efficiency"], text=_efficiency_text(each))
        for (layout, load), each in cells.items()
    ]
    frame = Frame(
        x=Axis(title="Load", kind="category", order=unique(row["x"] for row in rows)),
        y=Axis(title="Efficiency (%)", domain=(0, BRIGHTEST)),
        series_title="Array",
        series=list(reversed(layouts)),
        graded=True,
        tooltip=[("series", "Array"), ("x_text", "Load"), ("text", "Measured of promised")],
    )
    heads = {"panel": "panel", "series": "array", "x_level": "load", "y": "efficiency_percent"}
    labelled = [{**row, "label": f"{row['y']:.0f}"} for row in rows]
    return Sketch(draw=charts.heatmap, rows=labelled, frame=frame, heads=heads)


def _curves(found: Promises) -> Sketch:
    """Draw the rate over the number of devices, a panel for each level and load, beside promise and bound."""
    if found.quantities or len({row["devices"] for row in found.rows}) < 2:
        return Sketch(draw=charts.lines, rows=[], frame=_NOTHING, heads={})
    metric = found.analysis.metric
    largest = max(max(row["measured"], row["promised"]) for row in found.rows)
    scale = metric_scale(metric, largest)
    x = factor_axis("devices", [row["devices"] for row in found.rows], categories=False)
    rows = [drawn for row in found.rows for drawn in _curve_rows(found, row, scale, x)]
    frame = Frame(
        x=x,
        y=Axis(title=scale.title, label=scale.label, format=scale.format),
        series_title="Load",
        series=unique(_load(found, row) for row in found.rows),
        sources=[MEASURED, PROMISED, BOUND],
        source_title="Of which",
        tooltip=[("series", "Load"), ("source", "Of which"), ("x_text", "Devices"), ("text", metric_title(metric))],
    )
    heads = {"panel": "panel", "x_level": "devices", "series": "load", "source": "of_which"}
    heads |= {"y": scale.column, "low": f"{scale.column}_low", "high": f"{scale.column}_high"}
    return Sketch(draw=charts.lines, rows=rows, frame=frame, heads=heads)


def _curve_rows(found: Promises, row: Mapping[str, Any], scale: Any, x: Axis) -> Iterator[Row]:
    metric = found.analysis.metric
    panel = f"{_level(row)} · {'writing' if row['writes_only'] else 'reading'}"
    ends = [None if row[end] is None else row[end] * row["promised"] for end in ("low", "high")]
    for source, value, interval in (
        (MEASURED, row["measured"], ends),
        (PROMISED, row["promised"], [None, None]),
        (BOUND, row["bound"], [None, None]),
    ):
        if value is not None:
            low, high = interval
            yield {
                **_row(found, row, x=x_value("devices", row["devices"], x), series=_load(found, row), y=None, text=""),
                "panel": " · ".join(filter(None, [_of(found), panel])),
                "source": source,
                "y": scaled(value, scale),
                "low": scaled(low, scale),
                "high": scaled(high, scale),
                "text": interval_text(metric, value, low, high),
                "x_text": str(row["devices"]),
            }


_NOTHING = Frame(x=Axis(title=""), y=Axis(title=""))


def tables(material: Material) -> list[Table]:
    """Return every number of every array, a table for each question and result set."""
    return [_table(found) for found in asked(material)]


def _table(found: Promises) -> Table:
    metric = found.analysis.metric
    factors = found.factors
    heads = [
        "Array",
        *map(factor_title, factors),
        *(metric_title(metric), "One device", "Promised", "Efficiency", "Software overhead", "Speed-up", "Bound"),
        *("Of bound", "Bound by", "Member I/Os per I/O", "Member bytes per byte", "Members busy", "Imbalance"),
        *("CPU per byte", "Busiest thread", "Array's thread", "Busiest core", "Capacity", "Promised capacity"),
    ]
    of = f" of {found.source.label}" if len(found.material.sources) > 1 else ""
    return Table(
        title=f"Measured and promised{of}",
        caption="Promise: the expected model of the level times one device under the same load. Bound: what requests "
        "of this size can get from this layout at most. Software overhead is what the promise lacks. Members: "
        "what they did for each I/O and byte of the host; imbalance is the busiest over the mean. Of one core: the "
        "busiest thread is the engine's, the array's thread the kernel's; the busiest core is everybody's.",
        heads=heads,
        labels=1 + len(factors),
        rows=[_table_row(row, factors, metric) for row in sorted(found.rows, key=_order)],
        keys=[f"{found.source.label}\n{row['case_id']}" for row in sorted(found.rows, key=_order)],
    )


def _table_row(row: Mapping[str, Any], factors: Sequence[str], metric: str) -> list[Cell]:
    from iosonde.findings.promise import BOUND_WORDS

    def rate(name: str) -> Cell:
        return Cell(text=metric_text(metric, row[name]), number=row[name])

    def other(name: str, metric: str) -> Cell:
        return Cell(text=metric_text(metric, row[name]), number=row[name])

    return [
        Cell(text=_layout(row)),
        *(Cell(text=level_text(name, row[name])) for name in factors),
        *(rate(name) for name in ("measured", "baseline", "promised")),
        _percent(row["efficiency"], row["low"], row["high"]),
        _percent(row["overhead"], None, None),
        Cell(text=f"{row['speedup']:.2f}", interval=_ends(row, "{:.2f}"), number=row["speedup"]),
        rate("bound"),
        _percent(row["of_bound"], None, None),
        Cell(text=BOUND_WORDS.get(row["bound_by"] or "", "-")),
        other("member_ios_per_operation", "member_ios_per_operation"),
        other("member_bytes_per_byte", "member_bytes_per_byte"),
        _percent(row["member_utilisation"], None, None),
        other("member_imbalance", "member_imbalance"),
        other("cpu_ns_per_byte", "cpu_ns_per_byte"),
        _percent(row["core_utilisation"], None, None),
        _percent(row["array_thread_utilisation"], None, None),
        _percent(row["busiest_core_utilisation"], None, None),
        _bytes(row["capacity"]),
        _bytes(row["promised_capacity"]),
    ]


def _percent(value: float | None, low: float | None, high: float | None) -> Cell:
    if value is None:
        return Cell(text="-")
    interval = "" if low is None or high is None else f"{100 * low:.1f} .. {100 * high:.1f} %"
    return Cell(text=f"{100 * value:.1f} %", interval=interval, number=value)


def _ends(row: Mapping[str, Any], form: str) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return "" if low is None else f"{form.format(low)} .. {form.format(high)}"


def _bytes(value: float | None) -> Cell:
    from iosonde.units import format_bytes

    return Cell(text="-") if value is None else Cell(text=format_bytes(int(value)), number=value)


def _row(found: Promises, row: Mapping[str, Any], *, x: Any, series: str, y: float | None, text: str) -> Row:
    return {
        "panel": _of(found),
        "x": x,
        "x_level": x,
        "series": series,
        "source": found.source.label,
        "published": False,
        "y": None if y is None else round(y, 2),
        "low": None,
        "high": None,
        "repeats": row["repeats"],
        "x_text": str(x),
        "text": text,
        "hole": "",
        "verdict": "",
    }


def _of(found: Promises) -> str:
    """Name the result set where there are several."""
    return found.source.label if len(found.material.sources) > 1 else ""


def _efficiency_text(row: Mapping[str, Any]) -> str:
    interval = "" if row["low"] is None else f" [{100 * row['low']:.1f} .. {100 * row['high']:.1f} %]"
    return f"{100 * row['efficiency']:.1f} %{interval}"


def _load(found: Promises, row: Mapping[str, Any]) -> str:
    names = [name for name in found.factors if name not in found.quantities]
    return " · ".join(level_phrase(name, row[name]) for name in names) or "all"


def _level(row: Mapping[str, Any]) -> str:
    from iosonde.findings.expected import level_words

    kind = "" if row["array_kind"] in ("", "md") else f" ({row['array_kind']})"
    state = f", {row['state']}" if row["state"] in ("degraded", "rebuilding") else ""
    return f"{level_words(row['array'])}{kind}{state}"


def _layout(row: Mapping[str, Any]) -> str:
    return f"{_level(row)} × {row['devices']}"


def _order(row: Mapping[str, Any]) -> tuple[int, str, str, int]:
    levels = ["raid0", "raid1", "raid10", "raid5", "raid6"]
    return (levels.index(row["array"]), row["array_kind"], row["state"], row["devices"])
