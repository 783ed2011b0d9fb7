"""Conditions on a run: a metric within a bound, or a share of slow I/Os in every slice of time.

    response_latency_ns_p99_9 <= 1ms
    reader.read.completion_latency_ns_p99 < 500us
    achieved_rate_fraction >= 0.99
    reader.response_latency over 1ms < 5% in every 1h

A stream and an operation may precede the metric; without them it is that of the whole load.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from iosonde.errors import StudyError
from iosonde.procedure.observations import Observation
from iosonde.units import format_latency, parse_duration, parse_rate, parse_size

SAMPLES_BEYOND = 10
"""A share is judged only where this many I/Os would be beyond the threshold at its bound, as with percentiles."""

OPERATIONS = ("read", "write", "trim", "flush")
LATENCIES = ("completion_latency", "response_latency")

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}
_SHARE = re.compile(
    r"(?P<name>\S+)\s+over\s+(?P<threshold>\S+)\s*<\s*(?P<percent>[0-9.]+)\s*%(\s+in\s+every\s+(?P<slice>\S+))?"
)
_BOUND = re.compile(r"(?P<name>\S+)\s*(?P<compare><=|>=|<|>)\s*(?P<bound>\S+( [a-zA-Zµ/]+)?)")
Number = TypeVar("Number", int, float)

_EXAMPLE = "`response_latency_ns_p99_9 <= 1ms` or `read.response_latency over 1ms < 5% in every 1h`"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of a condition in a run."""

    holds: bool | None
    """None with too few samples for an answer."""
    text: str
    """Measured value, as text."""


class Condition(Protocol):
    """Something that holds in a run or does not, with its text."""

    def judge(self, observation: Observation) -> Judgement:
        """Return whether the condition holds in a run."""


@dataclass(frozen=True, kw_only=True)
class MetricBound:
    """A metric on one side of a bound."""

    text: str
    stream: str
    operation: str
    metric: str
    compare: str
    bound: float

    def __str__(self) -> str:
        return self.text

    def judge(self, observation: Observation) -> Judgement:
        value = observation.value(self.metric, stream=self.stream, operation=self.operation)
        if value is None:
            return Judgement(holds=None, text="-")
        return Judgement(holds=self.keeps(value), text=_value_text(self.metric, value))

    def keeps(self, value: float) -> bool:
        """Return True if a value is on the right side of the bound."""
        return _COMPARE[self.compare](value, self.bound)


@dataclass(frozen=True, kw_only=True)
class SlowShare:
    """Less than a share of I/Os take longer than a threshold, in every slice of the measurement."""

    text: str
    stream: str
    operation: str
    latency: str
    threshold_ns: int
    share: float
    slice_ns: int | None

    def __str__(self) -> str:
        return self.text

    def judge(self, observation: Observation) -> Judgement:
        """By the worst slice; a slice with too few I/Os shows nothing unless it fails."""
        slices = observation.slow_shares(
            self.latency, self.threshold_ns, slice_ns=self.slice_ns, stream=self.stream, operation=self.operation
        )
        if not slices:
            return Judgement(holds=None, text="-")
        worst = max(slow / total if total else 1.0 for slow, total in slices)
        shown = all(total * self.share >= SAMPLES_BEYOND for _, total in slices)
        text = f"{100 * worst:.3g} % over {format_latency(self.threshold_ns)}"
        if worst >= self.share:
            return Judgement(holds=False, text=text)
        return Judgement(holds=True if shown else None, text=text)


def parse(text: str, *, streams: Sequence[str]) -> Condition:
    """A condition as a study writes it; `streams` are the names of the streams, empty for a single one."""
    if matched := _SHARE.fullmatch(text.strip()):
        stream, operation, latency = _scope(matched["name"], text, streams)
        if latency not in LATENCIES:
            raise _wrong(text, f"`{latency}` is not a latency; it is one of {_listed(LATENCIES)}")
        percent = float(matched["percent"])
        if not 0 < percent <= 100:
            raise _wrong(text, f"{percent:g} % is not a share; it lies above 0 % and up to 100 %")
        return SlowShare(
            text=_canonical(text),
            stream=stream,
            operation=operation,
            latency=latency,
            threshold_ns=_read(parse_duration, matched["threshold"], text),
            share=percent / 100,
            slice_ns=_read(parse_duration, matched["slice"], text) if matched["slice"] else None,
        )
    if matched := _BOUND.fullmatch(text.strip()):
        stream, operation, metric = _scope(matched["name"], text, streams)
        return MetricBound(
            text=_canonical(text),
            stream=stream,
            operation=operation,
            metric=metric,
            compare=matched["compare"],
            bound=_bound(metric, matched["bound"], text),
        )
    raise _wrong(text, f"write it like {_EXAMPLE}")


def _scope(name: str, text: str, streams: Sequence[str]) -> tuple[str, str, str]:
    """Stream, operation and metric of `STREAM.OPERATION.METRIC`."""
    *scope, metric = name.split(".")
    stream = scope.pop(0) if scope and scope[0] in streams else ""
    operation = scope.pop(0) if scope and scope[0] in OPERATIONS else ""
    if scope:
        known = _listed([*streams, *OPERATIONS])
        raise _wrong(text, f"`{scope[0]}` is neither stream nor operation; there are {known}")
    return stream, operation, metric


def _bound(metric: str, bound: str, text: str) -> float:
    from iosonde.metrics.registry import find, known_names

    found = find(metric)
    if found is None:
        import difflib

        near = difflib.get_close_matches(metric, known_names(), n=1)
        raise _wrong(text, f"there is no metric `{metric}`" + (f"; did you mean `{near[0]}`?" if near else ""))
    match found.unit:
        case "ns":
            return _read(parse_duration, bound, text)
        case "B/s":
            return _read(parse_size, bound.removesuffix("/s"), text)
        case _:
            return _read(parse_rate, bound.removesuffix("IOPS").strip(), text)


def _read(parser: Callable[[str], Number], value: str, text: str) -> Number:
    try:
        return parser(value)
    except ValueError as error:
        raise _wrong(text, str(error)) from None


def _wrong(text: str, reason: str) -> StudyError:
    what, _, hint = reason.partition("; ")
    return StudyError(f"invalid condition `{text}`: {what}", hint=hint)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _canonical(text: str) -> str:
    return " ".join(text.split())


def _value_text(metric: str, value: float) -> str:
    from iosonde.metrics.wording import value_text

    return value_text(metric, value)
