"""Names and scales of factors, levels and metrics for readers: axes, table heads, cells.

Sizes are binary (KiB), bandwidth is decimal (MB/s), as in `iosonde.units`. A figure's columns have their unit
(`bandwidth_mb_per_s`), so its CSV needs no explanation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from iosonde.metrics.registry import find
from iosonde.metrics.scopes import PERCENTILES
from iosonde.metrics.statistics import is_wide
from iosonde.plan import Case
from iosonde.study.workload import store_name
from iosonde.study.workload.workload import operation_words
from iosonde.units import format_bandwidth, format_bytes, format_count, format_duration, format_latency

BYTES_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '.4~r') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '.4~r') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '.4~r') + ' KiB'"
    " : format(datum.value, '.4~r') + ' B'"
)
"""Vega expression for axis labels of bytes."""

_BINARY_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

NANOSECONDS_LABEL = (
    "datum.value >= 1e9 ? format(datum.value / 1e9, '.4~r') + ' s'"
    " : datum.value >= 1e6 ? format(datum.value / 1e6, '.4~r') + ' ms'"
    " : datum.value >= 1e3 ? format(datum.value / 1e3, '.4~r') + ' µs'"
    " : datum.value ? format(datum.value, '.4~r') + ' ns' : '0'"
)
"""Vega expression for axis labels of nanoseconds."""

NINES_LABEL = (
    "datum.value < 0.5 ? '50 %' : datum.value < 1.5 ? '90 %' : datum.value < 2.5 ? '99 %'"
    " : format(100 - 100 * pow(10, -datum.value), '.' + format(round(datum.value) - 2, 'd') + 'f') + ' %'"
)
"""Vega expression for labels of a nines axis: -log10(1 - fraction)."""

COUNT_LABEL = "format(datum.value, '.3~s')"
"""Vega expression for labels of counts: unlike a format, it leaves 0 alone."""

THOUSANDS = 1_000
"""Values without a unit from which an axis is labelled in thousands."""

SMALLEST_SHARE = 0.0001
"""Shares below it are not written out: `4.82e-06` is no number that a reader compares."""

WIDE_CELL = "CI over 10×"
"""In a table, in the place of an interval that spans more than a factor of 10."""

_BYTES = re.compile(r"(^|_)(size|bytes|span|stride|offset)$")
_TIME = re.compile(r"(^|_)(duration|interval|ramp|service|ns)$")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis, ready to be drawn. A logarithmic one without `values` has ticks at 1, 2 and 5 or at decades."""

    title: str
    kind: Literal["linear", "log", "log2", "category", "nines"] = "linear"
    domain: Sequence[float] | None = None
    values: Sequence[float] | None = None
    """Positions of ticks; None leaves them to the chart."""
    order: Sequence[str] = ()
    """Categories in their order."""
    label: str | None = None
    """Vega expression for labels, where a number format does not do."""
    format: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scale(Axis):
    """The axis of a metric, whose title has the unit; logarithmic or linear."""

    divisor: float
    """Divisor of a value in the metric's own unit."""
    column: str
    """Name of the values in a CSV, unit last."""
    format: str | None = "~s"

    @property
    def columns(self) -> dict[str, str]:
        """Columns of a value and its interval, and their names in a CSV."""
        return {"y": self.column, "low": f"{self.column}_low", "high": f"{self.column}_high"}


def unit_of_factor(name: str) -> str:
    """Return `B`, `ns` or nothing: the unit of a factor's numeric levels."""
    last = name.rpartition(".")[2]
    if _BYTES.search(last):
        return "B"
    return "ns" if _TIME.search(last) else ""


def factor_title(name: str) -> str:
    """Name a factor for a reader: `writer.block_size` becomes `Block size (writer)`."""
    stream, _, parameter = name.rpartition(".")
    words = f" {parameter.replace('_', ' ')} ".replace(" io ", " I/O ").replace(" cpus ", " CPUs ").strip()
    title = words[:1].upper() + words[1:]
    return f"{title} ({stream})" if stream else title


def axis_title(name: str) -> str:
    """Name a factor over its levels, with the unit that they are written without."""
    title = factor_title(name)
    return f"{title} level (%)" if name.rpartition(".")[2] == "fill" else title


def factor_column(name: str) -> str:
    """Name a factor's levels in a CSV, with their unit."""
    return f"{name}_bytes" if unit_of_factor(name) == "B" and not name.endswith("bytes") else name


def level_text(name: str, level: Any) -> str:
    """Name a level for a reader."""
    if isinstance(level, bool):
        return "on" if level else "off"
    if not is_number(level):
        # Operations by the names of the engine: `major_fault`.
        text = str(level).replace("_", " ") if name == "operation" else str(level)
        if name == "phase" and text.startswith("ycsb_"):
            return f"YCSB {text.removeprefix('ycsb_').upper()}"
        return store_name(text) if name == "store" else text
    unit = unit_of_factor(name)
    if unit == "B":
        return format_bytes(int(level))
    if unit == "ns":
        return format_duration(int(level))
    return f"{level:g}" if isinstance(level, float) else str(level)


def level_phrase(name: str, level: Any) -> str:
    """Name a level for use alone: `Queue depth 4`, but `read`."""
    stream, _, parameter = name.rpartition(".")
    if parameter == "read_fraction" and is_number(level):
        words = operation_words(float(level))
        return f"{words[:1].upper()}{words[1:]}" + (f" ({stream})" if stream else "")
    text = level_text(name, level)
    return f"{factor_title(name)} {text}" if is_number(level) or isinstance(level, bool) else text


def named_value(title: str, text: str) -> str:
    """Write a value for use alone: a number with the title before it."""
    return f"{title.lower()} {text}" if text[:1].isdigit() else text


def case_name(case: Case) -> str:
    """Name a case by its levels: `read, queue depth 4`."""
    phrases = [
        f"{factor_title(name)} {level_text(name, level)}" if is_number(level) else level_text(name, level)
        for name, level in case.levels.items()
    ]
    return (
        ", ".join(phrase[:1].lower() + phrase[1:] if phrase[1:2].islower() else phrase for phrase in phrases)
        or case.case_id
    )


def is_number(level: Any) -> bool:
    """Return True if a level is a quantity; truth values are not."""
    return isinstance(level, int | float) and not isinstance(level, bool)


def metric_title(metric: str) -> str:
    """Name a metric for a reader, without its unit, and without the statistic if several of a latency are shown."""
    known = find(metric)
    of_median = None if known else find(f"{metric}_p50")
    if of_median:
        return of_median.title.partition(",")[0]
    return known.title if known else metric.replace("_", " ")


def is_percentile(metric: str) -> bool:
    """Return True if a metric is a percentile, which requires samples beyond it."""
    return any(metric.endswith(f"_{percentile}") for percentile in PERCENTILES)


def metric_unit(metric: str) -> str:
    """Return the unit of a metric: `1/s`, `B/s`, `B`, `ns`, `s` or nothing."""
    known = find(metric)
    if known:
        return known.unit
    if "_ns" in metric:
        return "ns"
    return {"iops": "1/s", "bandwidth": "B/s"}.get(metric, "")


def metric_scale(metric: str, maximum: float, *, title: str | None = None) -> Scale:
    """Choose how a metric is shown when its largest value is `maximum`."""
    title = title or metric_title(metric)
    match metric_unit(metric):
        case "B/s":
            # Decimal, as data sheets and papers have it; gigabytes only where megabytes would have five digits.
            unit, divisor = ("GB", 1e9) if maximum >= 1e10 else ("MB", 1e6) if maximum >= 5e5 else ("kB", 1e3)
            column = f"{metric}_{unit.lower()}_per_s"
            return Scale(title=f"{title} ({unit}/s)", divisor=divisor, column=column, format=",~r")
        case "ns":
            return Scale(title=title, divisor=1, column=metric, label=NANOSECONDS_LABEL, kind="log")
        case "1/s":
            return Scale(
                title=title if title == "IOPS" else f"{title} (1/s)",
                divisor=1,
                column=f"{metric}_per_s" if metric != "iops" else metric,
                label=COUNT_LABEL,
            )
        case "B":
            # Binary, in the largest unit that the maximum reaches: ticks are round numbers of it.
            unit, divisor = next((each for each in _BINARY_UNITS if maximum >= each[1]), ("B", 1))
            column = f"{metric}_{unit.lower()}" if unit != "B" else f"{metric}_bytes"
            return Scale(title=f"{title} ({unit})", divisor=divisor, column=column, format=",~r")
        case "s":
            return Scale(title=f"{title} (s)", divisor=1, column=f"{metric}_s")
        case _ if maximum >= THOUSANDS:
            return Scale(title=title, divisor=1, column=metric, label=COUNT_LABEL)
        case _:
            return Scale(title=title, divisor=1, column=metric, format="~g")


def metric_text(metric: str, value: float | None) -> str:
    """Write a value with its unit; `-` where there is none."""
    if value is None:
        return "-"
    match metric_unit(metric):
        case "B/s":
            return format_bandwidth(value)
        case "ns":
            return format_latency(value)
        case "1/s":
            return format_count(value)
        case "B":
            return format_bytes(value)
        case "s":
            return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
        case _ if metric.endswith("_fraction") and 0 < value < SMALLEST_SHARE:
            return f"<{SMALLEST_SHARE}"
        case _:
            return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def interval_text(metric: str, median: float | None, low: float | None, high: float | None) -> str:
    """Write a median with its interval: `512 MB/s [500 MB/s .. 520 MB/s]`."""
    text, ends = metric_text(metric, median), ends_text(metric, low, high)
    return f"{text} [{ends}]" if median is not None and ends else text


def ends_text(metric: str, low: float | None, high: float | None) -> str:
    """Write the ends of an interval, or that it is too wide; empty without one."""
    if low is None or high is None:
        return ""
    return WIDE_CELL if is_wide(low, high) else f"{metric_text(metric, low)} .. {metric_text(metric, high)}"
