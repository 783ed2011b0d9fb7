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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from iosonde.errors import StudyError, did_you_mean
from iosonde.metrics.limit_test import Limit
from iosonde.metrics.scopes import MILLION, PERCENTILES
from iosonde.planning.procedure.observations import Observation
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
UPPER = ("<", "<=")
"""Comparisons with a bound below which values are good."""
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


@dataclass(frozen=True, kw_only=True)
class _Scoped:
    """A condition as a study writes it, and the part of the load that it is about; empty for the whole."""

    text: str
    stream: str
    operation: str


@dataclass(frozen=True, kw_only=True)
class MetricBound(_Scoped):
    """A metric on one side of a bound."""

    metric: str
    compare: str
    bound: float

    def judge(self, observation: Observation) -> Judgement:
        value = observation.value(self.metric, stream=self.stream, operation=self.operation)
        if value is None:
            return Judgement(holds=None, text="-")
        from iosonde.metrics.wording import value_text

        return Judgement(holds=self.keeps(value), text=value_text(self.metric, value))

    def keeps(self, value: float) -> bool:
        """Return True if a value is on the right side of the bound."""
        return _COMPARE[self.compare](value, self.bound)


@dataclass(frozen=True, kw_only=True)
class SlowShare(_Scoped):
    """Less than a share of I/Os take longer than a threshold, in every slice of the measurement."""

    metric: ClassVar[str] = ""
    compare: ClassVar[str] = "<"
    latency: str
    threshold_ns: int
    bound: float
    """A share of the I/Os."""
    slice_ns: int | None

    @property
    def limit(self) -> Limit:
        """The limit of each slice."""
        scope = {"stream": self.stream, "operation": self.operation}
        return _of_share(self.bound, self.latency, self.threshold_ns, scope)

    def judge(self, observation: Observation) -> Judgement:
        """By the worst slice; a slice with too few I/Os shows nothing unless it fails."""
        slices = observation.slow_shares(self.limit, self.slice_ns)
        if not slices:
            return Judgement(holds=None, text="-")
        worst = max(slow / total if total else 1.0 for slow, total in slices)
        shown = all(total * self.bound >= SAMPLES_BEYOND for _, total in slices)
        text = f"{100 * worst:.3g} % over {format_latency(self.threshold_ns)}"
        if worst >= self.bound:
            return Judgement(holds=False, text=text)
        return Judgement(holds=True if shown else None, text=text)


Condition = MetricBound | SlowShare
"""Something that holds in a run or does not."""


def parse(text: str, *, streams: Sequence[str]) -> Condition:
    """A condition as a study writes it; `streams` are the names of the streams, empty for a single one."""
    matched = _SHARE.fullmatch(text.strip()) or _BOUND.fullmatch(text.strip())
    if not matched:
        raise _wrong(text, f"write it like {_EXAMPLE}")
    stream, operation, metric = _scope(matched["name"], text, streams)
    scope = {"text": " ".join(text.split()), "stream": stream, "operation": operation}
    if matched.re is _BOUND:
        bound = _bound(metric, matched["bound"], text)
        return MetricBound(**scope, metric=metric, compare=matched["compare"], bound=bound)
    if metric not in LATENCIES:
        raise _wrong(text, f"`{metric}` is not a latency; it is one of {_listed(LATENCIES)}")
    percent = float(matched["percent"])
    if not 0 < percent <= 100:
        raise _wrong(text, f"{percent:g} % is not a share; it lies above 0 % and up to 100 %")
    return SlowShare(
        **scope,
        latency=metric,
        threshold_ns=_read(parse_duration, matched["threshold"], text),
        bound=percent / 100,
        slice_ns=_read(parse_duration, matched["slice"], text) if matched["slice"] else None,
    )


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
        raise _wrong(
            text, "; ".join(filter(None, (f"there is no metric `{metric}`", did_you_mean(metric, known_names()))))
        )
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


RATES = {"iops": "count", "ops_per_sec": "count", "bandwidth": "bytes"}
"""Metrics that are a sum over seconds."""


def limit_of(condition: Condition) -> Limit | None:
    """Return the limit that a condition is; None where intervals do not add up to its metric."""
    scope: dict[str, Any] = {"stream": condition.stream, "operation": condition.operation}
    is_upper = condition.compare in UPPER
    if isinstance(condition, SlowShare):
        return condition.limit if condition.slice_ns is None else None
    if column := RATES.get(condition.metric):
        return Limit(kind="rate", limit=condition.bound, is_upper=is_upper, column=column, **scope)
    latency, _, statistic = condition.metric.partition("_ns_")
    if not is_upper or latency not in LATENCIES:
        return None
    if statistic == "mean":
        return Limit(kind="mean", limit=condition.bound, is_upper=True, latency=latency, **scope)
    if statistic not in PERCENTILES:
        return None
    return _of_share(1 - PERCENTILES[statistic] / MILLION, latency, condition.bound, scope)


def _of_share(share: float, latency: str, threshold_ns: float, scope: Mapping[str, Any]) -> Limit:
    return Limit(kind="share", limit=share, is_upper=True, latency=latency, threshold_ns=threshold_ns, **scope)
