"""Tables besides those of a study's views: requirements, verdicts, repeats, sessions and statistics of stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import polars as pl

from iosonde.comparison.sessions import pooled
from iosonde.metrics.registry import RATES
from iosonde.metrics.scopes import each_load
from iosonde.procedure.until import UntilConclusion
from iosonde.report.material import Material, Source
from iosonde.report.quantities import case_name, metric_text, metric_title
from iosonde.report.table import LIMITED_BY, RESULT, VERDICT, Cell, Column, Table, tabulated
from iosonde.results.schema import Record
from iosonde.units import format_bytes, format_count, format_duration, format_latency
from iosonde.workload import names_where, store_name, streams_of

if TYPE_CHECKING:
    from iosonde.findings.requirements import Result, Window
    from iosonde.plan import Case
    from iosonde.study.model import RequirementSource
    from iosonde.verdict.verdict import Kind


TITLE = "Requirements"
NAME = "Requirement"
SHOWN = ("Value", "Limit", "Margin", "Interval", "Level")
"""Heads of the columns of values, the most important first."""
NOTES = "Reasons and sources"
REASON, MEANING = "Reason", "Meaning"
CAPTION = (
    "Margin: distance from the limit, negative beyond it. Intervals are those of the sequential test "
    "(docs/requirements.md); a limit within one is undecided."
)

WINDOWS = "Worst windows"
START = "Start"
OBSERVED = "Observed"
SHOWN_OF_WINDOWS = (START, RESULT, NAME, "Value", "Margin")
"""Heads of the columns of windows that a terminal has room for."""
WORST = 50
"""Windows in the table."""


def requirements_tables(material: Material) -> list[Table]:
    """Return every requirement in each case, the worst first, with its values, and with reason and source."""
    from iosonde.findings.requirements import results_of

    if not material.study.requirement:
        return []
    found = [(source.label, result) for source in material.sources for result in results_of(source.results)]
    labels: list[Column[tuple[str, Result]] | None] = [
        ("Result set", lambda each: each[0]) if len(material.sources) > 1 else None,
        (RESULT, lambda each: each[1].outcome),
        (NAME, lambda each: each[1].requirement.name),
        ("Case", lambda each: each[1].case_id) if len({result.case_id for _, result in found}) > 1 else None,
    ]
    values: list[Column[tuple[str, Result]]] = [
        ("Value", lambda each: _value(each[1])),
        ("Limit", lambda each: Cell(text=each[1].limit_text, number=each[1].limit)),
        ("Margin", lambda each: _margin(each[1])),
        ("Interval", lambda each: _interval(each[1])),
        ("Level", lambda each: each[1].requirement.level),
    ]
    notes: list[Column[tuple[str, Result]]] = [
        (REASON, lambda each: each[1].reason or "-"),
        (MEANING, lambda each: each[1].requirement.means),
        ("Source", lambda each: source_text(each[1].requirement.source)),
    ]
    return [
        tabulated(found, labels, values, title=_title(material, found), caption=CAPTION),
        tabulated(found, labels, notes, title=NOTES),
    ]


def _value(result: Result) -> Cell:
    return Cell(text=result.text(result.value), number=result.value)


def _margin(result: Result) -> Cell:
    """Write the distance from the limit."""
    return Cell(text="-" if result.margin is None else f"{100 * result.margin:+.0f} %", number=result.margin)


def _title(material: Material, found: Sequence[tuple[str, Result]]) -> str:
    """Start with the result of all: `FAIL: Requirements`."""
    from iosonde.findings.requirements import overall

    wrong = any(record.has_wrong_data for source in material.sources for record in source.records)
    return f"{'FAIL' if wrong else overall([result for _, result in found]).upper()}: {TITLE}"


def windows_table(material: Material) -> Table | None:
    """Return the worst windows of requirements that each run must meet; None without any."""
    from iosonde.findings.requirements import badness, results_of

    found = [
        (replace(result, outcome=window.outcome, value=window.value, margin=window.margin), window, source.label)
        for source in material.sources
        for result in results_of(source.results)
        for window in result.windows
    ]
    found.sort(key=lambda each: badness(each[0]))
    if not found:
        return None
    labels: list[Column[tuple[Result, Window, str]] | None] = [
        ("Result set", lambda each: each[2]) if len(material.sources) > 1 else None,
        (START, lambda each: f"{datetime.fromisoformat(each[1].started_at):%Y-%m-%d %H:%M:%S}"),
        (RESULT, lambda each: each[0].outcome),
        (NAME, lambda each: each[0].requirement.name),
    ]
    values: list[Column[tuple[Result, Window, str]]] = [
        ("Value", lambda each: _value(each[0])),
        ("Margin", lambda each: _margin(each[0])),
        (OBSERVED, lambda each: _observed(each[1])),
        ("Run", lambda each: each[1].run_id),
    ]
    caption = f"The worst {WORST} of {len(found):,}." if len(found) > WORST else ""
    return tabulated(found[:WORST], labels, values, title=WINDOWS, caption=caption)


def _observed(window: Window) -> str:
    """Write why a window is undecided and what else happened; a verdict with its reasons."""
    verdict, _, because = window.reason.partition(": ")
    reason = verdict if because in window.observed else window.reason
    return ": ".join(filter(None, (reason, "; ".join(window.observed)))) or "-"


def _interval(result: Result) -> str:
    from iosonde.metrics.wording import range_text

    if result.low is None and result.high is None:
        return "-"
    if result.high is None:
        return f"≥ {result.text(result.low)}"
    return range_text(result.text(result.low), result.text(result.high))


def source_text(source: RequirementSource) -> str:
    """Write a source on one line."""
    return ", ".join(filter(None, (source.title, source.publisher, source.version, source.address)))


EXPLANATION = (
    "Each run is judged by its own counters: how long the queue was underfilled and why, whether a core was saturated, "
    "the cost of the harness for an I/O of this shape, reads served from memory, concurrent use of CPU and device. "
    "The most severe warning decides; a case has the verdict of most of its runs."
)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.0995 or value == 0 else f"{100 * value:.1f} %"


_NUMBERS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "in_flight_share": ("In flight", _share),
    "turnaround_share": ("Idle queue slots", _share),
    "edge_share": ("Start and end", _share),
    "core_utilisation": ("Busiest core", _share),
    "cpu_wait_share": ("CPU wait", _share),
    "harness_ns_per_io": ("Harness per I/O", format_latency),
    "read_from_memory_share": ("Not read from a device", _share),
    "written_to_memory_share": ("Not written to a device", _share),
    "other_bytes_share": ("Concurrent I/O", _share),
    "steal_share": ("Stolen CPU", _share),
    "temperature_celsius": ("Temperature", lambda value: f"{value:.0f} °C"),
}
"""Numbers of the table of cases: heads, and how they are written. Those that no run has are left out."""


def verdict_tables(material: Material) -> list[Table]:
    """Return how many runs each verdict has, and why; then the numbers of every case. Nothing without verdicts."""
    judged = [(source, record) for source in material.sources for record in source.records if record.verdict]
    if not judged:
        return []
    return [_counts(material, judged), _evidence(material)]


def _counts(material: Material, judged: list[tuple[Source, Record]]) -> Table:
    from iosonde.verdict.verdict import KINDS, MEANING

    found = []
    for source in material.sources:
        records = [record for of, record in judged if of is source]
        for kind in KINDS:
            if having := [record for record in records if record.verdict and record.verdict.kind == kind]:
                found.append((source.label, kind, having, len(records)))
    labels: list[Column[tuple[str, Kind, list[Record], int]] | None] = [
        ("Result set", lambda each: each[0]) if len(material.sources) > 1 else None,
        ("Verdict", lambda each: each[1]),
        ("Runs", lambda each: Cell(text=f"{len(each[2])} of {each[3]}", number=len(each[2]))),
        ("Meaning", lambda each: MEANING[each[1]]),
        ("Warnings", lambda each: _codes(each[2])),
    ]
    return tabulated(found, labels, [], title="Verdicts", caption=EXPLANATION)


def _codes(records: list[Record]) -> str:
    """Name the warnings that decide, with the number of runs that have them."""
    from iosonde.verdict.rules import rules

    counts = Counter(warning.code for record in records for warning in record.warnings)
    listed = [f"{code} ({n})" for code, n in counts.most_common() if code in rules()]
    return ", ".join(listed) or "-"


def _evidence(material: Material) -> Table:
    cases = [(source, case, _medians(source, case.case_id)) for source, case in material.cases()]
    cases = [each for each in cases if each[2]]
    labels: list[Column[tuple[Source, Case, dict[str, float]]] | None] = [
        ("Result set", lambda each: each[0].label) if len(material.sources) > 1 else None,
        ("Case", lambda each: each[1].case_id),
    ]
    values: list[Column[tuple[Source, Case, dict[str, float]]]] = [
        (VERDICT, lambda each: LIMITED_BY.get(each[0].verdict(each[1].case_id) or "", "-"))
    ]
    for name, (head, text) in _NUMBERS.items():
        if any(name in numbers for _, _, numbers in cases):
            values.append((head, partial(_number_cell, name, text)))
    return tabulated(
        cases,
        labels,
        values,
        title="Evidence of the verdicts, by case",
        caption="Medians over repeats. A dash: not known, or not applicable.",
        key=lambda each: f"{each[0].label}\n{each[1].case_id}",
    )


def _number_cell(name: str, text: Callable[[float], str], judged: tuple[Source, Case, dict[str, float]]) -> Cell:
    value = judged[2].get(name)
    return Cell(text="-") if value is None else Cell(text=text(value), number=value)


def _medians(source: Source, case_id: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for record in source.records:
        if record.case_id == case_id and record.verdict:
            for name, value in record.verdict.evidence.items():
                if value is not None:
                    found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def repeat_tables(material: Material) -> list[Table]:
    """Return a table for each result set whose cases were repeated until they were precise."""
    several = len(material.sources) > 1
    return [table for source in material.sources if (table := _repeats(source, several=several)).rows]


def _repeats(source: Source, *, several: bool) -> Table:
    found = [(case, end) for case, end in source.procedures if isinstance(end, UntilConclusion)]
    metrics = list(dict.fromkeys(metric for _, end in found for metric in end.half_widths))
    wanted = next((case.procedure.settings["half_width"] for case, _ in found if case.procedure), 0.0)
    values: list[Column[tuple[Case, UntilConclusion]]] = [
        ("Repeats", lambda each: Cell(text=str(each[1].repeats), number=each[1].repeats)),
        *((metric_title(metric), partial(_width, metric)) for metric in metrics),
        ("Stopped by", lambda each: each[1].stopped_by),
    ]
    return tabulated(
        found,
        [("Case", lambda each: case_name(each[0]))],
        values,
        title=f"Repeats until precise{f': {source.label}' if several else ''}",
        caption=f"Half the width of the 95 % confidence interval; target: {100 * wanted:g} % for every metric. "
        "Stopped by: precise, the maximum of repeats, the time budget, or no result.",
        key=lambda each: f"{source.label}\n{each[0].case_id}",
    )


def _width(metric: str, repeated: tuple[Case, UntilConclusion]) -> Cell:
    share = repeated[1].half_widths.get(metric)
    return Cell(text="-") if share is None else Cell(text=f"{100 * share:.2g} %", number=share)


POOLED = ("bandwidth", *RATES, "completion_latency_ns_p99", "response_latency_ns_p99")


def session_tables(material: Material) -> list[Table]:
    """Return a table for each system that has several sessions."""
    groups = [group for group in material.sessions if len(group) > 1 and not material.paired_sets]
    return [table for group in groups if (table := _pooled(group, material)).rows]


def _pooled(sources: Sequence[Source], material: Material) -> Table:
    labels = [source.label for source in sources]
    runs = material.run_metrics.filter(pl.col("result_set").is_in(labels), pl.col("metric").is_in(POOLED))
    names = {case.case_id: case_name(case) for case in sources[0].cases}
    return tabulated(
        pooled(each_load(runs)).to_dicts(),
        [
            ("Case", lambda row: names.get(row["case_id"], row["case_id"])),
            ("Metric", lambda row: metric_title(row["metric"])),
        ],
        [
            ("Value", lambda row: _pooled_cell(row["metric"], row["value"], row["low"], row["high"])),
            (
                "Between sessions",
                lambda row: Cell(text=f"{100 * row['session_deviation']:.1f} %", number=row["session_deviation"]),
            ),
        ],
        title=f"Pooled over {len(sources)} sessions: {sources[0].plan.target}",
        caption="Geometric mean over sessions. The 95 % confidence interval includes what varies between sessions; its "
        "relative standard deviation is in the last column.",
        key=lambda row: f"{sources[0].label}\n{row['case_id']}",
    )


def _pooled_cell(metric: str, value: float, low: float | None, high: float | None) -> Cell:
    """Return a value with its interval, however wide."""
    ends = "" if low is None or high is None else f"{metric_text(metric, low)} .. {metric_text(metric, high)}"
    return Cell(text=metric_text(metric, value), interval=ends, number=value)


MOMENTS = 6
"""Columns of a table: the start, the end, and evenly spaced times between them."""

MOST_TABLES = 6

_BYTES = ("bytes", "size", "mem-tables", "usage", "capacity", "mem", "size_bytes")


def statistics_tables(material: Material) -> list[Table]:
    """Return a table for the first run of each part and store, and of several cases the one with the most threads."""
    chosen = [(source, record) for source in material.sources for record in _chosen(source)][:MOST_TABLES]
    return [
        table for source, record in chosen if (table := _statistics(source, record, named=len(material.sources) > 1))
    ]


def _chosen(source: Source) -> list[Record]:
    busiest: dict[tuple[str, str], Record] = {}
    names = names_where(lambda description: description.has_statistics)
    for record in (each for name in names for each in source.complete_of(name)):
        workload = record.spec["workload"]
        key = (record.part, (workload.get("store") or workload["server"])["kind"])
        if key not in busiest or _threads(record) > _threads(busiest[key]):
            busiest[key] = record
    return list(busiest.values())


def _threads(record: Record) -> int:
    return sum(stream["jobs"] for stream in streams_of(record.spec["workload"]))


def _statistics(source: Source, record: Record, *, named: bool) -> Table | None:
    text = f"SELECT * FROM store_statistics WHERE run_id = '{record.run_id}' AND phase = 'measure'"
    frame = source.results.sql(text).sort("interval")
    store = (record.result or {}).get("store") or record.server or {}
    start: Mapping[str, int] = store.get("statistics_at_start") or {}
    ends = frame["end_ns"].unique().sort().to_list()
    if not start or not ends:
        return None
    moments = spread(ends)
    origin = (record.result or {})["begin_ns"]
    rows = []
    for name in sorted(set(frame["statistic"])):
        known = dict(frame.filter(pl.col("statistic") == name).select("end_ns", "value").iter_rows())
        values = [start.get(name), *(known.get(moment) for moment in moments)]
        if any(values):
            rows.append([Cell(text=name), *(_statistic_cell(name, value) for value in values)])
    if not rows:
        return None
    label = f"{source.label}: " if named else ""
    times = [format_duration(moment - origin) for moment in moments]
    return Table(
        title=f"{label}Statistics of {_called(store)}: {record.case_id}",
        caption=f"Its own counters in run {record.run_id}, by its own names, at the start of the measurement and "
        "later, without those that stayed 0. Every interval is in the table `store_statistics`.",
        heads=["Statistic", "start", *times],
        labels=1,
        rows=rows,
    )


def _called(store: Mapping[str, str]) -> str:
    """Name and version; some stores begin their version with their name."""
    name = store_name(store["kind"])
    version = store["version"].partition(": (")[0].partition(" (")[0]
    return version if version.startswith(name) else f"{name} {version}"


def spread(ends: Sequence[int]) -> list[int]:
    """Return the times of the columns after the start: the last one, and evenly spaced ones before it."""
    steps = min(MOMENTS - 1, len(ends))
    return [ends[round((number + 1) * len(ends) / steps) - 1] for number in range(steps)]


def _statistic_cell(name: str, value: int | None) -> Cell:
    if value is None:
        return Cell(text="-")
    last = name.rpartition(".")[2]
    if name.endswith(".micros"):
        return Cell(text=format_duration(value * 1000), number=value)
    if name.endswith("_ns"):
        return Cell(text=format_duration(value), number=value)
    if any(last.endswith(word) for word in _BYTES) or ".bytes." in name:
        return Cell(text=format_bytes(value), number=value)
    return Cell(text=format_count(value), number=value)
