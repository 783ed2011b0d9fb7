"""The report as one HTML file that opens offline, from any disk, for years.

Text, tables and figures are plain HTML and SVG: readable without scripts, in mail and in print. Scripts add sorting,
saving, values under the pointer and the view of single runs; the chart library and the rows are compressed, and are
unpacked when a reader requires them. The page's policy names scripts by their hashes and allows nothing else, so that
even markup that slipped through the escaping could not act. Jinja escapes all text."""

from __future__ import annotations

import base64
import functools
import json
import shlex
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from typing import Any

import polars as pl

from iosonde.base.cache import cache_directory, remember
from iosonde.base.foreign_text import printable
from iosonde.metrics.metrics import interval_metrics
from iosonde.report import theme
from iosonde.report.content import Report, computed
from iosonde.report.document import asset, embedded_json, policy, template_of
from iosonde.report.figure import Figure, draw, drawings, legends, on_page, specification
from iosonde.report.material import Source, loop_text
from iosonde.report.provenance import IN_TEMPLATES, programs
from iosonde.report.quantities import case_name
from iosonde.report.table import folded

RUNS_AT_ONCE = 1000
"""Runs whose intervals are held in memory together."""
RUN_COLUMNS = (
    "bandwidth",
    "iops",
    "ops_per_sec",
    "completion_latency_ns_mean",
    "completion_latency_ns_max",
)


def render(report: Report) -> str:
    """Return the page."""
    report.compute()
    script = asset("report.js")
    text = template_of(asset("report.html"), folded=folded).render(
        report=report,
        policy=policy(chart_library(), script),
        style=asset("report.css"),
        dark_style=theme.dark_style(),
        library=_packed_library(),
        script=script,
        data=embedded_json(_data(report)),
        runs=embedded_json(_runs(report)),
        drawings=drawings,
        legends=legends,
        programs=programs,
        quoted=shlex.quote,
        **IN_TEMPLATES,
    )
    return printable(str(text)).lstrip()


@cache
def chart_library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, from the bundle that vl-convert carries.

    Bundling takes longer than the rest of a small report, so the script is kept in the cache.
    """
    path = cache_directory() / "report" / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, ValueError):
        return path.read_bytes().decode()
    import vl_convert

    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    remember(path, script.encode())
    return script


@cache
def _packed_library() -> str:
    return _packed(chart_library())


def _packed(text: str) -> str:
    """Compress text for the page, in base 64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _data(report: Report) -> dict[str, Any]:
    return {
        "theme": theme.configuration(),
        "paper": theme.configuration(font=theme.PAPER_FONT),
        "figures": {figure.name: _packed(json.dumps(_figure(figure))) for figure in report.figures},
    }


def _figure(figure: Figure) -> dict[str, Any]:
    """Return what the page needs to redraw a figure and to save its rows."""
    return {
        "title": specification(figure)["title"],
        "description": figure.description,
        "specification": figure.specification,
        "panels": [on_page(figure, panel) for panel in figure.panels],
        "keys": [panel.key for panel in figure.panels],
        "heads": dict(figure.heads),
        "rows": figure.rows.height,
        "columns": {name: _column(figure.rows[name]) for name in figure.rows.columns},
    }


def _column(column: pl.Series) -> Any:
    """Write a column of text as its few distinct values and their places; any other as it is."""
    if column.dtype != pl.String:
        return column.to_list()
    distinct = column.unique(maintain_order=True)
    places = {text: place for place, text in enumerate(distinct.to_list())}
    if len(places) == 1:
        return {"of": distinct.to_list()}
    return {"of": distinct.to_list(), "at": [places[text] for text in column.to_list()]}


# Every run -------------------------------------------------------------------------------------------------------


def _runs(report: Report) -> dict[str, dict[str, Any]]:
    """Return, for each result set, its cases and runs: facts, time series, and what differs in the engine's spec."""
    found = {}
    for chapter in report.chapters:
        for source in chapter.sources:
            none: dict[str, str] = {}
            read = functools.partial(_series, source)
            series = computed(chapter.omitted, f"Time series of {source.label}", read, instead=none)
            found[source.label] = _runs_of(source, series)
    return found


def _runs_of(source: Source, series: Mapping[str, str]) -> dict[str, Any]:
    records = {record.run_id: record for record in source.records}
    runs = sorted(source.runs, key=lambda run: (run.case_id, run.repeat))
    base = runs[0].spec if runs else {}
    listed: dict[str, list[dict[str, Any]]] = {case.case_id: [] for case in source.cases}
    for run in runs:
        record = records.get(run.run_id)
        listed[run.case_id].append(
            {
                "id": run.run_id,
                "repeat": run.repeat,
                "order": run.order + 1,
                "outcome": record.outcome if record else "not run",
                "started": record.started_at if record else "",
                "why": record.failure.message if record and record.failure else "",
                "warnings": [warning.message for warning in record.warnings] if record else [],
                "series": series.get(run.run_id),
                "spec": differences(base, run.spec),
            }
        )
    cases = [
        {
            "id": case.case_id,
            "part": case.part,
            "name": case_name(case),
            "loop": loop_text([source.specs_by_case[case.case_id]]),
            "runs": listed[case.case_id],
        }
        for case in source.cases
    ]
    return {"cases": cases, "spec": base}


def _series(source: Source) -> dict[str, str]:
    """Return each run's intervals as compressed JSON, in base 64: columns of operation, second and metrics."""
    run_ids = [record.run_id for record in source.records if record.outcome != "failed"]
    found: dict[str, str] = {}
    for first in range(0, len(run_ids), RUNS_AT_ONCE):
        chunk = run_ids[first : first + RUNS_AT_ONCE]
        table = interval_metrics(source.results, run_ids=chunk, metrics=RUN_COLUMNS)
        found |= _series_of_runs(table.filter(pl.col("phase") == "measure"))
    return found


def _series_of_runs(table: pl.DataFrame) -> Iterator[tuple[str, str]]:
    wide = table.pivot(
        on="metric", index=["run_id", "stream", "operation", "interval", "begin_ns", "end_ns"], values="value"
    )
    present = [name for name in RUN_COLUMNS if name in wide.columns]
    for (run_id,), rows in wide.sort("stream", "operation", "interval").group_by(["run_id"], maintain_order=True):
        own = rows.filter(pl.col("operation") != "all")
        begin = own["begin_ns"].min()
        several = own["stream"].n_unique() > 1
        scope = pl.format("{} {}", "stream", "operation") if several else pl.col("operation")
        columns: dict[str, Any] = {
            "operation": own.select(scope.alias("scope"))["scope"].to_list(),
            "seconds": ((own["end_ns"] - begin) / 1e9).round(3).to_list(),
        }
        columns |= {name: [_short(value) for value in own[name].to_list()] for name in present}
        yield str(run_id), _packed(json.dumps(columns, separators=(",", ":")))


def _short(value: float | None) -> float | int | None:
    """Keep four digits: more than a line on a screen shows."""
    if value is None:
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def differences(base: Any, other: Any, path: tuple[str | int, ...] = ()) -> list[list[Any]]:
    """Return what turns one spec into another: `[path, value]` for each place where they differ.

    Specs of a study differ in few places, and two thousand of them in full would be most of the page.
    """
    if isinstance(base, dict) and isinstance(other, dict) and base.keys() == other.keys():
        pairs = [(key, base[key], other[key]) for key in base]
    elif isinstance(base, list) and isinstance(other, list) and len(base) == len(other):
        pairs = list(zip(range(len(base)), base, other, strict=True))
    else:
        return [] if base == other and type(base) is type(other) else [[list(path), other]]
    return [change for key, a, b in pairs for change in differences(a, b, (*path, key))]


def fragment(report: Report) -> str:
    """The report as a fragment of HTML."""
    return printable(template_of(asset("fragment.html")).render(report=report, drawn=draw, **IN_TEMPLATES))
