"""Conditions on a run: a metric within a bound, or a share of slow I/Os in every slice of time.

    response_latency_ns_p99_9 <= 1ms
    reader.read.completion_latency_ns_p99 < 500us
    achieved_rate_fraction >= 0.99
    reader.response_latency over 1ms < 5% in every 1h

A stream and an operation may precede the metric; without them it is that of the whole load.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from iosonde.errors import StudyError
from iosonde.metrics import limit_test
from iosonde.metrics.scopes import MILLION, MIXED, PERCENTILES
from iosonde.procedure.observations import Observation
from iosonde.units import format_duration, format_latency, parse_duration, parse_rate, parse_size

if TYPE_CHECKING:
    import polars as pl

    from iosonde.results import ResultSet


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

    def __str__(self) -> str:
        return self.text


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
        return Judgement(holds=self.keeps(value), text=_value_text(self.metric, value))

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


def _value_text(metric: str, value: float) -> str:
    from iosonde.metrics.wording import value_text

    return value_text(metric, value)


RATES = {"iops": "count", "ops_per_sec": "count", "bandwidth": "bytes"}
"""Metrics that are a sum over seconds."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Decision on a limit."""

    holds: bool | None
    comparison: limit_test.Comparison
    length_ns: int
    """Length of the measurement, in whole blocks."""
    is_clear: bool
    """True if the value also meets the limit that only clear values meet."""

    @property
    def reason(self) -> str:
        """Reason for an undecided outcome."""
        length, shortest, usual = map(format_duration, (self.length_ns, limit_test.SHORTEST_NS, limit_test.USUAL_NS))
        if self.length_ns < limit_test.SHORTEST_NS:
            return f"measured for {length}; at least {shortest} required"
        if self.comparison.side != "undecided":
            clear = f"{100 * (1 - limit_test.CLEAR):.0f} % from the limit"
            return f"measured for {length}; before {usual} only values {clear} pass"
        return "the interval contains the limit"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Ratio that a condition limits, and its scope."""

    kind: Literal["share", "mean", "rate"]
    limit: float
    """Of the ratio: a share, nanoseconds, or a number per second."""
    is_upper: bool
    """True if the ratio must be below."""
    stream: str
    operation: str
    latency: str = ""
    """`completion_latency` or `response_latency`."""
    threshold_ns: float = 0.0
    """Of a share: how long operations may take."""
    column: str = ""
    """Of a rate: `count` or `bytes`."""

    @property
    def clear(self) -> Limit:
        """The limit that only values clear of this one meet."""
        if self.kind == "share":
            return replace(self, threshold_ns=limit_test.CLEAR * self.threshold_ns)
        return replace(self, limit=self.limit * limit_test.CLEAR if self.is_upper else self.limit / limit_test.CLEAR)

    def decide(self, blocks_of: Callable[[Limit], limit_test.Blocks]) -> Decision | None:
        """Judge the blocks that a limit has; None without operations."""
        blocks = blocks_of(self)
        is_share = self.kind == "share"
        at_limit = limit_test.compare(blocks, self.limit, is_share=is_share)
        clear = limit_test.compare(blocks_of(self.clear), self.clear.limit, is_share=is_share)
        if at_limit is None or clear is None:
            return None
        good: Literal["below", "above"] = "below" if self.is_upper else "above"
        holds = limit_test.decide(at_limit, clear, blocks, good=good)
        return Decision(
            holds=holds, comparison=at_limit, length_ns=blocks.length_ns, is_clear=bool(holds) and clear.side == good
        )

    def fails_without(self, share: float, blocks: limit_test.Blocks) -> bool:
        """Return True if the limit is certainly not met even if this share of operations, or of the time, is excused.

        Excused operations of a percentile count as fast, and excused time lengthens each latency and stops each rate.
        """
        limit = self.limit
        if self.kind == "share":
            limit = min(1.0, limit + share)
        elif self.is_upper:
            limit = math.inf if share >= 1 else limit / (1 - share) if self.kind == "mean" else limit
        else:
            limit *= 1 - share
        found = limit_test.compare(blocks, limit, is_share=self.kind == "share")
        return found is not None and found.side == ("above" if self.is_upper else "below")


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


@dataclass(frozen=True)
class Measured:
    """The measurements of recorded runs: of each what its intervals contribute."""

    intervals: pl.DataFrame
    histograms: pl.DataFrame
    _blocks: dict[Limit, dict[str, limit_test.Blocks]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, results: ResultSet) -> Measured:
        """Read the measurements of all runs of a result set."""
        import polars as pl

        return cls(*(table.filter(pl.col("phase") == "measure") for table in (results.intervals, results.histograms)))

    def each(self, limits: Iterable[Limit]) -> Mapping[str, Measured]:
        """Return the measurement of each run by its id, with the blocks of some limits, computed for all at once."""
        histograms = self.histograms.partition_by("run_id", as_dict=True)
        none = self.histograms.clear()
        intervals = self.intervals.partition_by("run_id", as_dict=True)
        found = {str(key[0]): Measured(rows, histograms.get(key, none)) for key, rows in intervals.items()}
        for limit in limits:
            for run_id, blocks in self.blocks(limit).items():
                found[run_id]._blocks[limit] = {run_id: blocks}
        return found

    def blocks(self, limit: Limit) -> Mapping[str, limit_test.Blocks]:
        """Return the blocks of each run, by its id."""
        import polars as pl

        if limit not in self._blocks:
            times = self.intervals.select("run_id", "interval", "begin_ns", "end_ns").unique()
            rows = times.join(self._sums(limit), on=["run_id", "interval"], how="left").fill_null(0)
            seconds = (pl.col("end_ns") - pl.col("begin_ns")) / 1e9
            weight = seconds if limit.kind == "rate" else pl.col("weight")
            rows = rows.with_columns(pl.col("amount").cast(pl.Float64), weight=weight.cast(pl.Float64))
            self._blocks[limit] = {
                str(key[0]): limit_test.blocks_of(*(run[name].to_list() for name in ("begin_ns", "amount", "weight")))
                for key, run in rows.sort("run_id", "interval").partition_by("run_id", as_dict=True).items()
            }
        return self._blocks[limit]

    def slices(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        """Return of each slice of all runs the operations that took longer than the threshold, and all of them.

        A slice in which nothing completed has no operations, which is not the same as none that are slow.
        """
        import polars as pl

        if self.intervals.filter(_covered(limit)).is_empty():
            return []
        times = self.intervals.select("run_id", "interval", "begin_ns", "end_ns").unique()
        sliced = (
            times.with_columns(slice=limit_test.slice_of(slice_ns))
            .join(self._sums(limit), on=["run_id", "interval"], how="left")
            .group_by("run_id", "slice")
            .agg(pl.col("amount", "weight").fill_null(0).sum())
            .sort("run_id", "slice")
        )
        return sliced.select("amount", "weight").rows()

    def distribution(self, limit: Limit) -> tuple[limit_test.Floats, limit_test.Floats]:
        """Return the latencies of a limited share in ascending order, and how many operations of all runs took each."""
        import polars as pl

        merged = self._buckets(limit).group_by("midpoint_ns").agg(pl.col("count").sum()).sort("midpoint_ns")
        latencies, counts = (merged[name].cast(pl.Float64).to_numpy() for name in ("midpoint_ns", "count"))
        return latencies, counts

    def _sums(self, limit: Limit) -> pl.DataFrame:
        """Sum up each interval with covered operations."""
        import polars as pl

        if limit.kind == "share":
            slow = pl.col("count").filter(pl.col("midpoint_ns") > limit.threshold_ns).sum()
            buckets = self._buckets(limit).group_by("run_id", "interval")
            return buckets.agg(amount=slow, weight=pl.col("count").sum())
        amount = pl.col(limit.column or f"{limit.latency}_ns_sum")
        covered = self.intervals.filter(_covered(limit)).group_by("run_id", "interval")
        return covered.agg(amount=amount.sum(), weight=pl.col("count").filter(amount.is_not_null()).sum())

    def _buckets(self, limit: Limit) -> pl.DataFrame:
        import polars as pl

        kind = limit.latency.removesuffix("_latency")
        return self.histograms.filter(pl.col("latency") == kind, _covered(limit))


def _covered(limit: Limit) -> pl.Expr:
    import polars as pl

    operations = [limit.operation] if limit.operation else list(MIXED)
    return pl.col("operation").is_in(operations) & ((pl.col("stream") == limit.stream) | (limit.stream == ""))
