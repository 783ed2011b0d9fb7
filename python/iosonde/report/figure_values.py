"""Values of figures as tables: the summary card of a study, and the values below each figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from iosonde.metrics.registry import find
from iosonde.plan import Case
from iosonde.report.figure import Figure
from iosonde.report.material import (
    Material,
    Source,
    Subject,
    Values,
    differing_durability,
    has_device_state,
    medians_of,
    state_text,
)
from iosonde.report.quantities import interval_text, level_text, metric_title
from iosonde.report.table import DEVICE_STATE, LIMITED_BY, REPEATS, VERDICT, Cell, Table
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
    if card is None and figures and not differing_durability(material, figures[0].part):
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
    if described(spec).io != "blocks" or len(spec["streams"]) != 1:
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


MOST_VALUES = 300
"""A longer table is of no use to a reader; the CSV of the figure has every row."""
PERCENTILES = (0.301, 1.0, 2.0, 3.0, 4.0, 5.0)
"""Nines of the percentiles in a table of percentile curves: 50 %, 90 %, 99 % and so on."""


def figure_table(figure: Figure) -> Table | None:
    """Return the values of a figure, or nothing where it shows runs over time."""
    makers: Mapping[str, Callable[[Figure], Table | None]] = {
        "lines": _pivoted,
        "bars": _pivoted,
        "heatmap": _pivoted,
        "points": _pivoted,
        "percentiles": _percentiles,
        "tradeoff": _listed,
    }
    make = makers.get(figure.kind)
    table = make(figure) if make else None
    return table if table and 0 < len(table.rows) <= MOST_VALUES else None


def _pivoted(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    rows = figure.rows.to_dicts()
    rows = [row | {"series": f"{row['series']}, {row['role']}"} if "role" in row else row for row in rows]
    several = len({row["source"] for row in rows}) > 1
    across = list(dict.fromkeys(row["series"] for row in rows))
    for row in rows:
        source = row["source"] if several and row["source"] != row["series"] else ""
        cells.setdefault((row["panel"], row["x_text"], source), {})[row["series"]] = _value_cell(row)
    return _table(figure, cells, [_series_head(figure, name) for name in across], across)


def _percentiles(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    several = figure.rows["source"].n_unique() > 1
    heads: dict[str, str] = {}
    for row in figure.rows.to_dicts():
        nines = next((each for each in PERCENTILES if abs(row["x"] - each) < 1e-3), None)
        if nines is not None and row["y"] is not None:
            heads[str(nines)] = row["x_text"]
            source = row["source"] if several and row["source"] != row["series"] else ""
            cells.setdefault((row["panel"], row["series"], source), {})[str(nines)] = _value_cell(row)
    known = sorted(heads, key=float)
    return _table(figure, cells, [heads[name] for name in known], known, down=figure.series_title)


def _listed(figure: Figure) -> Table:
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for row in figure.rows.to_dicts():
        place = (" · ".join(filter(None, [row["panel"], row["series"]])), row.get("label") or "", row["source"])
        cells[place] = {"x": Cell(text=row["x_text"], number=row["x"]), "y": _value_cell(row)}
    if len({source for _, _, source in cells}) == 1:
        cells = {(panel, label, ""): found for (panel, label, _), found in cells.items()}
    return _table(figure, cells, [figure.x_title, _metric_title(figure)], ["x", "y"], down=figure.step_title)


def _table(
    figure: Figure,
    cells: Mapping[tuple[str, str, str], Mapping[str, Cell]],
    heads: list[str],
    across: list[str],
    *,
    down: str = "",
) -> Table:
    panelled = any(panel for panel, _, _ in cells)
    sourced = any(source for _, _, source in cells)
    labels = [*(["Panel"] if panelled else []), down or figure.x_title or "Case", *(["Source"] if sourced else [])]
    return Table(
        title=f"{figure.title}: values",
        caption=" ".join(
            filter(None, [f"{_metric_title(figure)}.", f"{figure.intervals}." if figure.intervals else ""])
        ),
        heads=[*labels, *heads, REPEATS],
        labels=len(labels),
        rows=[
            [
                *([Cell(text=panel)] if panelled else []),
                Cell(text=level),
                *([Cell(text=source)] if sourced else []),
                *(found.get(name, Cell(text="-")) for name in across),
                _repeats(figure, panel, level, source),
            ]
            for (panel, level, source), found in cells.items()
        ],
    )


def _repeats(figure: Figure, panel: str, level: str, source: str) -> Cell:
    """Return the number of values behind the medians of a row."""
    counts = [
        row["repeats"]
        for row in figure.rows.to_dicts()
        if row["repeats"]
        and row["panel"] == panel
        and level in (row["x_text"], row["series"], row.get("label"))
        and source in ("", row["source"])
    ]
    return Cell(text=str(max(counts)), number=max(counts)) if counts else Cell(text="-")


def _value_cell(row: Mapping[str, Any]) -> Cell:
    if row["y"] is None:
        return Cell(text="-")
    text, _, interval = row["text"].removesuffix(" (published)").partition(" [")
    return Cell(text=f"{text} {row['mark']}".strip(), interval=interval.rstrip("]"), number=row["y"])


def _series_head(figure: Figure, name: str) -> str:
    """Name a column: numbers need the name of their factor."""
    if not name:
        return _metric_title(figure)
    return f"{figure.series_title} {name}" if name[:1].isdigit() and figure.series_title else name


def _metric_title(figure: Figure) -> str:
    from iosonde.report.quantities import metric_title

    return metric_title(figure.metric) if figure.metric else "Value"
