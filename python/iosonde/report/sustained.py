"""Tables of parts with rounds: convergence with the calculation of the window, and the figures taken out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.analysis.convergence import Convergence, Tracked, convergences, window_means
from iosonde.report.material import Material, Source
from iosonde.report.quantities import factor_title, is_number, level_text, metric_text, metric_title
from iosonde.report.tables import Cell, Table
from iosonde.study.model import Part

METRICS = (
    "iops",
    "bandwidth",
    "completion_latency_ns_mean",
    "completion_latency_ns_p99",
    "completion_latency_ns_p99_999",
    "completion_latency_ns_max",
)


def tables(material: Material) -> list[Table]:
    """Return both tables of each part with rounds and each result set."""
    found = [
        table
        for source in material.sources
        for part in material.study.parts
        if part.rounds
        for table in _of_part(part, source, material)
    ]
    return [table for table in found if table.rows]


def _of_part(part: Part, source: Source, material: Material) -> Iterator[Table]:
    runs = material.run_metrics.filter(pl.col("result_set") == source.label)
    cases = source.results.cases
    found = convergences(part, cases, runs)
    of = f" of {source.label}" if len(material.sources) > 1 else ""
    if any(each.sought for each in found):
        yield _convergence(part, found, of)
    if found and part.rounds and (len(found[0].case_ids) > 1 or part.rounds.factors):
        yield _window(part, window_means(part, cases, runs, METRICS), of)


def _convergence(part: Part, found: list[Convergence], of: str) -> Table:
    assert part.rounds, "a part with rounds"
    metric = part.rounds.metric
    heads = [
        *(factor_title(name) for name in [*part.factors, *part.rounds.factors]),
        *("Pass", "Rounds", "Window", "Steady", "Average", "Range", "Range allowed", "Slope x rounds", "Slope allowed"),
        *("Linear fit", "All rounds"),
    ]
    rows = [_convergence_row(part, each, tracked, metric) for each in found for tracked in each.tracked]
    return Table(
        title=f"Convergence: {part.title or part.name}{of}",
        caption=f"Tracking variable: {metric_title(metric)}. Steady state needs both excursions to be within what is "
        "allowed, for all tracking variables in the same window; x is the number of the round.",
        heads=heads,
        labels=len(part.factors) + len(part.rounds.factors),
        rows=rows,
    )


def _convergence_row(part: Part, each: Convergence, tracked: Tracked, metric: str) -> list[Cell]:
    assert part.rounds, "a part with rounds"
    window = tracked.window
    series = " ".join(metric_text(metric, value) for value in tracked.values)
    labels = [*_levels(part.factors, each.levels), *_levels(part.rounds.factors, tracked.levels)]
    verdict = "yes" if each.achieved else "not achieved"
    counted = [Cell(text=str(each.repeat), number=each.repeat), Cell(text=str(each.rounds), number=each.rounds)]
    if window is None:
        return [*labels, *counted, Cell(text="-"), Cell(text=verdict), *[Cell(text="-")] * 6, Cell(text=series)]
    figures = [window.mean, window.range, window.range_allowed, window.drift, window.drift_allowed]
    return [
        *labels,
        *counted,
        Cell(text=f"{window.first}..{window.last}", number=window.last),
        Cell(text=verdict),
        *(Cell(text=metric_text(metric, value), number=value) for value in figures),
        Cell(text=window.line),
        Cell(text=series),
    ]


def _window(part: Part, means: pl.DataFrame, of: str) -> Table:
    assert part.rounds, "a part with rounds"
    factors = [*part.factors, *part.rounds.factors]
    known = [name for name in METRICS if not means.is_empty() and name in set(means["metric"])]
    lines: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in means.to_dicts():
        lines.setdefault((*(row[name] for name in factors), row["repeat"]), {})[row["metric"]] = row["value"]
    several = len({key[-1] for key in lines}) > 1
    rows = [
        [
            *_levels(factors, dict(zip(factors, key, strict=False))),
            *([Cell(text=str(key[-1]), number=key[-1])] if several else []),
            *(Cell(text=metric_text(name, values.get(name)), number=values.get(name)) for name in known),
        ]
        for key, values in lines.items()
    ]
    return Table(
        title=f"Measurement window: {part.title or part.name}{of}",
        caption="Means over the rounds of the window; where steady state was not achieved, of the last one.",
        heads=[*(factor_title(name) for name in factors), *(["Pass"] if several else []), *map(metric_title, known)],
        labels=len(factors) + several,
        rows=rows,
    )


def _levels(factors: Any, levels: Mapping[str, Any]) -> list[Cell]:
    return [
        Cell(text=level_text(name, levels[name]), number=levels[name] if is_number(levels[name]) else None)
        if name in levels
        else Cell(text="-")
        for name in factors
    ]
