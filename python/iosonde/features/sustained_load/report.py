"""Tables of sustained state: convergence of rounds with the calculation of the window, the figures taken out of it, and
long runs that are judged by rounds of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from iosonde.findings.device_state import Convergence, DeviceStates, Tracked, convergences, window_means
from iosonde.metrics.statistics import AUTOREGRESSIVE
from iosonde.metrics.sustained import LongRun
from iosonde.plan import DeviceState
from iosonde.report.material import Material, Source
from iosonde.report.quantities import factor_title, metric_text, metric_title
from iosonde.report.table import Cell, Table, level_cell, metric_cell
from iosonde.study.model import Part
from iosonde.units import format_bytes, format_duration

METRICS = (
    "iops",
    "bandwidth",
    "completion_latency_ns_mean",
    "completion_latency_ns_p99",
    "completion_latency_ns_p99_999",
    "completion_latency_ns_max",
)


def _tables(material: Material) -> list[Table]:
    """Return the tables of each part with rounds and each result set, then those of runs with rounds of their own."""
    found = [
        table
        for source in material.sources
        for part in material.study.parts
        if part.rounds
        for table in _of_part(part, source, material)
    ]
    found += [_of_long_runs(source, material) for source in material.sources]
    return [table for table in found if table.rows]


def _of_part(part: Part, source: Source, material: Material) -> Iterator[Table]:
    runs = material.run_metrics.filter(pl.col("result_set") == source.label)
    cases = source.results.cases
    found = convergences(part, cases, runs)
    of = f" of {source.label}" if len(material.sources) > 1 else ""
    if any(each.sought for each in found):
        yield _convergence(part, found, material.device_states[source.label], of)
    if found and part.rounds and (len(found[0].case_ids) > 1 or part.rounds.factors):
        yield _window(part, window_means(part, cases, runs, METRICS), of)


def _convergence(part: Part, found: list[Convergence], states: DeviceStates, of: str) -> Table:
    assert part.rounds, "a part with rounds"
    metric, hold = part.rounds.metric, part.rounds.hold
    closing = f", and in the {hold} that follow{'s' * (hold == 1)} at its level (closing check)" if hold else ""
    heads = [
        *(factor_title(name) for name in [*part.factors, *part.rounds.factors]),
        *("Pass", "Rounds", "Window", "Steady", "Average", "Range", "Range allowed", "Slope x rounds", "Slope allowed"),
        *("Linear fit", "All rounds"),
    ]
    rows = [_convergence_row(part, each, tracked, metric, states) for each in found for tracked in each.tracked]
    return Table(
        title=f"Convergence: {part.title or part.name}{of}",
        caption=f"Tracking variable: {metric_title(metric)}. Where the criterion is met, range and slope of all "
        f"tracking variables are within what is allowed, in one window{closing}; x is the number of the round.",
        heads=heads,
        labels=len(part.factors) + len(part.rounds.factors),
        rows=rows,
    )


def _convergence_row(part: Part, each: Convergence, tracked: Tracked, metric: str, states: DeviceStates) -> list[Cell]:
    assert part.rounds, "a part with rounds"
    window = tracked.window
    series = " ".join(metric_text(metric, value) for value in tracked.values)
    labels = [*_levels(part.factors, each.levels), *_levels(part.rounds.factors, tracked.levels)]
    verdict = "not achieved"
    if each.achieved:
        state = states.state(each.case_ids[-1], each.repeat)
        missing = f"still {each.trend}" if each.trend else "too few rounds" if each.hidden else "level not lasting"
        verdict = _steady_text(state) if each.lasts else f"criterion only, {missing}"
    counted = [Cell(text=str(each.repeat), number=each.repeat), Cell(text=str(each.rounds), number=each.rounds)]
    if window is None:
        return [*labels, *counted, Cell(text="-"), Cell(text=verdict), *[Cell(text="-")] * 6, Cell(text=series)]
    figures = [window.mean, window.range, window.range_allowed, window.drift, window.drift_allowed]
    return [
        *labels,
        *counted,
        Cell(text=f"{window.first}..{window.last}", number=window.last),
        Cell(text=verdict),
        *(metric_cell(metric, value) for value in figures),
        Cell(text=window.line),
        Cell(text=series),
    ]


def _steady_text(state: DeviceState) -> str:
    """Describe whether a stable rate is steady state of the device."""
    return "yes" if state in ("steady", "not_applicable") else f"rate only, device {state}"


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
            *(metric_cell(name, values.get(name)) for name in known),
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


def _of_long_runs(source: Source, material: Material) -> Table:
    """Every run that is judged by its own rounds: steady state, the plateau, the cliff before it."""
    of = f" of {source.label}" if len(material.sources) > 1 else ""
    states = material.device_states[source.label]
    return Table(
        title=f"Steady state within the runs{of}",
        caption="Rounds are gathered out of the intervals of a run; x is the number of the round. The window is the "
        "first that meets the criterion at the level of the end; where the run is not steady, the last one. The level "
        f"is the mean of the last quarter, with its 95 % confidence interval ({AUTOREGRESSIVE}); where the run is not "
        "steady, the mean of the last window. The write cliff ends the plateau after which the bandwidth of writes "
        "drops most; a dash: nothing dropped by a fifth. The active range is what the load addresses, of a whole drive "
        "its user capacity.",
        heads=[
            *("Case", "Pass", "Tracked", "Rounds", "Window", "Steady", "Criterion met", "Level", "Of the best round"),
            *("Range", "Range allowed", "Slope x rounds", "Slope allowed", "Linear fit", "Earlier level"),
            *("Cliff after", "Written until then", "In active ranges", "Written in all"),
        ],
        labels=1,
        rows=[[*row_of_run(each, states), *_in_ranges(each)] for each in source.long_runs],
        keys=[f"{source.label}\n{each.case_id}" for each in source.long_runs],
    )


def row_of_run(long_run: LongRun, states: DeviceStates) -> list[Cell]:
    """The cells of one run, without those about active ranges."""
    window = None if long_run.outcome == "stalled" else long_run.steady.measured or long_run.steady.latest
    metric = long_run.tracking
    counted = f"{long_run.steady.rounds} of {format_duration(long_run.round_s * 1e9)}"
    head = [
        Cell(text=long_run.case_id),
        Cell(text=str(long_run.repeat), number=long_run.repeat),
        Cell(text=metric_title(metric)),
        Cell(text=counted, number=long_run.steady.rounds),
    ]
    cliff = [Cell(text="-"), Cell(text="-")]
    if long_run.cliff_s is not None and long_run.cliff_bytes is not None:
        cliff = [
            Cell(text=format_duration(long_run.cliff_s * 1e9), number=long_run.cliff_s),
            Cell(text=format_bytes(long_run.cliff_bytes), number=long_run.cliff_bytes),
        ]
    if window is None:
        return [*head, Cell(text="-"), Cell(text=_steady_text_of(long_run, states)), *[Cell(text="-")] * 9, *cliff]
    level, left, first = long_run.level, long_run.steady.left, long_run.steady.first
    value = window.mean if long_run.steady.level is None else long_run.steady.level
    interval = (
        f"{metric_text(metric, level.low)} .. {metric_text(metric, level.high)}"
        if level and level.low is not None and level.high is not None
        else ""
    )
    fraction = long_run.fraction(value)
    figures = [window.range, window.range_allowed, window.drift, window.drift_allowed]
    return [
        *head,
        Cell(text=f"{window.first}..{window.last}", number=window.last),
        Cell(text=_steady_text_of(long_run, states)),
        Cell(text=f"rounds {first.first}..{first.last}" if first else "no", number=first.last if first else None),
        Cell(text=metric_text(metric, value), interval=interval, number=value),
        Cell(text=f"{100 * fraction:.0f} %", number=fraction),
        *(metric_cell(metric, value) for value in figures),
        Cell(text=window.line),
        Cell(text=_left_text(long_run), number=left),
        *cliff,
    ]


def _steady_text_of(long_run: LongRun, states: DeviceStates) -> str:
    if long_run.outcome == "steady":
        return _steady_text(states.state(long_run.case_id, long_run.repeat))
    texts = {
        "too short": "run too short",
        "stalled": "engine stalled",
        "falling": "still falling",
        "rising": "still rising",
    }
    return texts.get(long_run.outcome, "not achieved")


def _left_text(long_run: LongRun) -> str:
    """Level before the last step, and its end."""
    earlier = long_run.steady.earlier
    if earlier is None:
        return "no"
    level = metric_text(long_run.tracking, earlier.mean)
    return f"{level} until {format_duration(earlier.last * long_run.round_s * 1e9)}"


def _in_ranges(long_run: LongRun) -> list[Cell]:
    """Bytes written until the cliff and in total, as multiples of the addressed range."""
    if not long_run.range_bytes:
        return [Cell(text="-"), Cell(text="-")]
    shares = [each and each / long_run.range_bytes for each in (long_run.cliff_bytes, long_run.written_bytes)]
    return [Cell(text="-") if each is None else Cell(text=f"{each:.2f}", number=each) for each in shares]


def _levels(factors: Iterable[str], levels: Mapping[str, Any]) -> list[Cell]:
    return [level_cell(name, levels.get(name), missing="-") for name in factors]


TABLES = (_tables,)
