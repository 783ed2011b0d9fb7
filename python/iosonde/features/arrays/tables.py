"""Every number of every array, next to the expected value of its level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.features.arrays.performance import BOUND_WORDS
from iosonde.features.arrays.rates import ArrayRates, array_name, array_order, array_rates
from iosonde.report.content.table import Cell, Table
from iosonde.report.material.quantities import factor_title, level_text, metric_text, metric_title
from iosonde.report.material.result_sets import Material
from iosonde.units import format_bytes


def tables(material: Material) -> list[Table]:
    """Return every number of every array, a table for each question and result set."""
    return [_table(found) for found in array_rates(material)]


def _table(found: ArrayRates) -> Table:
    metric = found.analysis.metric
    factors = found.factors
    heads = [
        "Array",
        *map(factor_title, factors),
        *(metric_title(metric), "One device", "Expected", "Efficiency", "Software overhead", "Speed-up", "Bound"),
        *("Of bound", "Bound by", "Member I/Os per I/O", "Member bytes per byte", "Members busy", "Imbalance"),
        *("CPU per byte", "Busiest thread", "Array's thread", "Busiest core", "Capacity", "Expected capacity"),
    ]
    of = f" of {found.source.label}" if len(found.material.sources) > 1 else ""
    return Table(
        title=f"Measured and expected{of}",
        caption="Expected: the model of the level times one device under the same load. Bound: the maximum "
        "for requests of this size in this layout. Software overhead: 1 - efficiency. Members: I/Os and bytes of the "
        "members per I/O and byte of the host; imbalance is the busiest over the mean. Busiest thread (of the engine), "
        "array's thread (of the kernel) and busiest core (by any process): share of one core.",
        heads=heads,
        labels=1 + len(factors),
        rows=[_table_row(row, factors, metric) for row in sorted(found.rows, key=array_order)],
        keys=[f"{found.source.label}\n{row['case_id']}" for row in sorted(found.rows, key=array_order)],
    )


def _table_row(row: Mapping[str, Any], factors: Sequence[str], metric: str) -> list[Cell]:
    def rate(name: str) -> Cell:
        return Cell(text=metric_text(metric, row[name]), number=row[name])

    def other(name: str, metric: str) -> Cell:
        return Cell(text=metric_text(metric, row[name]), number=row[name])

    return [
        Cell(text=array_name(row)),
        *(Cell(text=level_text(name, row[name])) for name in factors),
        *(rate(name) for name in ("measured", "baseline", "expected")),
        _percent(row["efficiency"], row["low"], row["high"]),
        _percent(row["overhead"], None, None),
        Cell(text=f"{row['speedup']:.2f}", interval=_ends(row, "{:.2f}"), number=row["speedup"]),
        rate("bound"),
        _percent(row["of_bound"], None, None),
        Cell(text=BOUND_WORDS.get(row["bound_by"] or "", "-")),
        other("member_ios_per_operation", "member_ios_per_operation"),
        other("member_bytes_per_byte", "member_bytes_per_byte"),
        _percent(row["member_utilisation"], None, None),
        other("member_imbalance", "member_imbalance"),
        other("cpu_ns_per_byte", "cpu_ns_per_byte"),
        _percent(row["core_utilisation"], None, None),
        _percent(row["array_thread_utilisation"], None, None),
        _percent(row["busiest_core_utilisation"], None, None),
        _bytes(row["capacity"]),
        _bytes(row["expected_capacity"]),
    ]


def _percent(value: float | None, low: float | None, high: float | None) -> Cell:
    if value is None:
        return Cell(text="-")
    interval = "" if low is None or high is None else f"{100 * low:.1f} .. {100 * high:.1f} %"
    return Cell(text=f"{100 * value:.1f} %", interval=interval, number=value)


def _ends(row: Mapping[str, Any], form: str) -> str:
    low, high = row["speedup_low"], row["speedup_high"]
    return "" if low is None else f"{form.format(low)} .. {form.format(high)}"


def _bytes(value: float | None) -> Cell:
    return Cell(text="-") if value is None else Cell(text=format_bytes(int(value)), number=value)


TABLES = (tables,)
