"""Words for levels, loads, values and intervals, shared by all findings."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iosonde.base.features import contributed
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import WIDE_TEXT, Estimate
from iosonde.study.setup import SIZES
from iosonde.study.workload import store_name, workloads
from iosonde.study.workload.workload import operation_words
from iosonde.units import format_bandwidth, format_bytes, format_count, format_duration, format_latency

_BYTES = {*SIZES, *(name for each in workloads().values() for name in each.sizes)}
_TIMES = ("duration", "interval", "ramp", "read_service", "write_service")
_COUNTED = ("jobs", "hosts", "clients", "terminals", "warehouses")
_PLURALS = {
    "block_size": ("with", "blocks"),
    "queue_depth": ("at", "queue depths"),
    "read_fraction": ("for", "read fractions"),
    **{name: ("with", f"numbers of {name}") for name in _COUNTED},
}


def value_text(metric: str, value: float) -> str:
    """Write a value of a metric with its unit: `182 k IOPS`, `3.2 GB/s`, `1.1 ms`."""
    found = metric_of(metric)
    if found.counted:
        return f"{format_count(_three_digits(value))} {found.counted}"
    match found.unit:
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
    return f"{text} (95 % CI {_interval_text(estimate, *(value_text(metric, end) for end in _ends(estimate)))})"


def _ends(estimate: Estimate) -> tuple[float, float]:
    """Return the ends of an interval; those of an estimate without one are its value."""
    low, high = estimate.low, estimate.high
    return (estimate.value if low is None else low, estimate.value if high is None else high)


def _interval_text(estimate: Estimate, low: str, high: str) -> str:
    """Write an interval from its ends as text; by its half-width if they are the same: `±0.1 %`."""
    if estimate.is_wide:
        return WIDE_TEXT
    return _range_or_half_width(estimate.value, _ends(estimate), low, high)


def _range_or_half_width(value: float, ends: tuple[float, float], low: str, high: str) -> str:
    if low != high or not value:
        return range_text(low, high)
    half = max(abs(end / value - 1) for end in ends)
    return f"±{max(0.1, math.ceil(round(1000 * half, 6)) / 10):.1f} %"


def selection_text(estimate: Estimate, maximum: Estimate, candidates: int) -> str:
    """State that a case was selected as the highest, and how far its selection extends the interval of the case."""
    if candidates == 1:
        return "median of the only case"
    text = f"highest median of {counted(candidates, 'case')}"
    ends = (estimate.low, maximum.low, estimate.high, maximum.high)
    if estimate.is_wide or maximum.is_wide or not all(ends):
        return text
    low, selected_low, high, selected_high = (float(end or 0) for end in ends)
    extension = max(low / selected_low, selected_high / high) - 1
    return (
        f"{text}; adjusted for picking the best case: up to {percent_text(extension)} wider"
        if extension >= 0.001
        else text
    )


def range_text(low: str, high: str) -> str:
    """Write a range with the words that both ends end with once: `1.1–1.3 ms`, `5,260–34.2 k transactions/s`."""
    if low == high:
        return low
    first, last = low.split(" "), high.split(" ")
    while len(first) > 1 and first[-1] == last[-1]:
        first.pop()
        last.pop()
    return f"{' '.join(first)}–{high}"


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
    interval = _interval_text(estimate, ratio_text(estimate.low), ratio_text(estimate.high))
    return f"{ratio_text(estimate.value)}{unit} (95 % CI {interval})"


def ratio_interval_text(value: float, low: float, high: float) -> str:
    """Write the interval of a ratio: `1.78–1.86`, or `±0.1 %` where both ends are written alike."""
    return _range_or_half_width(value, (low, high), ratio_text(low), ratio_text(high))


def margin_text(margin: float) -> str:
    """Write a distance from a limit as a share of it: `+12 %`, `-3 %`, `313 times the limit`."""
    return f"{100 * margin:+.0f} %" if margin < 10 else f"{times_text(1 + margin)} the limit"


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


@functools.cache
def _words_of_features() -> tuple[Callable[[str, Any], str | None], ...]:
    return contributed("setup", "WORDS")


def level_words(factor: str, level: Any) -> str:
    """Write a level with its factor: `queue depth 16`, `16 jobs`, `64 KiB blocks`."""
    if words := next(filter(None, (find(factor, level) for find in _words_of_features())), None):
        return words
    value = level_value(factor, level)
    match factor:
        case "store" | "server":
            return store_name(value)
        case "terminals" | "clients" | "warehouses" | "hosts" | "devices" | "jobs":
            return f"1 {factor[:-1]}" if level == 1 else f"{value} {factor}"
        case "log":
            return "a separate log device" if level in ("apart", "separate") else "the log on the data device"
        case "block_size":
            return f"{value} blocks"
        case "read_fraction":
            return operation_words(level)
        case "fill":
            return f"{value} % full"
        case "format" if level == "raw":
            return "the raw device"
        case _ if not isinstance(level, (int, float)):
            return value
        case _:
            return f"{factor_words(factor)} {value}"


def factor_words(factor: str) -> str:
    """Name a factor inside a sentence."""
    stream, _, parameter = factor.rpartition(".")
    words = parameter.replace("_", " ")
    return f"{words} of {stream}" if stream else words


def quantity_words(factor: str) -> str:
    """Name what the levels of a factor state: `queue depth`, `number of hosts`."""
    return f"number of {factor}" if factor in _COUNTED else factor_words(factor)


def at_level(factor: str, level: Any) -> str:
    """Write a level as the place of a value: `at queue depth 16`, `with 4 hosts`, `for reads`."""
    return f"{_PLURALS.get(factor, ('at', ''))[0]} {level_words(factor, level)}"


def between_levels(factor: str, low: Any, high: Any) -> str:
    """Write two levels as the ends of a range: `between queue depth 4 and 16`, `between 1 and 4 hosts`."""
    first, last, name = level_value(factor, low), level_words(factor, high), factor_words(factor)
    if last.startswith(name):
        return f"between {name} {first} and {level_value(factor, high)}"
    return f"between {first} and {last}"


def range_words(factor: str, levels: Sequence[Any], chosen: Sequence[Any]) -> str:
    """Name the levels for which a statement is true: ` with blocks up to 64 KiB`, ` at every queue depth`.

    `levels` are all levels in order, `chosen` those that the statement is true for. Levels that are not consecutive
    are listed.
    """
    if len(chosen) == len(levels):
        if set(levels) == {0.0, 1.0} and factor == "read_fraction":
            return " for reads and writes"
        return f" at every {quantity_words(factor)}" if len(levels) > 1 else ""
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


def load_words(case: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, str]:
    """Describe a case's load in words that make up `4 KiB random buffered reads`, by parameter and in that order.

    Parameters in `without` are left out, and so is direct I/O, the default.
    """
    # An external command may have parameters of other loads, such as the server that it connects to.
    known = sorted(workloads().values(), key=lambda each: each.io != "command")
    usual = next(each for each in known if not each.subject)
    found = next((each for each in known if each.subject and case.get(each.subject)), usual).words(case)
    return {name: word for name, word in found.items() if name not in without}


_SHOWN_IN_WORDS = {"jobs", "queue_depth", *(name for each in workloads().values() for name in each.stated)}
_NOUNS = {"read_fraction", "phase", *(each.subject for each in workloads().values())}
"""Parameters whose words end the name of a load."""


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


def phrase(words: Mapping[str, str]) -> str:
    """Join the words of a load; without an operation it needs a noun."""
    return " ".join([*words.values(), *([] if _NOUNS & words.keys() else ["I/O"])])


def sentence(text: str) -> str:
    """Start with a capital letter; `p99` and names in backticks stay as they are."""
    return text if re.match(r"p\d", text) else text[:1].upper() + text[1:]


_UNIT = re.compile(r"(?<=\d) (?=(?:%|ns|µs|ms|s|min|h|[kM]|B|[kKMGT]i?B(?:/s)?|IOPS)(?!\w))|(?<=\d [kM]) (?=IOPS\b)")


def unbroken(text: str) -> str:
    """Keep numbers and their units on one line, by no-break spaces."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def counted(count: int, noun: str) -> str:
    """Count things: `1 run`, `3 runs`, `12,345 cases`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def some(count: int, total: int, noun: str) -> str:
    """Count things among others: `2 of 5 runs`, `the only run`."""
    return f"{format_count(count)} of {counted(total, noun)}" if total > 1 else f"the only {noun}"


def listing(items: Sequence[str]) -> str:
    """Join items: `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}") if value < 10_000 else value
