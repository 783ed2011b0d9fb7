"""Tables besides those of a study's views: requirements, verdicts, repeats, sessions and statistics of stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from statistics import median

import polars as pl

from iosonde.findings.comparison.sessions import pooled
from iosonde.findings.requirements import Result, Window, badness, overall, results_of
from iosonde.metrics.registry import RATES
from iosonde.metrics.scopes import each_load
from iosonde.metrics.verdict.rules import rules
from iosonde.metrics.verdict.verdict import KINDS
from iosonde.metrics.verdict.verdict import MEANING as MEANING_OF_VERDICTS
from iosonde.metrics.wording import margin_text, range_text
from iosonde.planning.procedure.until import UntilConclusion
from iosonde.report.material import Material, Source
from iosonde.report.quantities import case_name, metric_text, metric_title
from iosonde.report.table import LIMITED_BY, RESULT, VERDICT, Cell, Column, Table, cell_of, tabulated
from iosonde.results.schema import Record
from iosonde.study.workload import names_where, store_name, streams_of
from iosonde.units import format_bytes, format_count, format_duration, format_latency

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
    if not material.study.requirement:
        return []
    found = [(source, result) for source in material.sources for result in results_of(source.results)]
    results = [result for _, result in found]
    labels: list[Column | None] = [
        material.label_column(source for source, _ in found),
        (RESULT, [result.outcome for result in results]),
        (NAME, [result.requirement.name for result in results]),
        ("Case", [result.case_id for result in results]) if len({result.case_id for result in results}) > 1 else None,
    ]
    values: list[Column] = [
        ("Value", [_value(result) for result in results]),
        ("Limit", [Cell(text=result.limit_text, number=result.limit) for result in results]),
        ("Margin", [_margin(result) for result in results]),
        ("Interval", [_interval(result) for result in results]),
        ("Level", [result.requirement.level for result in results]),
    ]
    sources = [result.requirement.source for result in results]
    notes: list[Column] = [
        (REASON, [result.reason or "-" for result in results]),
        (MEANING, [result.requirement.means for result in results]),
        ("Source", [", ".join(filter(None, (s.title, s.publisher, s.version, s.address))) for s in sources]),
    ]
    wrong = any(record.has_wrong_data for source in material.sources for record in source.records)
    outcome = "FAIL" if wrong else overall(results).upper()
    return [
        tabulated(f"{outcome}: {TITLE}", labels, values, caption=CAPTION),
        tabulated(NOTES, labels, notes),
    ]


def _value(result: Result) -> Cell:
    return Cell(text=result.text(result.value), number=result.value)


def _margin(result: Result) -> Cell:
    return cell_of(result.margin, margin_text)


def windows_table(material: Material) -> Table | None:
    """Return the worst windows of requirements that each run must meet; None without any."""
    found = [
        (replace(result, outcome=window.outcome, value=window.value, margin=window.margin), window, source)
        for source in material.sources
        for result in results_of(source.results)
        for window in result.windows
    ]
    found.sort(key=lambda each: badness(each[0]))
    if not found:
        return None
    worst = found[:WORST]
    results, windows = [result for result, _, _ in worst], [window for _, window, _ in worst]
    starts = (datetime.fromisoformat(window.started_at) for window in windows)
    return tabulated(
        WINDOWS,
        [
            material.label_column(source for *_, source in worst),
            (START, [f"{start:%Y-%m-%d %H:%M:%S}" for start in starts]),
            (RESULT, [result.outcome for result in results]),
            (NAME, [result.requirement.name for result in results]),
        ],
        [
            ("Value", [_value(result) for result in results]),
            ("Margin", [_margin(result) for result in results]),
            (OBSERVED, [_observed(window) for window in windows]),
            ("Run", [window.run_id for window in windows]),
        ],
        caption=f"The worst {WORST} of {len(found):,}." if len(found) > WORST else "",
    )


def _observed(window: Window) -> str:
    """Write why a window is undecided and what else happened; a verdict with its reasons."""
    verdict, _, because = window.reason.partition(": ")
    reason = verdict if because in window.observed else window.reason
    return ": ".join(filter(None, (reason, "; ".join(window.observed)))) or "-"


def _interval(result: Result) -> str:
    if result.low is None and result.high is None:
        return "-"
    if result.high is None:
        return f"≥ {result.text(result.low)}"
    return range_text(result.text(result.low), result.text(result.high))


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
    "read_from_memory_share": ("Not requested from a device", _share),
    "written_to_memory_share": ("Not written to a device", _share),
    "other_bytes_share": ("Concurrent I/O", _share),
    "steal_share": ("Stolen CPU", _share),
    "temperature_celsius": ("Temperature", lambda value: f"{value:.0f} °C"),
}
"""Numbers of the table of cases: heads, and how they are written. Those that no run has are left out."""


def verdict_tables(material: Material) -> list[Table]:
    """Return how many runs each verdict has, and why; then the numbers of every case. Nothing without verdicts."""
    counts = _counts(material)
    return [counts, _evidence(material)] if counts.rows else []


def _counts(material: Material) -> Table:
    found = []
    for source in material.sources:
        judged = [(record, record.verdict.kind) for record in source.records if record.verdict]
        for kind in KINDS:
            if having := [record for record, verdict in judged if verdict == kind]:
                found.append((source, kind, having, Cell(text=f"{len(having)} of {len(judged)}", number=len(having))))
    return tabulated(
        "Verdicts",
        [
            material.label_column(source for source, *_ in found),
            ("Verdict", [kind for _, kind, _, _ in found]),
            ("Runs", [count for *_, count in found]),
            ("Meaning", [MEANING_OF_VERDICTS[kind] for _, kind, _, _ in found]),
            ("Warnings", [_codes(having) for _, _, having, _ in found]),
        ],
        [],
        caption=EXPLANATION,
    )


def _codes(records: list[Record]) -> str:
    """Name the warnings that decide, with the number of runs that have them."""
    counts = Counter(warning.code for record in records for warning in record.warnings)
    listed = [f"{code} ({n})" for code, n in counts.most_common() if code in rules()]
    return ", ".join(listed) or "-"


def _evidence(material: Material) -> Table:
    cases = [(source, case, _medians(source, case.case_id)) for source, case in material.cases()]
    cases = [each for each in cases if each[2]]
    return tabulated(
        "Evidence of the verdicts, by case",
        [
            material.label_column(source for source, _, _ in cases),
            ("Case", [case.case_id for _, case, _ in cases]),
        ],
        [
            (VERDICT, [LIMITED_BY.get(source.verdict(case.case_id) or "", "-") for source, case, _ in cases]),
            *(
                (head, [cell_of(numbers.get(name), text) for _, _, numbers in cases])
                for name, (head, text) in _NUMBERS.items()
                if any(name in numbers for _, _, numbers in cases)
            ),
        ],
        caption="Medians over repeats. A dash: not known, or not applicable.",
        keys=[source.key(case) for source, case, _ in cases],
    )


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
    return tabulated(
        f"Repeats until precise{f': {source.label}' if several else ''}",
        [("Case", [case_name(case) for case, _ in found])],
        [
            ("Repeats", [cell_of(end.repeats) for _, end in found]),
            *((metric_title(name), [_width(end.half_widths.get(name)) for _, end in found]) for name in metrics),
            ("Stopped by", [end.stopped_by for _, end in found]),
        ],
        caption=f"Half the width of the 95 % confidence interval; target: {100 * wanted:g} % for every metric. "
        "Stopped by: precise, the maximum of repeats, the time budget, or no result.",
        keys=[source.key(case) for case, _ in found],
    )


def _width(share: float | None) -> Cell:
    return cell_of(share, lambda share: f"{100 * share:.2g} %")


POOLED = ("bandwidth", *RATES, "completion_latency_ns_p99", "response_latency_ns_p99")


def session_tables(material: Material) -> list[Table]:
    """Return a table for each system that has several sessions."""
    groups = [group for group in material.sessions if len(group) > 1 and not material.paired_sets]
    return [table for group in groups if (table := _pooled(group, material)).rows]


def _pooled(sources: Sequence[Source], material: Material) -> Table:
    labels = [source.label for source in sources]
    runs = material.run_metrics.filter(pl.col("result_set").is_in(labels), pl.col("metric").is_in(POOLED))
    names = {case.case_id: case_name(case) for case in sources[0].cases}
    rows = pooled(each_load(runs)).to_dicts()
    deviations = [row["session_deviation"] for row in rows]
    return tabulated(
        f"Pooled over {len(sources)} sessions: {sources[0].plan.target}",
        [
            ("Case", [names.get(row["case_id"], row["case_id"]) for row in rows]),
            ("Metric", [metric_title(row["metric"]) for row in rows]),
        ],
        [
            ("Value", [_pooled_cell(row["metric"], row["value"], row["low"], row["high"]) for row in rows]),
            ("Between sessions", [cell_of(each, lambda share: f"{100 * share:.1f} %") for each in deviations]),
        ],
        caption="Geometric mean over sessions. The 95 % confidence interval includes what varies between sessions; its "
        "relative standard deviation is in the last column.",
        keys=[f"{sources[0].label}\n{row['case_id']}" for row in rows],
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
    named = len(material.sources) > 1
    chosen = [(source, record) for source in material.sources for record in _chosen(source)][:MOST_TABLES]
    return [table for source, record in chosen if (table := _statistics(source, record, named=named))]


def _chosen(source: Source) -> list[Record]:
    busiest: dict[tuple[str, str], Record] = {}
    names = names_where(lambda description: description.has_statistics)
    complete = [each for each in source.records if each.outcome == "complete" and not each.control]
    for record in (each for name in names for each in complete if each.spec["workload"]["kind"] == name):
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
    known = {(name, end): value for name, end, value in frame.select("statistic", "end_ns", "value").iter_rows()}
    values = {
        name: [start.get(name), *(known.get((name, moment)) for moment in moments)]
        for name in sorted(set(frame["statistic"]))
    }
    rows = [
        [Cell(text=name), *(cell_of(each, partial(_statistic_text, name)) for each in found)]
        for name, found in values.items()
        if any(found)
    ]
    if not rows:
        return None
    return Table(
        title=f"{source.label}: " * named + f"Statistics of {_called(store)}: {record.case_id}",
        caption=f"Its own counters in run {record.run_id}, by its own names, at the start of the measurement and "
        "later, without those that stayed 0. Every interval is in the table `store_statistics`.",
        heads=["Statistic", "start", *(format_duration(moment - origin) for moment in moments)],
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


def _statistic_text(name: str, value: int) -> str:
    if name.endswith(".micros"):
        return format_duration(value * 1000)
    if name.endswith("_ns"):
        return format_duration(value)
    last = name.rpartition(".")[2]
    is_size = any(last.endswith(word) for word in _BYTES) or ".bytes." in name
    return format_bytes(value) if is_size else format_count(value)
