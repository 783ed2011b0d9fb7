"""Tables that a study asks for: metrics over factors, accounts, limits, improvements; every case with its metrics."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import polars as pl

from iosonde.data import reference_file
from iosonde.metrics import registry
from iosonde.metrics.registry import METRICS, named_among
from iosonde.plan import PREPARATION, Case
from iosonde.planning.procedure.condition import Judgement
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.report.material import (
    Material,
    Source,
    Subject,
    Values,
    device_state_column,
    durability_column,
    loop_text,
    medians_of,
    metric_title_of,
    not_steady,
    subjects,
)
from iosonde.report.quantities import factor_title, level_text, metric_title, named_value
from iosonde.report.sketch import ChartLayout, cited_values, reference_of, unique
from iosonde.report.table import (
    DASH,
    LIMITED_BY,
    REPEATS,
    SCOPE,
    VERDICT,
    Cell,
    Column,
    Table,
    cell_of,
    level_cell,
    metric_cell,
    tabulated,
)
from iosonde.study.model import Reference, View

RATES = ("bandwidth", *registry.RATES)
LATENCIES = [
    f"{kind}_latency_ns_{statistic}"
    for kind in ("completion", "response")
    for statistic in ("mean", "p50", "p99", "p99_9", "p99_99", "p99_999")
]
"""Latencies of the table of cases."""


def case_tables(material: Material) -> list[Table]:
    """Return every case with its metrics, a table for each part."""
    known = _summary(material)
    return [_case_table(part, material, known) for part in dict.fromkeys(case.part for _, case in material.cases())]


def search_tables(material: Material) -> list[Table]:
    """Return every search with its probes: what each measured, run by run, and whether the conditions held."""
    named = len(material.sources) > 1
    return [_search_table(source, found, named=named) for source, _, found in _searches(material)]


def _search_table(source: Source, found: SearchConclusion, *, named: bool) -> Table:
    probes = sorted(found.probes, key=lambda probe: probe.value)
    runs = [(probe, run, not number) for probe in probes for number, run in enumerate(probe.runs)]
    heads = [*found.settings.holds, *(f"also: {condition}" for condition in found.settings.also_check)]
    judged = [[*map(_judged, (*run.conditions, *run.also_checked))] or ["-"] * len(heads) for _, run, _ in runs]
    over = factor_title(found.settings.over)
    tried = [Cell(text=f"{probe.value:,.6g}" * is_first, number=probe.value) for probe, _, is_first in runs]
    return tabulated(
        f"{source.label}: " * named + f"Search of the highest {over.lower()}: {found.case_id}",
        [(over, tried)],
        [
            ("Verdict", [VERDICTS[probe.verdict] * is_first for probe, _, is_first in runs]),
            *((head, [each[place] for each in judged]) for place, head in enumerate(heads)),
        ],
        caption="Every value that was tried, and each of its runs. ✓ holds, ✗ fails, ? too few samples.",
        keys=[f"{source.label}\n{probe.case_id}" for probe, _, _ in runs],
    )


VERDICTS = {"holds": "holds", "fails": "fails", "undecided": "too few samples", "broken": "failed"}


def _judged(judgement: Judgement) -> str:
    sign = {True: "✓", False: "✗", None: "?"}[judgement.holds]
    return f"{sign} {judgement.text}"


def cross_table(view: View, material: Material) -> Table:
    """Lay a metric out over one factor downwards and, if the view has one, another across."""
    found = subjects(view, material)
    values = Values(material, view.y)
    layout = ChartLayout.for_view(view, found, material, surface=True)
    across = list(layout.series) or [metric_title(view.y)]
    rows: dict[tuple[str, Any], list[Subject]] = {}
    cells: dict[tuple[str, Any, str], Cell] = {}
    for subject in found:
        place = (layout.panel(subject.level, subject.source.label), subject.level(view.x))
        rows.setdefault(place, []).append(subject)
        column = level_text(view.series or "", subject.level(view.series)) if layout.series else across[0]
        cells[*place, column] = values.cell(subject)
    cases = [[(each.source, each.case) for each in row] for row in rows.values()]
    title = metric_title_of(view.y, found)
    steadiness = not_steady(view, material, itertools.chain(*cases))
    prefix = f"{factor_title(view.series or '')} " if layout.series else ""
    repeats = [max(values.estimate(each)[3] for each in row) for row in rows.values()]
    return tabulated(
        view.title,
        [
            ("", [panel for panel, _ in rows]) if any(panel for panel, _ in rows) else None,
            (factor_title(view.x or "case"), [level_cell(view.x or "", level) for _, level in rows]),
            device_state_column(material, cases),
        ],
        [
            *((f"{prefix}{column}", [cells.get((*place, column), DASH) for place in rows]) for column in across),
            (REPEATS, [cell_of(count) for count in repeats]),
        ],
        caption=_caption(view.caption or f"{title}.", medians_of(material, [view.y]), steadiness),
    )


def _rates(material: Material) -> list[str]:
    """Return the rates of the table of cases, and whatever a study of commands names."""
    return [*RATES, *named_among(material.summary["metric"].unique(), directed=False)]


_Summary = dict[tuple[str, str], dict[tuple[str, str], dict[str, dict[str, Any]]]]


def _summary(material: Material) -> _Summary:
    """Return the analysis' summary by case, stream and operation, and metric.

    The bandwidth of transactions, whose bytes are not known, is 0, and is no value.
    """
    names = [*_rates(material), *LATENCIES]
    known: _Summary = {}
    is_known = (pl.col("metric") != "bandwidth") | (pl.col("median") != 0)
    for row in material.summary.filter(pl.col("metric").is_in(names), is_known).to_dicts():
        case = known.setdefault((row["result_set"], row["case_id"]), {})
        case.setdefault((row["stream"], row["operation"]), {})[row["metric"]] = row
    return known


def _case_table(part: str, material: Material, known: _Summary) -> Table:
    cases = [(source, case) for source, case in material.cases() if case.part == part]
    factors = unique(name for _, case in cases for name in case.levels)
    lines = [
        (source, case, scope, found)
        for source, case in cases
        for scope, found in _scopes(known.get((source.label, case.case_id), {}))
    ]
    pairs = [(source, case) for source, case, _, _ in lines]
    named = [name for name in [*_rates(material), *LATENCIES] if any(name in found for *_, found in lines)]
    named = named or list(RATES[:2])
    judged = any(case.case_id in source.verdicts for source, case in cases)
    title = next((p.title for p in material.study.parts if p.name == part and p.title), part)
    return tabulated(
        _title(title, part, material),
        [
            material.label_column(source for source, _ in pairs),
            *((factor_title(name), [level_cell(name, case.levels.get(name)) for _, case in pairs]) for name in factors),
            (SCOPE, [scope for _, _, scope, _ in lines]) if len(lines) > len(cases) else None,
            device_state_column(material, ([pair] for pair in pairs)),
            durability_column(pairs),
            (VERDICT, [_verdict_cell(*pair) for pair in pairs]) if judged else None,
        ],
        [
            *((metric_title(name), [_cell(name, found.get(name)) for *_, found in lines]) for name in named),
            ("Loop", [_loop(*pair) for pair in pairs]),
            (REPEATS, [cell_of(max((each["repeats"] for each in found.values()), default=0)) for *_, found in lines]),
        ],
        caption=f"{medians_of(material, named)} A dash: too few samples, or no result.",
        keys=[source.key(case) for source, case in pairs],
    )


def _cell(metric: str, row: Mapping[str, Any] | None) -> Cell:
    return metric_cell(metric, row["median"], row["low"], row["high"]) if row else DASH


def _loop(source: Source, case: Case) -> str:
    spec = source.specs_by_case.get(case.case_id)
    return loop_text([spec]).removesuffix(" loop").removeprefix("loop ") if spec else ""


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


class _Account(NamedTuple):
    """A row of a table of accounts: a case with its values, or published ones."""

    levels: Sequence[str]
    source: str
    case: tuple[Source, Case] | None
    values: Sequence[Cell]
    repeats: Cell = DASH
    reason: str = ""


def accounts_table(view: View, material: Material) -> Table:
    """Lay several metrics out, of each case of a part, or the reason why it has none; no rows without any of both."""
    found = subjects(view, material)
    values = [Values(material, metric) for metric in view.metrics]
    factors = unique(name for subject in found for name in subject.case.levels)
    rows = []
    for each in found:
        count = max((known.estimate(each)[3] for known in values), default=0)
        rows.append(
            _Account(
                levels=[level_cell(name, each.level(name)).text for name in factors],
                source=_label(each.source, material),
                case=(each.source, each.case),
                values=[known.cell(each) for known in values],
                repeats=Cell(text=str(count or "-"), number=count),
                reason=each.source.no_value(each.case.case_id),
            )
        )
    has_reasons = any(row.reason for row in rows)
    if not has_reasons and all(cell.number is None for row in rows for cell in row.values):
        rows = []
    cited = _published(view, material, factors)
    # Rows of the same levels are below one another, in the order of the first of each.
    order = [row.levels for row in [*rows, *cited]]
    rows = sorted([*rows, *cited], key=lambda row: order.index(row.levels))
    return tabulated(
        view.title,
        [
            *((factor_title(name), [row.levels[place] for row in rows]) for place, name in enumerate(factors)),
            ("Source", [row.source for row in rows]) if len(material.sources) > 1 or cited else None,
            device_state_column(material, ([row.case] if row.case else [] for row in rows)),
            durability_column(row.case for row in rows),
        ],
        [
            *((metric_title(name), [row.values[place] for row in rows]) for place, name in enumerate(view.metrics)),
            (REPEATS, [row.repeats for row in rows]),
            ("No result because", [row.reason for row in rows]) if has_reasons else None,
        ],
        caption=_caption(view.caption, medians_of(material, view.metrics)),
        keys=[row.case[0].key(row.case[1]) if row.case else "" for row in rows],
    )


def _caption(*parts: str) -> str:
    return " ".join(filter(None, parts))


def _published(view: View, material: Material, factors: Sequence[str]) -> list[_Account]:
    """One row for each case that was published, in the order of the publication."""
    rows: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in cited_values(view, material):
        place = (row["label"], *(row.get(name) for name in factors))
        rows.setdefault(place, {})[row["metric"]] = row["value"]
    return [
        _Account(
            levels=[level_cell(name, level).text for name, level in zip(factors, levels, strict=True)],
            source=f"{label}, published" if label else "published",
            case=None,
            values=[metric_cell(metric, known.get(metric)) for metric in view.metrics],
        )
        for (label, *levels), known in rows.items()
    ]


MEASURED = "measured"


def limits_table(view: View, material: Material) -> Table:
    """Limits that a search found, between published ones, the highest first."""
    reference = _reference(view, material)
    own = [(_label(source, material), found) for source, part, found in _searches(material) if part == view.part]
    rows = [(row[reference.value], str(row[reference.label]), "published") for row in _published_rows(reference)]
    rows += [(found.value, label, MEASURED) for label, found in own if found.reached and found.value is not None]
    rows.sort(key=lambda row: (-row[0], row[2] != MEASURED))
    unknown = [(label, found.reason) for label, found in own if not found.reached or found.value is None]
    over = next(part.search.over for part in material.study.parts if part.name == view.part and part.search)
    return tabulated(
        view.title,
        [("Device", [label for label, _ in unknown] + [label for _, label, _ in rows])],
        [
            (factor_title(over), [*(DASH for _ in unknown), *(cell_of(value, _plain) for value, _, _ in rows)]),
            ("Source", [f"no limit found: {why}" for _, why in unknown] + [source for *_, source in rows]),
        ],
        caption=_caption(view.caption, f"Published: {reference.source}."),
    )


def improvements_table(view: View, material: Material) -> Table:
    """Published improvements of one device over another, below those of two result sets or of the levels of `x`."""
    reference = _reference(view, material)
    searched = any(part.search for part in material.study.parts if part.name == view.part)
    measured = _own_limits if searched else _own_levels if view.x else _own_values
    rows = list(measured(view, material))
    for row in _published_rows(reference):
        low, high = row[reference.value], row[reference.value_high or reference.value]
        improvement = Cell(text=_times(low) if low == high else f"{low:g} to {_times(high)}", number=high)
        rows.append((str(row[reference.label]), str(row[reference.against]), "-", DASH, improvement))
    what = "Highest passing value" if searched else metric_title(view.y)
    heads = ("Device", "Compared with", "Case", what, "Improvement")
    columns: list[Column] = [(head, [row[place] for row in rows]) for place, head in enumerate(heads)]
    return tabulated(
        view.title,
        columns[:3],
        columns[3:],
        caption=_caption(view.caption, f"Published: {reference.source}."),
    )


T = TypeVar("T")
_Improvement = tuple[str, str, str, Cell, Cell]
"""Device, what it is compared with, case, value and improvement."""


def _reference(view: View, material: Material) -> Reference:
    reference = reference_of(view, material)
    assert reference is not None, "the check of studies requires it"
    return reference


def _published_rows(reference: Reference) -> list[dict[str, Any]]:
    table = pl.read_csv(reference_file(reference.csv))
    return table.filter(*(pl.col(name) == value for name, value in reference.where.items())).to_dicts()


def _own_values(view: View, material: Material) -> Iterator[_Improvement]:
    """Each case over the same one in the baseline system, where two are compared."""
    values = Values(material, view.y)
    found = [(each, values.estimate(each)[0]) for each in subjects(view, material)]
    for subject, own in found:
        same = (subject.case.case_id, subject.stream, subject.operation)
        others = ((each.source, value) for each, value in found if each.key[1:] == same)
        base, before = _baseline(subject.source, others, material)
        case = ", ".join(level_text(name, level) for name, level in subject.case.levels.items())
        yield _label(subject.source, material), base, case, metric_cell(view.y, own), _gain(view, own, before)


def _baseline(source: Source, found: Iterable[tuple[Source, T]], material: Material) -> tuple[str, T | None]:
    """Return the label of the first result set of an earlier system with its value; a dash where there is none."""
    numbered = enumerate(material.systems)
    systems = {each.label: number for number, system in numbered for each in system.sources}
    own = systems.get(source.label, 0)
    return next(((each.label, value) for each, value in found if systems.get(each.label, 0) < own), ("-", None))


def _own_levels(view: View, material: Material) -> Iterator[_Improvement]:
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
                label = [subject.source.label] if len(material.sources) > 1 else []
                yield (
                    ": ".join([*label, str(subject.level(view.x))]),
                    level_text(view.x or "", base.level(view.x)),
                    ", ".join(named_value(factor_title(name), level_text(name, each)) for name, each in levels.items()),
                    metric_cell(view.y, own),
                    _gain(view, own, before),
                )


def _other_levels(subject: Subject, view: View) -> dict[str, Any]:
    return {name: level for name, level in subject.case.levels.items() if name != view.x}


def _gain(view: View, own: float | None, before: float | None) -> Cell:
    """The improvement of a value over another."""
    if not own or not before:
        return DASH
    metric = METRICS.get(view.y)
    return cell_of(before / own if metric is not None and metric.better == "lower" else own / before, _times)


def _own_limits(view: View, material: Material) -> Iterator[_Improvement]:
    searches = [(source, each) for source, part, each in _searches(material) if part == view.part]
    found = [(source, each.value) for source, each in searches if each.reached and each.value]
    for source, value in found:
        base, before = _baseline(source, found, material)
        ratio = value / before if before else None
        yield _label(source, material), base, "", cell_of(value, _plain), cell_of(ratio, _times)


def _searches(material: Material) -> Iterator[tuple[Source, str, SearchConclusion]]:
    """Yield every search with its result set and the name of its part."""
    for source in material.sources:
        for case, found in source.procedures:
            if isinstance(found, SearchConclusion):
                yield source, case.part, found


def _label(source: Source, material: Material) -> str:
    return source.label if len(material.sources) > 1 else MEASURED


def _times(ratio: float) -> str:
    return f"{ratio:.3g}×"


def _plain(value: float) -> str:
    return f"{value:,.4g}"
