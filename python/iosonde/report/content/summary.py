"""The summary card: what people quote of a device, or the headline table of a study.

Of studies of plain block I/O these are sequential and random reads and writes, with one I/O in flight and with many.
Of others it is the study's own first table, or the best value of every panel of its first figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from iosonde.metrics.registry import find
from iosonde.plan import Case
from iosonde.report.charts.figure import Figure
from iosonde.report.content.table import DEVICE_STATE, LIMITED_BY, REPEATS, VERDICT, Cell, Table
from iosonde.report.material.device_states import has_device_state, state_text
from iosonde.report.material.durability import differing
from iosonde.report.material.intervals import medians_of
from iosonde.report.material.quantities import interval_text, level_text, metric_title
from iosonde.report.material.result_sets import Material, Source
from iosonde.report.material.subjects import Subject, Values
from iosonde.workload import described

TITLE = "Summary"
MOST_ROWS = 14
VALUES = 5
"""Columns of values in the summary, of a study's own table the first."""
_PLAIN = {"operation", "direction", "access", "queue_depth", "jobs", "block_size", "read_fraction", "load"}
"""Factors that a summary of plain block I/O covers."""
_MEDIAN_AND_TAIL = {"p50": 0.301, "p99": 2.0}
"""Percentiles of the summary, by their nines."""
_RATES = {"sequential": "bandwidth", "random": "iops"}


def summary(material: Material, own: Sequence[Table], figures: Sequence[Figure]) -> Table | None:
    """Return the card; `own` are the tables that the study requires."""
    card = _plain_card(material)
    short = next((table for table in own if 0 < len(table.rows) <= MOST_ROWS), None)
    if card is None and short is not None:
        card = _first_columns(short)
        left_out = len(short.heads) - len(card.heads)
        more = "The complete table, below, has more columns." if left_out else ""
        caption = " ".join(filter(None, (f"{short.title}.", short.caption, more)))
        card = replace(card, caption=caption, columns_left_out=left_out)
    if card is None and figures and not differing(material, figures[0].part):
        of_percentiles = figures[0].kind == "percentiles"
        card = _median_and_tail(figures[0]) if of_percentiles else _best_values(figures[0], material)
    return None if card is None else _judged(card)


def _judged(table: Table) -> Table:
    """Leave out the column of verdicts where no row has one."""
    places = [place for place, head in enumerate(table.heads) if head == VERDICT]
    if not places or any(row[places[0]].text != "-" for row in table.rows):
        return table
    kept = [place for place in range(len(table.heads)) if place != places[0]]
    return replace(
        table,
        heads=[table.heads[place] for place in kept],
        labels=table.labels - 1,
        rows=[[row[place] for place in kept] for row in table.rows],
    )


def _first_columns(table: Table) -> Table:
    """Return the first columns of a table, which fit a page side by side."""
    last = len(table.heads) - 1
    places = [*range(table.labels + VALUES), *([last] if table.heads[last] == REPEATS else [])]
    kept = [place for place in dict.fromkeys(places) if place <= last]
    return replace(
        table,
        heads=[table.heads[place] for place in kept],
        rows=[[row[place] for place in kept] for row in table.rows],
    )


def _plain_card(material: Material) -> Table | None:
    rates = {name: Values(material, metric) for name, metric in _RATES.items()}
    medians, tails = (Values(material, f"completion_latency_ns_{each}") for each in ("p50", "p99"))
    several = len(material.sources) > 1
    loads = {source.label: _loads(source) for source in material.sources}
    shown = ((s, case) for s in material.sources for cases in loads[s.label].values() for case in cases)
    with_state = has_device_state(material, shown)
    rows, keys = [], []
    for source in material.sources:
        for (access, operation), cases in loads[source.label].items():
            ordered = sorted(cases, key=_in_flight)
            for case in dict.fromkeys([0, len(ordered) - 1]):
                chosen = ordered[case]
                rate = rates[access].estimate(Subject(source=source, case=chosen))
                if rate[0] is None:
                    continue
                size = level_text("block_size", chosen.parameters["block_size"])
                latencies = [each.estimate(Subject(source=source, case=chosen)) for each in (medians, tails)]
                rows.append(
                    [
                        *([Cell(text=source.label)] if several else []),
                        Cell(text=f"{access.capitalize()} {operation}, {size}"),
                        Cell(text=_depth(chosen), number=_in_flight(chosen)),
                        *([Cell(text=state_text(material, [(source, chosen)]))] if with_state else []),
                        Cell(text=LIMITED_BY.get(source.verdict(chosen.case_id) or "", "-")),
                        _cell(_RATES[access], rate),
                        *(_cell("completion_latency_ns", value) for value in latencies),
                        Cell(text=str(rate[3]), number=rate[3]),
                    ]
                )
                keys.append(f"{source.label}\n{chosen.case_id}")
    if len(rows) < 2:
        return None
    state = [DEVICE_STATE] if with_state else []
    labels = [*(["Result set"] if several else []), "Load", "In flight", *state, VERDICT]
    return Table(
        title=TITLE,
        caption="Bandwidth of sequential I/O and IOPS of random I/O with the fewest and the most I/Os in flight. "
        f"{medians_of(material, list(_RATES.values()))} Closed loop.",
        heads=[*labels, "Bandwidth or IOPS", "Latency, p50", "Latency, p99", REPEATS],
        labels=len(labels),
        rows=rows,
        keys=keys,
    )


def _loads(source: Source) -> dict[tuple[str, str], list[Case]]:
    """Return the cases of each plain load, with one block size each: the one that people quote."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in source.cases:
        load = _load(source, case)
        if load is not None:
            found.setdefault(load, []).append(case)
    chosen = {}
    for access, operation in (("sequential", "read"), ("sequential", "write"), ("random", "read"), ("random", "write")):
        cases = found.get((access, operation), [])
        sizes = {case.parameters["block_size"] for case in cases}
        if sizes:
            size = _quoted(access, sizes)
            chosen[access, operation] = [case for case in cases if case.parameters["block_size"] == size]
    return chosen


def _load(source: Source, case: Case) -> tuple[str, str] | None:
    parameters = case.parameters
    if case.control or case.procedure or set(case.levels) - _PLAIN or not isinstance(parameters.get("block_size"), int):
        return None
    spec = source.specs_by_case[case.case_id]["workload"]
    if not described(spec).moves_blocks or len(spec["streams"]) != 1:
        return None
    stream = spec["streams"][0]
    if stream.get("arrival", {}).get("kind", "closed") != "closed":
        return None
    if stream["durability"]["kind"] == "flush":  # The latencies of this card are not those of durable writes.
        return None
    operation = {1.0: "read", 0.0: "write"}.get(parameters.get("read_fraction", 0.5))
    access = parameters.get("access", "random")
    return (access, operation) if operation and access in _RATES else None


def _quoted(access: str, sizes: set[int]) -> int:
    """Return 4 KiB of random I/O and the size nearest to 1 MiB of sequential I/O, or what is nearest to them."""
    wanted = 4096 if access == "random" else 1 << 20
    return min(sizes, key=lambda size: max(size, wanted) / min(size, wanted))


def _in_flight(case: Case) -> int:
    return int(case.parameters.get("jobs", 1)) * int(case.parameters.get("queue_depth", 1))


def _depth(case: Case) -> str:
    jobs = int(case.parameters.get("jobs", 1))
    depth = f"QD {case.parameters.get('queue_depth', 1)}"
    return f"{jobs} jobs, {depth}" if jobs > 1 else depth


def _cell(metric: str, value: tuple[float | None, float | None, float | None, int]) -> Cell:
    median, low, high, _ = value
    text, _, interval = interval_text(metric, median, low, high).partition(" [")
    return Cell(text=f"{text} IOPS" if metric == "iops" else text, interval=interval.rstrip("]"), number=median)


def _best_values(figure: Figure, material: Material) -> Table | None:
    """Return the highest rate, or the lowest latency, of each panel of a figure; of stacked bars the lowest whole."""
    known_metric = find(figure.metric)
    lowest = known_metric is not None and known_metric.better == "lower"
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in _values(figure):
        place = (row["source"], row["panel"])
        if row["y"] is None or row["published"]:
            continue
        # Of values equal to three digits the first, as in findings.
        value, known = (float(f"{each['y']:.3g}") for each in (row, best.get(place, row)))
        if place not in best or (value < known if lowest else value > known):
            best[place] = row
    # The lowest response latency is that of the lowest rate that was offered.
    is_trivial = figure.kind == "timeseries" or figure.metric.startswith("response_latency")
    if not best or len(best) > MOST_ROWS or is_trivial:
        return None
    several = len({source for source, _ in best}) > 1
    labels = [*(["Result set"] if several else []), "Load", VERDICT]
    title = metric_title(figure.metric)
    rows = []
    for (source, panel), row in best.items():
        text, _, interval = row["text"].partition(" [")
        at = [_named(figure.x_title, row["x_text"]), _named(figure.series_title, row["series"])]
        rows.append(
            [
                *([Cell(text=source)] if several else []),
                Cell(text=panel or "All cases"),
                Cell(text=LIMITED_BY.get(row["verdict"], "-")),
                Cell(text=text, interval=interval.rstrip("]"), number=row["y"]),
                Cell(text=str(row["repeats"] or "-"), number=row["repeats"]),
                Cell(text=", ".join(filter(None, at))),
            ]
        )
    return Table(
        title=TITLE,
        caption=f"{'Lowest' if lowest else 'Highest'} values of the figure “{figure.title}”. "
        f"{medians_of(material, [figure.metric])}",
        heads=[*labels, title, REPEATS, "At"],
        labels=len(labels),
        rows=rows,
    )


def _median_and_tail(figure: Figure) -> Table | None:
    """Return p50 and p99 of each curve of a figure of percentiles."""
    curves: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for row in figure.rows.to_dicts():
        shown = next((name for name, nines in _MEDIAN_AND_TAIL.items() if abs(row["x"] - nines) < 1e-3), None)
        if shown and row["y"] is not None:
            curves.setdefault((row["source"], row["panel"], row["series"]), {})[shown] = row
    if not curves or len(curves) > MOST_ROWS:
        return None
    several = len({source for source, *_ in curves}) > 1
    labels = [*(["Result set"] if several else []), "Load", VERDICT]
    rows = []
    for (source, panel, series), found in curves.items():
        load = " · ".join(filter(None, [panel, _named(figure.series_title, series)]))
        values = [found.get(name) for name in _MEDIAN_AND_TAIL]
        rows.append(
            [
                *([Cell(text=source)] if several else []),
                Cell(text=load or "All cases"),
                Cell(text=LIMITED_BY.get(next(iter(found.values()))["verdict"], "-")),
                *(Cell(text=row["text"], number=row["y"]) if row else Cell(text="-") for row in values),
            ]
        )
    title = metric_title(figure.metric)
    return Table(
        title=TITLE,
        caption=f"{title} of the figure “{figure.title}”; repeats are merged.",
        heads=[*labels, *(f"{title}, {name}" for name in _MEDIAN_AND_TAIL)],
        labels=len(labels),
        rows=rows,
    )


def _values(figure: Figure) -> list[dict[str, Any]]:
    """Return the rows of a figure with one value each: of stacked bars the whole bars."""
    rows = figure.rows.to_dicts()
    if figure.kind != "stack":
        return rows
    return [{**row, "y": row["total"], "text": row["total_text"], "series": ""} for row in rows if row["step"] == 0]


def _named(title: str, text: str) -> str:
    return f"{title.lower()} {text}" if text[:1].isdigit() else text
