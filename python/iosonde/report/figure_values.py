"""Values of figures as tables: the summary card of a study, and the values below each figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    device_state_column,
    differing_durability,
    medians_of,
)
from iosonde.report.quantities import level_text, metric_title, named_value
from iosonde.report.table import (
    DASH,
    LIMITED_BY,
    REPEATS,
    VERDICT,
    Cell,
    Column,
    Table,
    cell_of,
    selected,
    tabulated,
)
from iosonde.study.workload import described

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
        last = len(short.heads) - 1
        first = range(min(short.labels + VALUES, last + 1))  # Those that fit a page side by side.
        card = selected(short, sorted({*first, *([last] if short.heads[last] == REPEATS else [])}))
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
    unknown = [place for place, head in enumerate(table.heads) if head == VERDICT]
    if any(row[place].text != "-" for row in table.rows for place in unknown):
        return table
    return selected(table, [place for place in range(len(table.heads)) if place not in unknown])


def _plain_card(material: Material) -> Table | None:
    rates = {access: Values(material, metric) for access, metric in _RATES.items()}
    tails = {each: Values(material, f"completion_latency_ns_{each}") for each in ("p50", "p99")}
    rows = []
    for source in material.sources:
        for (access, operation), cases in _loads(source).items():
            ordered = sorted(cases, key=_in_flight)
            for case in ordered[:1] + ordered[1:][-1:]:
                subject = Subject(source=source, case=case)
                if rates[access].estimate(subject)[0] is not None:
                    size = level_text("block_size", case.parameters["block_size"])
                    rows.append((subject, f"{access.capitalize()} {operation}, {size}", rates[access]))
    if len(rows) < 2:
        return None
    pairs = [(subject.source, subject.case) for subject, _, _ in rows]
    found = [(rate.cell(subject), " IOPS" * (rate.metric == "iops")) for subject, _, rate in rows]
    rates_of_rows = [replace(cell, text=f"{cell.text}{unit}") for cell, unit in found]
    return tabulated(
        TITLE,
        [
            material.label_column(source for source, _ in pairs),
            ("Load", [load for _, load, _ in rows]),
            ("In flight", [Cell(text=_depth(case), number=_in_flight(case)) for _, case in pairs]),
            device_state_column(material, ([pair] for pair in pairs)),
            (VERDICT, [LIMITED_BY.get(source.verdict(case.case_id) or "", "-") for source, case in pairs]),
        ],
        [
            ("Bandwidth or IOPS", rates_of_rows),
            *((f"Latency, {each}", [known.cell(subject) for subject, _, _ in rows]) for each, known in tails.items()),
            (REPEATS, [cell_of(rate.estimate(subject)[3]) for subject, _, rate in rows]),
        ],
        caption="Bandwidth of sequential I/O and IOPS of random I/O with the fewest and the most I/Os in flight. "
        f"{medians_of(material, list(_RATES.values()))} Closed loop.",
        keys=[source.key(case) for source, case in pairs],
    )


def _loads(source: Source) -> dict[tuple[str, str], list[Case]]:
    """Return the cases of each plain load, with one block size each: the one that people quote.

    None of a study of another workload, in which block I/O only shows what the device gives.
    """
    if any(described(spec["workload"]).io != "blocks" for spec in source.specs_by_case.values()):
        return {}
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
    at = [
        [named_value(figure.x_title, row["x_text"]), named_value(figure.series_title, row["series"])]
        for row in best.values()
    ]
    return tabulated(
        TITLE,
        _labels([(source, panel, row["verdict"]) for (source, panel), row in best.items()]),
        [
            (metric_title(figure.metric), [_plain_cell(row) for row in best.values()]),
            (REPEATS, [Cell(text=str(row["repeats"] or "-"), number=row["repeats"]) for row in best.values()]),
            ("At", [", ".join(filter(None, each)) for each in at]),
        ],
        caption=f"{'Lowest' if lowest else 'Highest'} values of the figure “{figure.title}”. "
        f"{medians_of(material, [figure.metric])}",
    )


def _labels(rows: Sequence[tuple[str, str, str]]) -> list[Column | None]:
    """Return the columns that name rows: the result set if there are several, the load, and the verdict."""
    sources = [source for source, _, _ in rows]
    return [
        ("Result set", sources) if len(set(sources)) > 1 else None,
        ("Load", [load or "All cases" for _, load, _ in rows]),
        (VERDICT, [LIMITED_BY.get(verdict, "-") for *_, verdict in rows]),
    ]


def _median_and_tail(figure: Figure) -> Table | None:
    """Return p50 and p99 of each curve of a figure of percentiles."""
    curves: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for row in figure.rows.to_dicts():
        shown = next((name for name, nines in _MEDIAN_AND_TAIL.items() if abs(row["x"] - nines) < 1e-3), None)
        if shown and row["y"] is not None:
            curves.setdefault((row["source"], row["panel"], row["series"]), {})[shown] = row
    if not curves or len(curves) > MOST_ROWS:
        return None
    title = metric_title(figure.metric)
    labels = [
        (source, _joined(panel, named_value(figure.series_title, series)), next(iter(found.values()))["verdict"])
        for (source, panel, series), found in curves.items()
    ]
    values = {name: [found.get(name) for found in curves.values()] for name in _MEDIAN_AND_TAIL}
    return tabulated(
        TITLE,
        _labels(labels),
        [(f"{title}, {name}", [_plain_cell(row) if row else DASH for row in rows]) for name, rows in values.items()],
        caption=f"{title} of the figure “{figure.title}”; repeats are merged.",
    )


def _values(figure: Figure) -> list[dict[str, Any]]:
    """Return the rows of a figure with one value each: of stacked bars the whole bars."""
    rows = figure.rows.to_dicts()
    if figure.kind != "stack":
        return rows
    return [{**row, "y": row["total"], "text": row["total_text"], "series": ""} for row in rows if row["step"] == 0]


def _joined(*names: str) -> str:
    return " · ".join(filter(None, names))


MOST_VALUES = 300
"""A longer table is of no use to a reader; the CSV of the figure has every row."""
PERCENTILES = (0.301, 1.0, 2.0, 3.0, 4.0, 5.0)
"""Nines of the percentiles in a table of percentile curves: 50 %, 90 %, 99 % and so on."""


def figure_table(figure: Figure) -> Table | None:
    """Return the values of a figure, or nothing where it shows runs over time."""
    if figure.kind not in ("lines", "bars", "heatmap", "points", "percentiles", "tradeoff"):
        return None
    heads: dict[str, str] = {}
    found: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for place, column, head, row in _placed(figure):
        heads[column] = head
        found.setdefault(place, {})[column] = row
    if figure.kind == "percentiles":
        heads = {name: heads[name] for name in sorted(heads, key=float)}
    down = {"percentiles": figure.series_title, "tradeoff": figure.step_title}.get(figure.kind) or figure.x_title
    xs = [Cell(text=row["x_text"], number=row["x"]) for cells in found.values() for row in cells.values()]
    counts = [max(filter(None, (row["repeats"] for row in each.values())), default=None) for each in found.values()]
    table = tabulated(
        f"{figure.title}: values",
        [
            ("Panel", [panel for panel, _, _ in found]) if any(panel for panel, _, _ in found) else None,
            (down or "Case", [level for _, level, _ in found]),
            ("Source", [source for _, _, source in found]) if any(source for _, _, source in found) else None,
        ],
        [
            (figure.x_title, xs) if figure.kind == "tradeoff" else None,
            *((head, [_value_cell(cells.get(name)) for cells in found.values()]) for name, head in heads.items()),
            (REPEATS, [cell_of(count) for count in counts]),
        ],
        caption=f"{_metric_title(figure)}." + (f" {figure.intervals}." if figure.intervals else ""),
    )
    return table if 0 < len(table.rows) <= MOST_VALUES else None


def _placed(figure: Figure) -> Iterator[tuple[tuple[str, str, str], str, str, dict[str, Any]]]:
    """Yield rows of a figure after their places: panel, level and source, then a name and the head of the column.

    The source is empty where there is one, or where the series names it.
    """
    several = figure.rows["source"].n_unique() > 1
    for row in figure.rows.to_dicts():
        panel, series, source = row["panel"], row["series"], row["source"] * several
        of = "" if source == series else source
        match figure.kind:
            case "tradeoff":
                yield (_joined(panel, series), row.get("label") or "", source), "", _metric_title(figure), row
            case "percentiles":
                nines = next((each for each in PERCENTILES if abs(row["x"] - each) < 1e-3), None)
                if nines is not None and row["y"] is not None:
                    yield (panel, series, of), str(nines), row["x_text"], row
            case _:
                series = f"{series}, {row['role']}" if "role" in row else series
                yield (panel, row["x_text"], of), series, _series_head(figure, series), row


def _plain_cell(row: Mapping[str, Any]) -> Cell:
    text, _, interval = row["text"].removesuffix(" (published)").partition(" [")
    return Cell(text=text, interval=interval.rstrip("]"), number=row["y"])


def _value_cell(row: Mapping[str, Any] | None) -> Cell:
    """Return the cell of a value with the mark of its verdict."""
    if row is None or row["y"] is None:
        return DASH
    found = _plain_cell(row)
    return replace(found, text=f"{found.text} {row['mark']}".strip())


def _series_head(figure: Figure, name: str) -> str:
    """Name a column: numbers need the name of their factor."""
    if not name:
        return _metric_title(figure)
    return f"{figure.series_title} {name}" if name[:1].isdigit() and figure.series_title else name


def _metric_title(figure: Figure) -> str:
    return metric_title(figure.metric) if figure.metric else "Value"
