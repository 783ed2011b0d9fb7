"""Words for levels, loads, values and intervals, the same in every finding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.metrics.catalogue import METRICS
from iosonde.metrics.statistics import Estimate
from iosonde.units import format_bandwidth, format_bytes, format_count, format_duration, format_latency

_BYTES = ("block_size", "span", "stride", "offset", "ramp_bytes", "limit_bytes")
_TIMES = ("duration", "interval", "ramp", "read_service", "write_service")
_PLURALS = {
    "block_size": ("with", "blocks"),
    "queue_depth": ("at", "queue depths"),
    "jobs": ("with", "numbers of jobs"),
}
_PHASES = {
    "load": "loads",
    "fillseq": "sequential fills",
    "fillrandom": "random fills",
    "filluniquerandom": "random fills without repetition",
    "overwrite": "overwrites",
    "readrandom": "random reads",
    "readseq": "sequential reads",
    "readreverse": "reverse reads",
    "seekrandom": "random scans",
    "deleteseq": "sequential deletes",
    "deleterandom": "random deletes",
    "readwhilewriting": "reads while writing",
    **{f"ycsb_{letter}": f"YCSB {letter.upper()} operations" for letter in "abcdef"},
}
_SINGULARS = {"jobs": "number of jobs"}


def value_text(metric: str, value: float) -> str:
    """Write a value of a metric with its unit: `182 k IOPS`, `3.2 GB/s`, `1.1 ms`."""
    if metric == "iops":
        return f"{format_count(_three_digits(value))} IOPS"
    if metric == "ops_per_sec":
        return f"{format_count(_three_digits(value))} operations/s"
    match METRICS[metric].unit:
        case "B/s":
            return format_bandwidth(value)
        case "ns":
            return format_latency(value)
        case "1/s":
            return f"{format_count(_three_digits(value))} /s"
        case "B":
            return format_bytes(value)
        case "s":
            return format_duration(value * 1e9)
        case _:
            return ratio_text(value)


def estimate_text(metric: str, estimate: Estimate) -> str:
    """Write a value with its interval where it has one."""
    text = value_text(metric, estimate.value)
    if estimate.low is None or estimate.high is None:
        return f"{text}, no interval"
    return f"{text}, 95 % interval {value_text(metric, estimate.low)}..{value_text(metric, estimate.high)}"


def ratio_text(value: float) -> str:
    """Write a ratio: two decimals below 10, then whole numbers."""
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"


def times_text(value: float) -> str:
    """Write a ratio as a reader says it: `1.06 times`, `2.4 times`, `14 times`."""
    return f"{times_number(value)} times"


def times_number(value: float) -> str:
    """Write a ratio with as many digits as a reader can use."""
    return f"{value:.2f}" if value < 1.995 else f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def ratio_estimate_text(estimate: Estimate) -> str:
    """Write a ratio with its interval where it has one."""
    if estimate.low is None or estimate.high is None:
        return f"ratio {ratio_text(estimate.value)}, no interval"
    return f"ratio {ratio_text(estimate.value)}, 95 % interval {ratio_text(estimate.low)}..{ratio_text(estimate.high)}"


def percent_text(fraction: float) -> str:
    """Write a fraction as percent: `4.2 %`, `12 %`."""
    percent = 100 * fraction
    return f"{percent:.1f} %" if abs(percent) < 10 else f"{percent:.0f} %"


def metric_words(metric: str) -> str:
    """Name a metric inside a sentence: `bandwidth`, `IOPS`, `p99 completion latency`."""
    name, _, percentile = METRICS[metric].title.partition(", p")
    words = name if name.isupper() else name[:1].lower() + name[1:]
    return f"p{percentile} {words}" if percentile else words


def level_value(factor: str, level: Any) -> str:
    """Write a level without its factor: `64 KiB`, `16`, `random`."""
    parameter = factor.rpartition(".")[2]
    if isinstance(level, bool) or not isinstance(level, (int, float)):
        return str(level)
    if parameter in _BYTES:
        return format_bytes(level)
    if parameter in _TIMES:
        return format_duration(level)
    return f"{level:g}"


def level_words(factor: str, level: Any) -> str:
    """Write a level with its factor: `queue depth 16`, `16 jobs`, `64 KiB blocks`."""
    value = level_value(factor, level)
    match factor:
        case "store":
            return store_name(value)
        case "log":
            return "a log apart" if level == "apart" else "a log with the data"
        case "block_size":
            return f"{value} blocks"
        case "jobs":
            return "1 job" if level == 1 else f"{value} jobs"
        case "read_fraction":
            return operation_words(float(level))
        case "fill":
            return f"{value} % full"
        case "array" if isinstance(level, str):
            return array_words(level)
        case _ if not isinstance(level, (int, float)):
            return value
        case _:
            return f"{factor_words(factor)} {value}"


def array_words(level: str) -> str:
    """Name a RAID level as people do: `RAID 5`, `one device`."""
    return "one device" if level == "single" else f"RAID {level.removeprefix('raid')}"


def factor_words(factor: str) -> str:
    """Name a factor inside a sentence."""
    stream, _, parameter = factor.rpartition(".")
    words = parameter.replace("_", " ")
    return f"{words} of {stream}" if stream else words


def range_words(factor: str, levels: Sequence[Any], chosen: Sequence[Any]) -> str:
    """Say at which levels of a factor something holds: ` with blocks up to 64 KiB`, `, whatever the block size`."""
    if len(chosen) == len(levels):
        return f", whatever the {_SINGULARS.get(factor, factor_words(factor))}"
    preposition, plural = _PLURALS.get(factor, ("at", factor_words(factor)))
    first, last = level_value(factor, chosen[0]), level_value(factor, chosen[-1])
    if len(chosen) == 1:
        return f" {preposition} {level_words(factor, chosen[0])}"
    if chosen[0] == levels[0]:
        return f" {preposition} {plural} up to {last}"
    if chosen[-1] == levels[-1]:
        return f" {preposition} {plural} from {first}"
    return f" {preposition} {plural} of {first} to {last}"


def operation_words(read_fraction: float, trim_fraction: float = 0.0) -> str:
    """Name a mix: `reads`, `writes`, `70/30 reads and writes`."""
    if trim_fraction == 1:
        return "trims"
    if read_fraction in (0, 1):
        return "reads" if read_fraction else "writes"
    return f"{100 * read_fraction:.0f}/{100 * (1 - read_fraction):.0f} reads and writes"


def load_words(case: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, str]:
    """Describe a case's load in words that make up `4 KiB random buffered reads`, by parameter and in that order.

    What is named in `without` is left out, and so is what is usual: direct I/O.
    """
    if case.get("store"):
        return {name: word for name, word in _store_words(case).items() if name not in without}
    words = {
        "block_size": level_value("block_size", case["block_size"]) if case.get("block_size") is not None else "",
        "access": str(case.get("access") or ""),
        "io_mode": "buffered" if case.get("io_mode") == "buffered" else "",
        "read_fraction": "I/O"
        if case.get("read_fraction") is None
        else operation_words(case["read_fraction"], case.get("trim_fraction") or 0.0),
    }
    return {name: word for name, word in words.items() if word and name not in without}


def _store_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe a load on a store in words that make up `LMDB random reads`."""
    phase = str(case.get("phase") or case.get("phase_level") or "")
    synced = {"sync": "synced"} if case.get("sync") is True else {}
    return {"store": store_name(case["store"]), **synced, "phase": _PHASES.get(phase, f"{phase} operations")}


def store_name(store: str) -> str:
    """Write a store as its makers do: `LMDB`, `RocksDB`."""
    return {"lmdb": "LMDB", "rocksdb": "RocksDB", "null": "no store"}.get(store, store)


def phrase(words: Mapping[str, str], *, with_noun: str = "I/O") -> str:
    """Join the words of a load; without an operation it needs a noun."""
    return " ".join([*words.values(), *([] if {"read_fraction", "phase", "store"} & words.keys() else [with_noun])])


def sentence(text: str) -> str:
    """Begin with a capital letter; `p99` is a name and stays as it is."""
    return text if re.match(r"p\d", text) else text[:1].upper() + text[1:]


def counted(count: int, noun: str) -> str:
    """Count things: `1 run`, `3 runs`, `12,345 cases`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def listing(items: Sequence[str]) -> str:
    """Join items as a sentence does: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}") if value < 10_000 else value
