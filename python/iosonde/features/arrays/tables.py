"""Every number of every array, next to the expected value of its level."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from iosonde.features.arrays.loads import Row
from iosonde.features.arrays.performance import BOUND_WORDS
from iosonde.features.arrays.rates import ArrayRates, array_name, array_order, array_rates
from iosonde.report.material import Material
from iosonde.report.quantities import factor_title, level_text, metric_title
from iosonde.report.table import Cell, Column, Table, metric_cell, tabulated
from iosonde.units import format_bytes


def tables(material: Material) -> list[Table]:
    """Return every number of every array, a table for each question and result set."""
    return [_table(found) for found in array_rates(material)]


def _table(found: ArrayRates) -> Table:
    columns = list(_columns(found))
    labels = 1 + len(found.loads.factors)
    of = f" of {found.source.label}" if len(found.material.sources) > 1 else ""
    return tabulated(
        sorted(found.rows, key=array_order),
        columns[:labels],
        columns[labels:],
        title=f"Measured and expected{of}",
        caption="Expected: the model of the level times one device under the same load. Bound: the maximum "
        "for requests of this size in this layout. Software overhead: 1 - efficiency. Members: I/Os and bytes of the "
        "members per I/O and byte of the host; imbalance is the busiest over the mean. Busiest thread (of the engine), "
        "array's thread (of the kernel) and busiest core (by any process): share of one core.",
        key=lambda row: f"{found.source.label}\n{row['case_id']}",
    )


def _columns(found: ArrayRates) -> Iterator[Column[Row]]:
    metric = found.analysis.metric
    yield "Array", array_name
    for name in found.loads.factors:
        yield factor_title(name), partial(_level, name)
    yield metric_title(metric), partial(_value, metric, "measured")
    yield "One device", partial(_value, metric, "baseline")
    yield "Expected", partial(_value, metric, "expected")
    yield "Efficiency", lambda row: _percent(row["efficiency"], row["low"], row["high"])
    yield "Software overhead", partial(_share, "overhead")
    yield "Speed-up", _speedup
    yield "Bound", partial(_value, metric, "bound")
    yield "Of bound", partial(_share, "of_bound")
    yield "Bound by", lambda row: BOUND_WORDS.get(row["bound_by"] or "", "-")
    for head, name in (("I/Os per I/O", "member_ios_per_operation"), ("bytes per byte", "member_bytes_per_byte")):
        yield f"Member {head}", partial(_value, name, name)
    yield "Members busy", partial(_share, "member_utilisation")
    yield "Imbalance", partial(_value, "member_imbalance", "member_imbalance")
    yield "CPU per byte", partial(_value, "cpu_ns_per_byte", "cpu_ns_per_byte")
    yield "Busiest thread", partial(_share, "core_utilisation")
    yield "Array's thread", partial(_share, "array_thread_utilisation")
    yield "Busiest core", partial(_share, "busiest_core_utilisation")
    yield "Capacity", partial(_bytes, "capacity")
    yield "Expected capacity", partial(_bytes, "expected_capacity")


def _level(name: str, row: Row) -> str:
    return level_text(name, row[name])


def _value(metric: str, name: str, row: Row) -> Cell:
    return metric_cell(metric, row[name])


def _share(name: str, row: Row) -> Cell:
    return _percent(row[name], None, None)


def _percent(value: float | None, low: float | None, high: float | None) -> Cell:
    if value is None:
        return Cell(text="-")
    interval = "" if low is None or high is None else f"{100 * low:.1f} .. {100 * high:.1f} %"
    return Cell(text=f"{100 * value:.1f} %", interval=interval, number=value)


def _speedup(row: Row) -> Cell:
    interval = "" if row["speedup_low"] is None else f"{row['speedup_low']:.2f} .. {row['speedup_high']:.2f}"
    return Cell(text=f"{row['speedup']:.2f}", interval=interval, number=row["speedup"])


def _bytes(name: str, row: Row) -> Cell:
    value = row[name]
    return Cell(text="-") if value is None else Cell(text=format_bytes(int(value)), number=value)


TABLES = (tables,)
