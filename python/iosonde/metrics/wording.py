"""Words for levels, loads, values and intervals, shared by all findings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import WIDE_TEXT, Estimate
from iosonde.units import format_bandwidth, format_bytes, format_count, format_duration, format_latency

_BYTES = (
    *("block_size", "span", "stride", "offset", "ramp_bytes", "limit_bytes"),
    *("request_size", "merge_gap", "cache_size", "sort_memory", "object_size", "osd_size"),
)
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
    if metric in ("edges_per_sec", "edges_per_core_sec", "cached_edges_per_core_sec"):
        return f"{format_count(_three_digits(value))} edges/s"
    if metric == "tpmc":
        return f"{format_count(_three_digits(value))} tpmC"
    if metric == "transactions_per_sec":
        return f"{format_count(_three_digits(value))} transactions/s"
    match metric_of(metric).unit:
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
    """Write a value with its confidence interval, if it has one: `182 k IOPS (95 % CI 180–184 k IOPS)`."""
    text = value_text(metric, estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    if estimate.is_wide:
        return f"{text} (95 % CI {WIDE_TEXT})"
    return f"{text} (95 % CI {_ends_text(value_text(metric, estimate.low), value_text(metric, estimate.high))})"


def selection_text(estimate: Estimate, maximum: Estimate, candidates: int) -> str:
    """State that a case was selected as the highest, and how far its selection extends the interval of the case."""
    text = f"highest median of {counted(candidates, 'case')}"
    ends = (estimate.low, maximum.low, estimate.high, maximum.high)
    if estimate.is_wide or maximum.is_wide or not all(ends):
        return text
    low, selected_low, high, selected_high = (float(end or 0) for end in ends)
    extension = max(low / selected_low, selected_high / high) - 1
    return (
        f"{text}; this selection extends the interval by up to {percent_text(extension)}"
        if extension >= 0.001
        else text
    )


def range_text(low: str, high: str) -> str:
    """Write a range once with the unit that both ends share: `1.1–1.3 ms`, `980 µs–1.1 ms`."""
    return low if low == high else _ends_text(low, high)


def _ends_text(low: str, high: str) -> str:
    first, last = low.split(" "), high.split(" ")
    if len(first) > 1 and first[1:] == last[1:]:
        return f"{first[0]}–{high}"
    return f"{low}–{high}"


def ratio_text(value: float) -> str:
    """Write a ratio: two decimals below 10, then whole numbers; one digit where two decimals would be zeros."""
    if 0 < value < 0.005:
        return f"{value:.1g}"
    return f"{value:.2f}" if value < 9.995 else f"{value:,.0f}"


def times_text(value: float) -> str:
    """Write a ratio: `1.06 times`, `2.4 times`, `14 times`."""
    return f"{times_number(value)} times"


def times_number(value: float) -> str:
    """Write a ratio with two to three significant digits."""
    return f"{value:.2f}" if value < 1.995 else f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"


def ratio_estimate_text(estimate: Estimate, *, unit: str = " times") -> str:
    """Write a ratio with its confidence interval, if it has one: `1.82 times (95 % CI 1.78–1.86)`."""
    if estimate.low is None or estimate.high is None:
        return f"{times_number(estimate.value)}{unit}"
    text = f"{ratio_text(estimate.value)}{unit}"
    if estimate.is_wide:
        return f"{text} (95 % CI {WIDE_TEXT})"
    return f"{text} (95 % CI {_ends_text(ratio_text(estimate.low), ratio_text(estimate.high))})"


def percent_range(low: float, high: float) -> str:
    """Write a range of fractions: `62–96 %`."""
    return range_text(percent_text(low), percent_text(high))


def percent_text(fraction: float) -> str:
    """Write a fraction as percent: `4.2 %`, `12 %`."""
    percent = 100 * fraction
    return f"{percent:.1f} %" if abs(percent) < 10 else f"{percent:.0f} %"


def metric_words(metric: str) -> str:
    """Name a metric inside a sentence: `bandwidth`, `IOPS`, `CPU time per operation`, `p99 completion latency`."""
    name, _, percentile = metric_of(metric).title.partition(", p")
    name, mean, _ = name.partition(", mean")
    words = name if name.partition(" ")[0].isupper() else name[:1].lower() + name[1:]
    if mean:
        return f"mean {words}"
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
        case "store" | "server":
            return store_name(value)
        case "terminals" | "clients" | "warehouses":
            return f"1 {factor[:-1]}" if level == 1 else f"{value} {factor}"
        case "log":
            return "a separate log device" if level in ("apart", "separate") else "the log on the data device"
        case "block_size":
            return f"{value} blocks"
        case "jobs":
            return "1 job" if level == 1 else f"{value} jobs"
        case "read_fraction":
            return operation_words(level)
        case "fill":
            return f"{value} % full"
        case "state" if level in ("healthy", "degraded", "rebuilding"):
            return f"{level} arrays"
        case "format" if level == "raw":
            return "the raw device"
        case "array" if isinstance(level, str):
            return array_words(level)
        case _ if not isinstance(level, (int, float)):
            return value
        case _:
            return f"{factor_words(factor)} {value}"


def array_words(level: str) -> str:
    """Name a RAID level: `RAID 5`, `one device`, `the target as it is`."""
    known = {"single": "one device", "target": "the target as it is"}
    return known.get(level, f"RAID {level.removeprefix('raid')}")


def factor_words(factor: str) -> str:
    """Name a factor inside a sentence."""
    stream, _, parameter = factor.rpartition(".")
    words = parameter.replace("_", " ")
    return f"{words} of {stream}" if stream else words


def range_words(factor: str, levels: Sequence[Any], chosen: Sequence[Any]) -> str:
    """Name the levels for which a statement is true: ` with blocks up to 64 KiB`, ` at every queue depth`.

    `levels` are all levels in order, `chosen` those that the statement is true for. Levels that are not consecutive
    are listed.
    """
    singular = _SINGULARS.get(factor, factor_words(factor))
    if len(chosen) == len(levels):
        return f" at every {singular}" if len(levels) > 1 else ""
    preposition, plural = _PLURALS.get(factor, ("at", factor_words(factor)))
    if len(chosen) == 1:
        return f" {preposition} {level_words(factor, chosen[0])}"
    start = levels.index(chosen[0])
    if list(chosen) != list(levels[start : start + len(chosen)]):
        named = [level_value(factor, level) for level in chosen]
        of = " of" if factor == "block_size" else ""
        return f" {preposition} {plural}{of} {listing(named)}"
    first, last = level_value(factor, chosen[0]), level_value(factor, chosen[-1])
    if chosen[0] == levels[0]:
        return f" {preposition} {plural} up to {last}"
    if chosen[-1] == levels[-1]:
        return f" {preposition} {plural} from {first}"
    return f" {preposition} {plural} from {first} to {last}"


def operation_words(read_fraction: float | str, trim_fraction: float | str = 0.0) -> str:
    """Name a mix: `reads`, `writes`, `70/30 reads and writes`; the label of a compound level as it is."""
    share = number_of(read_fraction)
    if share is None:
        return str(read_fraction)
    if number_of(trim_fraction) == 1:
        return "trims"
    if share in (0, 1):
        return "reads" if share else "writes"
    return f"{100 * share:.0f}/{100 * (1 - share):.0f} reads and writes"


def number_of(level: Any) -> float | None:
    """Return a level as a number; None for the label of a compound level, whose factor may have a parameter's name.

    A column with such labels has numbers as text.
    """
    try:
        number = float(level)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def load_words(case: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, str]:
    """Describe a case's load in words that make up `4 KiB random buffered reads`, by parameter and in that order.

    Parameters in `without` are left out, and so is direct I/O, the default.
    """
    if case.get("command"):
        return {} if "command" in without else {"command": _program(case["command"])}
    if case.get("mapping"):
        return {name: word for name, word in _paging_words(case).items() if name not in without}
    if case.get("algorithm"):
        return {name: word for name, word in _graph_words(case).items() if name not in without}
    if case.get("object_store"):
        return {name: word for name, word in _object_words(case).items() if name not in without}
    if case.get("server"):
        return {name: word for name, word in _transaction_words(case).items() if name not in without}
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


_SHOWN_IN_WORDS = {
    *("block_size", "access", "io_mode", "read_fraction", "operation", "jobs", "queue_depth", "store", "phase"),
    *("algorithm", "mode"),
}


def case_words(parameters: Mapping[str, Any], levels: Mapping[str, Any], case_id: str) -> str:
    """Describe a case by its load: `4 KiB random reads, queue depth 16`; its id where that is not possible."""
    try:
        words = phrase(load_words(parameters))
    except (KeyError, TypeError, ValueError):
        return case_id
    sizes = [
        level_words(name, parameters[name])
        for name in ("jobs", "queue_depth")
        if isinstance(parameters.get(name), int) and (name == "queue_depth" or parameters[name] > 1)
    ]
    others = [
        f"{factor_words(name)} {level.get('label', level) if isinstance(level, dict) else level}"
        for name, level in levels.items()
        if name not in _SHOWN_IN_WORDS
    ]
    return ", ".join([words, *sizes, *others])


def _program(command: Any) -> str:
    """Name the program of a command, which is a list, or that list as JSON."""
    first = (json.loads(command) if isinstance(command, str) else command)[0]
    return str(first).rpartition("/")[2]


def _store_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe a load on a store in words that make up `LMDB random reads`."""
    phase = str(case.get("phase") or case.get("phase_level") or "")
    synced = {"sync": "synced"} if case.get("sync") is True else {}
    return {"store": store_name(case["store"]), **synced, "phase": _PHASES.get(phase, f"{phase} operations")}


def _paging_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe accesses to memory in words that make up `uniform accesses to swapped memory`."""
    memory = "a mapped file" if case["mapping"] == "file" else "memory"
    pattern = str(case.get("pattern") or case.get("pattern_level") or "").partition(":")[0]
    return {"pattern": pattern, "phase": f"accesses to {memory}"}


def _graph_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe an algorithm in words that make up `PageRank (pull)`."""
    algorithm = str(case["algorithm"])
    name = {"pagerank": "PageRank", "bfs": "breadth-first search", "components": "connected components"}[algorithm]
    mode = f" ({case['mode']})" if algorithm == "pagerank" and case.get("mode") else ""
    return {"algorithm": f"{name}{mode}"}


def _object_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe a load on objects in words that make up `4 KiB object random reads on Ceph`."""
    size = case.get("object_size")
    operations = {"write": "writes", "sequential_read": "sequential reads", "random_read": "random reads"}
    operation = operations.get(str(case.get("operation") or case.get("operation_level") or ""), "operations")
    return {
        "object_size": f"{level_value('object_size', size)} object" if size is not None else "object",
        "operation": operation,
        "object_store": f"on {store_name(case['object_store'])}",
    }


def _transaction_words(case: Mapping[str, Any]) -> dict[str, str]:
    """Describe a load on a server in words that make up `PostgreSQL TPC-C-like transactions`."""
    tpcc = "TPC-C transactions" if case.get("think") == "standard" else "TPC-C-like transactions (no think time)"
    return {"server": store_name(case["server"]), "phase": tpcc if case.get("warehouses") else "single-row commits"}


def store_name(store: str) -> str:
    """Write the name of a store or server: `LMDB`, `RocksDB`, `MariaDB InnoDB`."""
    servers = {"postgresql": "PostgreSQL", "mariadb": "MariaDB InnoDB", "mongodb": "MongoDB", "cassandra": "Cassandra"}
    stores = {
        "lmdb": "LMDB",
        "rocksdb": "RocksDB",
        "wiredtiger": "WiredTiger",
        "null": "no store",
        "ceph": "Ceph",
        "s3": "S3",
    }
    return (servers | stores).get(store, store)


def phrase(words: Mapping[str, str], *, with_noun: str = "I/O") -> str:
    """Join the words of a load; without an operation it needs a noun."""
    return " ".join(
        [
            *words.values(),
            *(
                []
                if {"read_fraction", "phase", "store", "server", "algorithm", "command", "object_store"} & words.keys()
                else [with_noun]
            ),
        ]
    )


def sentence(text: str) -> str:
    """Start with a capital letter; `p99` and names in backticks stay as they are."""
    return text if re.match(r"p\d", text) else text[:1].upper() + text[1:]


def counted(count: int, noun: str) -> str:
    """Count things: `1 run`, `3 runs`, `12,345 cases`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def listing(items: Sequence[str]) -> str:
    """Join items: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}") if value < 10_000 else value
