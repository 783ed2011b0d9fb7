"""Limiting factor of each run, and the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from iosonde.report.content.table import LIMITED_BY, VERDICT, Cell, Table
from iosonde.report.material.result_sets import Material, Source
from iosonde.results.schema import Record
from iosonde.units import format_latency

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

    several = len(material.sources) > 1
    rows = []
    for source in material.sources:
        records = [record for of, record in judged if of is source and record.verdict]
        for kind in KINDS:
            having = [record for record in records if record.verdict and record.verdict.kind == kind]
            if having:
                label = [Cell(text=source.label)] if several else []
                share = Cell(text=f"{len(having)} of {len(records)}", number=len(having))
                rows.append([*label, Cell(text=kind), share, Cell(text=MEANING[kind]), Cell(text=_codes(having))])
    heads = [*(["Result set"] if several else []), "Verdict", "Runs", "Meaning", "Warnings"]
    return Table(
        title="Verdicts",
        caption=EXPLANATION,
        heads=heads,
        labels=len(heads),
        rows=rows,
    )


def _codes(records: list[Record]) -> str:
    """Name the warnings that decide, with the number of runs that have them."""
    from iosonde.verdict.rules import rules

    counts = Counter(warning.code for record in records for warning in record.warnings)
    listed = [f"{code} ({n})" for code, n in counts.most_common() if code in rules()]
    return ", ".join(listed) or "-"


def _evidence(material: Material) -> Table:
    several = len(material.sources) > 1
    cases = [(source, case, _medians(source, case.case_id)) for source, case in material.cases()]
    cases = [each for each in cases if each[2]]
    names = [name for name in _NUMBERS if any(name in numbers for _, _, numbers in cases)]
    rows = [
        [
            *([Cell(text=source.label)] if several else []),
            Cell(text=case.case_id),
            Cell(text=LIMITED_BY.get(source.verdict(case.case_id) or "", "-")),
            *(_cell(name, numbers.get(name)) for name in names),
        ]
        for source, case, numbers in cases
    ]
    return Table(
        title="Evidence of the verdicts, by case",
        caption="Medians over repeats. A dash: not known, or not applicable.",
        heads=[*(["Result set"] if several else []), "Case", VERDICT, *(_NUMBERS[name][0] for name in names)],
        labels=2 if several else 1,
        rows=rows,
        keys=[f"{source.label}\n{case.case_id}" for source, case, _ in cases],
    )


def _medians(source: Source, case_id: str) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for name, value in _numbers(source, case_id):
        found.setdefault(name, []).append(value)
    return {name: median(values) for name, values in found.items()}


def _numbers(source: Source, case_id: str) -> Iterator[tuple[str, float]]:
    for record in source.records:
        if record.case_id == case_id and record.verdict:
            yield from ((name, value) for name, value in record.verdict.evidence.items() if value is not None)


def _cell(name: str, value: float | None) -> Cell:
    return Cell(text="-") if value is None else Cell(text=_NUMBERS[name][1](value), number=value)
