"""Tables that a study asks for: metrics over factors, accounts, limits, improvements; every case with its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from iosonde.data import reference_file
from iosonde.metrics import registry
from iosonde.metrics.registry import METRICS, named_among
from iosonde.plan import PREPARATION, Case
from iosonde.report.material import (
    DURABILITY,
    Material,
    Source,
    Subject,
    Values,
    durability,
    has_device_state,
    loop_text,
    medians_of,
    not_steady,
    same_level,
    state_text,
    subjects,
)
from iosonde.report.quantities import factor_title, level_text, metric_title
from iosonde.report.sketch import reference_of
from iosonde.report.table import (
    DEVICE_STATE,
    LIMITED_BY,
    REPEATS,
    SCOPE,
    VERDICT,
    Cell,
    Table,
    count_cell,
    level_cell,
    metric_cell,
)
from iosonde.study.model import Reference, View

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
        title=f"{label}Search of the highest {factor_title(found.settings.over).lower()}: {found.case_id}",
        caption="Every value that was tried, and each of its runs. ✓ holds, ✗ fails, ? too few samples.",
        heads=[factor_title(found.settings.over), "Verdict", *found.conditions, *also],
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
    from iosonde.report.material import Values, metric_title_of, subjects
    from iosonde.report.sketch import ChartLayout

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
        down.setdefault(place, {})[column] = metric_cell(view.y, median, low, high)
        repeats.setdefault(place, []).append(count)
    panelled = any(panel for panel, _ in down)
    with_state = has_device_state(material, ((each.source, each.case) for each in found))
    rows = [
        [
            *([Cell(text=panel)] if panelled else []),
            level_cell(view.x or "", level),
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
        levels = [level_cell(name, case.levels.get(name)) for name in factors]
        where = [
            *([Cell(text=scope)] if scoped else []),
            *([Cell(text=state_text(material, [(source, case)]))] if with_state else []),
            *([Cell(text=survival[source.label, case.case_id] or "-")] if any(survival.values()) else []),
        ]
        values = [
            metric_cell(
                name, *(metrics[name][each] for each in ("median", "low", "high")) if name in metrics else (None,)
            )
            for name in (*rates, *latencies)
        ]
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
        *([DURABILITY] if any(survival.values()) else []),
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


def accounts_table(view: View, material: Material) -> Table:
    """Lay several metrics out, of each case of a part, or the reason why it has none; no rows without any of both."""
    found = subjects(view, material)
    values = {metric: Values(material, metric) for metric in view.metrics}
    factors = list(dict.fromkeys(name for subject in found for name in subject.case.levels))
    several = len(material.sources) > 1
    published = _published(view, material, factors)
    named = several or bool(published)
    survival = [durability(subject.source, subject.case.case_id) for subject in found]
    survives = [DURABILITY] if any(survival) else []
    reasons = [subject.source.no_value(subject.case.case_id) for subject in found]
    missing = ["No result because"] if any(reasons) else []
    state = [DEVICE_STATE] if has_device_state(material, ((each.source, each.case) for each in found)) else []
    rows = []
    for subject, reason, surviving in zip(found, reasons, survival, strict=True):
        row = [
            *(Cell(text=level_text(name, subject.level(name))) for name in factors),
            *([Cell(text=subject.source.label if several else "measured")] if named else []),
            *([Cell(text=state_text(material, [(subject.source, subject.case)]))] if state else []),
            *([Cell(text=surviving or "-")] if survives else []),
            *(metric_cell(metric, *known.estimate(subject)[:3]) for metric, known in values.items()),
            count_cell(max((known.estimate(subject)[3] for known in values.values()), default=0)),
            *([Cell(text=reason)] if missing else []),
        ]
        rows.append((f"{subject.source.label}\n{subject.case.case_id}", row))
    if not any(reasons) and not any(cell.number is not None for _, row in rows for cell in row[:-1]):
        rows = []
    own = len(factors) + bool(named)
    dash, empty = Cell(text="-"), Cell(text="")
    rows += [
        ("", [*row[:own], *(dash for _ in (*state, *survives)), *row[own:], dash, *(empty for _ in missing)])
        for row in published
    ]
    rows = _together(rows, of=len(factors))
    labels = [*map(factor_title, factors), *(["Source"] if named else []), *state, *survives]
    heads = [*labels, *map(metric_title, view.metrics), REPEATS, *missing]
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, medians_of(material, view.metrics)])),
        heads=heads,
        labels=len(labels),
        rows=[row for _, row in rows],
        keys=[key for key, _ in rows],
    )


def _together(rows: Sequence[tuple[str, list[Cell]]], *, of: int) -> list[tuple[str, list[Cell]]]:
    """Put rows whose first cells (levels) are alike below one another, in the order of the first of each."""
    alike: dict[tuple[str, ...], list[tuple[str, list[Cell]]]] = {}
    for key, row in rows:
        alike.setdefault(tuple(cell.text for cell in row[:of]), []).append((key, row))
    return [each for group in alike.values() for each in group]


def _published(view: View, material: Material, factors: Sequence[str]) -> list[list[Cell]]:
    """One row for each case that was published, in the order of the publication."""
    from iosonde.findings.published import published

    reference = reference_of(view, material)
    if reference is None:
        return []
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in published(reference).to_dicts():
        if all(name not in row or same_level(name, row[name], wanted) for name, wanted in view.where.items()):
            place = (row["label"], *(row.get(name) for name in factors))
            rows.setdefault(place, {})[row["metric"]] = row["value"]
    return [
        [
            *(Cell(text=level_cell(name, level).text) for name, level in zip(factors, levels, strict=True)),
            Cell(text=f"{label}, published" if label else "published"),
            *(metric_cell(metric, known.get(metric)) for metric in view.metrics),
        ]
        for (label, *levels), known in rows.items()
    ]


MEASURED = "measured"
_DASH = Cell(text="-")


def limits_table(view: View, material: Material) -> Table:
    """Limits that a search found, between published ones, the highest first."""
    reference = _reference(view, material)
    own = [(_label(source, material), found) for source, found in _searches(view, material)]
    rows = [(row[reference.value], str(row[reference.label]), "published") for row in _published_rows(reference)]
    rows += [(found.value, label, MEASURED) for label, found in own if found.reached and found.value is not None]
    unknown = [(label, found.reason) for label, found in own if not found.reached or found.value is None]
    over = next(part.search.over for part in material.study.parts if part.name == view.part and part.search)
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, f"Published: {reference.source}."])),
        heads=["Device", factor_title(over), "Source"],
        labels=1,
        rows=[
            *([Cell(text=label), Cell(text="-"), Cell(text=f"no limit found: {why}")] for label, why in unknown),
            *(
                [Cell(text=label), Cell(text=f"{value:,.4g}", number=value), Cell(text=source)]
                for value, label, source in sorted(rows, key=lambda row: (-row[0], row[2] != MEASURED))
            ),
        ],
    )


def improvements_table(view: View, material: Material) -> Table:
    """Published improvements of one device over another, below those of two result sets or of the levels of `x`."""
    reference = _reference(view, material)
    cited = [
        [
            *(Cell(text=str(row[column])) for column in (reference.label, reference.against)),
            _DASH,
            _DASH,
            _range(row, reference),
        ]
        for row in _published_rows(reference)
    ]
    searched = any(part.search for part in material.study.parts if part.name == view.part)
    measured = _own_limits if searched else _own_levels if view.x else _own_values
    what = "Highest passing value" if searched else metric_title(view.y)
    return Table(
        title=view.title,
        caption=" ".join(filter(None, [view.caption, f"Published: {reference.source}."])),
        heads=["Device", "Compared with", "Case", what, "Improvement"],
        labels=3,
        rows=[*measured(view, material), *cited],
    )


def _reference(view: View, material: Material) -> Reference:
    reference = reference_of(view, material)
    assert reference is not None, "the check of studies requires it"
    return reference


def _published_rows(reference: Reference) -> list[dict[str, Any]]:
    table = pl.read_csv(reference_file(reference.csv))
    return table.filter(*(pl.col(name) == value for name, value in reference.where.items())).to_dicts()


def _range(row: Mapping[str, Any], reference: Reference) -> Cell:
    low, high = row[reference.value], row[reference.value_high or reference.value]
    return Cell(text=_times(low) if low == high else f"{low:g} to {_times(high)}", number=high)


def _own_values(view: View, material: Material) -> Iterator[list[Cell]]:
    values, found = Values(material, view.y), subjects(view, material)
    for subject in found:
        own = values.estimate(subject)[0]
        others = [(each, values.estimate(each)[0]) for each in found if _is_baseline_of(each, subject, material)]
        base, before = others[0] if others else (None, None)
        yield [
            Cell(text=_label(subject.source, material)),
            Cell(text=base.source.label if base else "-"),
            Cell(text=", ".join(level_text(name, level) for name, level in subject.case.levels.items())),
            metric_cell(view.y, own),
            _gain(view, own, before),
        ]


def _own_levels(view: View, material: Material) -> Iterator[list[Cell]]:
    """The last level of the factor `x` over each other level, with the same levels of all other factors."""
    values, found = Values(material, view.y), subjects(view, material)
    part = next(part for part in material.study.parts if part.name == view.part)
    last = part.all_factors[view.x or ""][-1]
    for subject in found:
        own = values.estimate(subject)[0]
        if own is None or subject.level(view.x) != getattr(last, "label", last):
            continue
        levels = _other_levels(subject, view)
        for base in found:
            before = values.estimate(base)[0]
            if base is subject or base.source is not subject.source or before is None:
                continue
            if _other_levels(base, view) == levels:
                yield [
                    Cell(text=": ".join([*_label_of_several(subject.source, material), str(subject.level(view.x))])),
                    Cell(text=level_text(view.x or "", base.level(view.x))),
                    Cell(text=", ".join(_named_level(name, level) for name, level in levels.items())),
                    metric_cell(view.y, own),
                    _gain(view, own, before),
                ]


def _other_levels(subject: Subject, view: View) -> dict[str, Any]:
    return {name: level for name, level in subject.case.levels.items() if name != view.x}


def _named_level(name: str, level: Any) -> str:
    text = level_text(name, level)
    return f"{factor_title(name).lower()} {text}" if text[:1].isdigit() else text


def _label_of_several(source: Source, material: Material) -> list[str]:
    return [source.label] if len(material.sources) > 1 else []


def _gain(view: View, own: float | None, before: float | None) -> Cell:
    """The improvement of a value over another."""
    if not own or not before:
        return _DASH
    metric = METRICS.get(view.y)
    lower_is_better = metric is not None and metric.better == "lower"
    ratio = before / own if lower_is_better else own / before
    return Cell(text=_times(ratio), number=ratio)


def _own_limits(view: View, material: Material) -> Iterator[list[Cell]]:
    found = [(source, each.value) for source, each in _searches(view, material) if each.reached and each.value]
    systems = _systems(material)
    for source, value in found:
        number = systems.get(source.label, 0)
        base, before = next((each for each in found if systems.get(each[0].label, 0) < number), (None, None))
        ratio = value / before if before else None
        yield [
            Cell(text=_label(source, material)),
            Cell(text=base.label if base else "-"),
            Cell(text=""),
            Cell(text=f"{value:,.4g}", number=value),
            Cell(text=_times(ratio) if ratio else "-", number=ratio),
        ]


def _is_baseline_of(other: Subject, subject: Subject, material: Material) -> bool:
    """Return True if another line of evidence has the same case in the baseline system of the first one."""
    systems = _systems(material)
    same = (other.case.case_id, other.stream, other.operation) == (
        subject.case.case_id,
        subject.stream,
        subject.operation,
    )
    return same and systems.get(other.source.label, 0) < systems.get(subject.source.label, 0)


def _systems(material: Material) -> dict[str, int]:
    """The number of the system of each result set, where two are compared."""
    numbered = enumerate(material.systems)
    return {source.label: number for number, sources in numbered for source in sources}


def _searches(view: View, material: Material) -> list[tuple[Source, SearchConclusion]]:
    from iosonde.procedure.search import SearchConclusion

    return [
        (source, found)
        for source in material.sources
        for case, found in source.procedures
        if case.part == view.part and isinstance(found, SearchConclusion)
    ]


def _label(source: Source, material: Material) -> str:
    return source.label if len(material.sources) > 1 else MEASURED


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×"
