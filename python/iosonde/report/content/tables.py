"""Tables: every case with its metrics, and what a study asks to see laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.metrics import registry
from iosonde.metrics.registry import named_among
from iosonde.plan import PREPARATION, Case
from iosonde.report.content.table import DEVICE_STATE, LIMITED_BY, REPEATS, SCOPE, VERDICT, Cell, Table
from iosonde.report.material.device_states import has_device_state, not_steady, state_text
from iosonde.report.material.durability import HEAD, durability
from iosonde.report.material.intervals import medians_of
from iosonde.report.material.quantities import ends_text, factor_title, is_number, level_text, metric_text, metric_title
from iosonde.report.material.result_sets import Material, Source, loop_text
from iosonde.study.model import View

if TYPE_CHECKING:
    from iosonde.procedure.condition import Judgement
    from iosonde.procedure.search import SearchConclusion

RATES = ("bandwidth", *registry.RATES)
STATISTICS = ("mean", "p50", "p99", "p99_9", "p99_99", "p99_999")
"""Latencies of the table of cases."""


def case_tables(material: Material) -> list[Table]:
    """Return every case with its metrics, a table for each part."""
    known = _summary(material)
    return [
        _case_table(part, [(s, c) for s, c in material.cases() if c.part == part], material, known)
        for part in dict.fromkeys(case.part for _, case in material.cases())
    ]


def search_tables(material: Material) -> list[Table]:
    """Return every search with its probes: what each measured, run by run, and whether the conditions held."""
    from iosonde.procedure.search import SearchConclusion

    return [
        _search_table(source, found, named=len(material.sources) > 1)
        for source in material.sources
        for _, found in source.procedures
        if isinstance(found, SearchConclusion)
    ]


def _search_table(source: Source, found: SearchConclusion, *, named: bool) -> Table:
    rows, keys = [], []
    for probe in sorted(found.probes, key=lambda probe: probe.value):
        for number, run in enumerate(probe.runs):
            unmeasured: list[Judgement | None] = [None] * (len(found.conditions) + len(found.also_check))
            judged = [*run.conditions, *run.also_checked] or unmeasured
            first = Cell(text=f"{probe.value:,.6g}" if not number else "", number=probe.value)
            verdict = VERDICTS[probe.verdict] if not number else ""
            rows.append([first, Cell(text=verdict), *(Cell(text=_judged(each)) for each in judged)])
            keys.append(f"{source.label}\n{probe.case_id}")
    also = [f"also: {condition}" for condition in found.also_check]
    label = f"{source.label}: " if named else ""
    return Table(
        title=f"{label}Search of the highest {factor_title(found.over).lower()}: {found.case_id}",
        caption="Every value that was tried, and each of its runs. ✓ holds, ✗ fails, ? too few samples.",
        heads=[factor_title(found.over), "Verdict", *found.conditions, *also],
        labels=1,
        rows=rows,
        keys=keys,
    )


VERDICTS = {"holds": "holds", "fails": "fails", "undecided": "too few samples", "broken": "failed"}


def _judged(judgement: Judgement | None) -> str:
    if judgement is None:
        return "-"
    sign = {True: "✓", False: "✗", None: "?"}[judgement.holds]
    return f"{sign} {judgement.text}"


def cross_table(view: View, material: Material) -> Table:
    """Lay a metric out over one factor downwards and, if the view has one, another across."""
    from iosonde.report.charts.layout import ChartLayout
    from iosonde.report.material.subjects import Values, metric_title_of, subjects

    found = subjects(view, material)
    values = Values(material, view.y)
    layout = ChartLayout.for_view(view, found, material, surface=True)
    across = list(layout.series) or [metric_title(view.y)]
    down: dict[tuple[str, Any], dict[str, Cell]] = {}
    cases: dict[tuple[str, Any], list[tuple[Source, Case]]] = {}
    repeats: dict[tuple[str, Any], list[int]] = {}
    for subject in found:
        median, low, high, count = values.estimate(subject)
        place = (layout.panel(subject.level, subject.source.label), subject.level(view.x))
        column = level_text(view.series or "", subject.level(view.series)) if layout.series else across[0]
        cases.setdefault(place, []).append((subject.source, subject.case))
        down.setdefault(place, {})[column] = Cell(
            text=metric_text(view.y, median), interval=ends_text(view.y, low, high), number=median
        )
        repeats.setdefault(place, []).append(count)
    panelled = any(panel for panel, _ in down)
    with_state = has_device_state(material, ((each.source, each.case) for each in found))
    rows = [
        [
            *([Cell(text=panel)] if panelled else []),
            Cell(text=level_text(view.x or "", level), number=level if is_number(level) else None),
            *([Cell(text=state_text(material, cases[panel, level]))] if with_state else []),
            *(row.get(column, Cell(text="-")) for column in across),
            Cell(text=str(max(repeats[panel, level])), number=max(repeats[panel, level])),
        ]
        for (panel, level), row in down.items()
    ]
    title = metric_title_of(view.y, found)
    steadiness = not_steady(view, material, [(each.source, each.case) for each in found])
    heads = [f"{factor_title(view.series or '')} {column}" if layout.series else column for column in across]
    labels = [*([""] if panelled else []), factor_title(view.x or "case"), *([DEVICE_STATE] if with_state else [])]
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption or f"{title}.", medians_of(material, [view.y]), steadiness])),
        heads=[*labels, *heads, REPEATS],
        labels=len(labels),
        rows=rows,
    )


def _rates(material: Material) -> list[str]:
    """Return the rates of the table of cases, and whatever a study of commands names."""
    return [*RATES, *named_among(material.summary["metric"].unique(), directed=False)]


_Summary = dict[tuple[str, str], dict[tuple[str, str], dict[str, dict[str, Any]]]]


def _summary(material: Material) -> _Summary:
    """Return the analysis' summary by case, stream and operation, and metric.

    The bandwidth of transactions, whose bytes are not known, is 0, and is no value.
    """
    names = [*_rates(material), *(f"{kind}_latency_ns_{s}" for kind in ("completion", "response") for s in STATISTICS)]
    known: _Summary = {}
    is_known = (pl.col("metric") != "bandwidth") | (pl.col("median") != 0)
    for row in material.summary.filter(pl.col("metric").is_in(names), is_known).to_dicts():
        case = known.setdefault((row["result_set"], row["case_id"]), {})
        case.setdefault((row["stream"], row["operation"]), {})[row["metric"]] = row
    return known


def _case_table(part: str, cases: list[tuple[Source, Case]], material: Material, known: _Summary) -> Table:
    factors = list(dict.fromkeys(name for _, case in cases for name in case.levels))
    several_sets = len(material.sources) > 1
    loops = {
        (s.label, case_id): loop_text([spec]) for s in material.sources for case_id, spec in s.specs_by_case.items()
    }
    lines = [
        (source, case, scope, metrics)
        for source, case in cases
        for scope, metrics in _scopes(known.get((source.label, case.case_id), {}))
    ]
    scoped = len(lines) > len(cases)
    judged = any(case.case_id in source.verdicts for source, case in cases)
    with_state = has_device_state(material, cases)
    survival = {(source.label, case.case_id): durability(source, case.case_id) for source, case in cases}
    rates = [name for name in _rates(material) if any(name in metrics for _, _, _, metrics in lines)]
    latencies = [
        name
        for kind in ("completion", "response")
        for name in (f"{kind}_latency_ns_{statistic}" for statistic in STATISTICS)
        if any(name in metrics for _, _, _, metrics in lines)
    ]
    if not rates and not latencies:
        rates = list(RATES[:2])
    rows, keys = [], []
    for source, case, scope, metrics in lines:
        label = [Cell(text=source.label)] if several_sets else []
        levels = [_level_cell(name, case.levels.get(name)) for name in factors]
        where = [
            *([Cell(text=scope)] if scoped else []),
            *([Cell(text=state_text(material, [(source, case)]))] if with_state else []),
            *([Cell(text=survival[source.label, case.case_id] or "-")] if any(survival.values()) else []),
        ]
        values = [_value_cell(name, metrics.get(name)) for name in (*rates, *latencies)]
        repeats = max((row["repeats"] for row in metrics.values()), default=0)
        loop = Cell(text=loops.get((source.label, case.case_id), "").removesuffix(" loop"))
        verdict = [_verdict_cell(source, case)] if judged else []
        last = [loop, Cell(text=str(repeats), number=repeats)]
        rows.append([*label, *levels, *where, *verdict, *values, *last])
        keys.append(f"{source.label}\n{case.case_id}")
    titles = [
        *(["Result set"] if several_sets else []),
        *map(factor_title, factors),
        *([SCOPE] if scoped else []),
        *([DEVICE_STATE] if with_state else []),
        *([HEAD] if any(survival.values()) else []),
    ]
    title = next((p.title for p in material.study.parts if p.name == part and p.title), part)
    named = [*titles, *([VERDICT] if judged else [])]
    return Table(
        title=_title(title, part, material),
        caption=f"{medians_of(material, [*rates, *latencies])} A dash: too few samples, or no result.",
        heads=[*named, *map(metric_title, [*rates, *latencies]), "Loop", REPEATS],
        labels=len(named),
        rows=rows,
        keys=keys,
    )


def _title(title: str, part: str, material: Material) -> str:
    if part == PREPARATION:
        return "Preparation steps"
    return f"All cases: {title}" if len(material.study.parts) > 1 else "All cases"


def _scopes(metrics: dict[tuple[str, str], dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Return the rows of a case: each stream in total, then by operation if several; an empty one for a missing run.

    Streams are not added up: a sum of readers and writers is no rate of either.
    """
    if not metrics:
        return [("-", {})]
    streams = sorted({stream for stream, _ in metrics})
    if len(streams) > 1:
        streams = [stream for stream in streams if stream != "all"]
    rows = []
    for stream in streams:
        own = {operation: found for (of, operation), found in metrics.items() if of == stream}
        alone = {operation: found for operation, found in own.items() if operation != "all"}
        shown = own if len(alone) > 1 else alone or own
        for operation in sorted(shown, key=lambda operation: (operation != "all", operation)):
            rows.append((operation if len(streams) == 1 else f"{stream}: {operation}", shown[operation]))
    return rows


def _verdict_cell(source: Source, case: Case) -> Cell:
    """Name what limited most runs of a case, and below it the counts where runs differ."""
    counts = Counter(source.verdicts.get(case.case_id, []))
    differing = ", ".join(f"{LIMITED_BY[kind]} {count}" for kind, count in counts.items()) if len(counts) > 1 else ""
    return Cell(text=LIMITED_BY.get(source.verdict(case.case_id) or "", "-"), interval=differing)


def _level_cell(name: str, level: Any) -> Cell:
    number = float(level) if is_number(level) else None
    return Cell(text="" if level is None else level_text(name, level), number=number)


def _value_cell(metric: str, row: Mapping[str, Any] | None) -> Cell:
    if row is None:
        return Cell(text="-")
    interval = ends_text(metric, row["low"], row["high"])
    return Cell(text=metric_text(metric, row["median"]), interval=interval, number=row["median"])
