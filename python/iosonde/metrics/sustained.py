"""Steady state within runs: their intervals are gathered into rounds, and the rounds judged by `steady_state`.

Only runs whose case sets a `round_length` are judged. A round is as many whole intervals as start in it; the remainder
at the end and shorter than a round is left out. The write cliff is sought in the intervals themselves. A load that
begins after a pause (`active = "10s-"`) is judged from its start. Intervals in which the engine itself was stalled are
left out of their round; a round without any other is not a number, and so never part of a steady window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iosonde.metrics.change_points import Cliff, write_cliff
from iosonde.metrics.facts import Facts
from iosonde.metrics.registry import METRICS as REGISTRY
from iosonde.metrics.statistics import Estimate, Floats, series_interval
from iosonde.metrics.steady_state import Criteria, SteadyState, steady_state
from iosonde.study.workload.block.notation import active_window
from iosonde.study.workload.block.parameters import active_range_bytes

LOWER_IS_BETTER = ("completion_latency_ns_mean",)

Outcome = Literal["steady", "changed", "falling", "rising", "not steady", "too short", "stalled"]

STALLED_SHARE = 0.05
"""Share of an interval in which the engine did not run from which on the interval counts as stalled."""


@dataclass(frozen=True, kw_only=True)
class LongRun:
    """A run that is judged by its own rounds."""

    result_set: str
    run_id: str
    case_id: str
    part: str
    repeat: int
    tracking: str
    round_s: float
    values: Floats
    """The tracking variable in every round; empty if the run is shorter than one."""
    iops: Floats
    bandwidth: Floats
    steady: SteadyState
    cliff: Cliff | None
    cliff_s: float | None
    """End of the plateau before the cliff, since measurement start."""
    cliff_bytes: int | None
    """Written until then."""
    written_bytes: int
    """In the whole measurement."""
    range_bytes: int | None
    """Address range of the load, for a whole drive its capacity; None if streams have ranges of their own."""
    level: Estimate | None
    """Tracking variable over the last quarter since the last step, with the interval from all rounds at that level."""

    @property
    def peak(self) -> float:
        """The best round."""
        return float(np.nanmin(self.values) if self.tracking in LOWER_IS_BETTER else np.nanmax(self.values))

    @property
    def final(self) -> float | None:
        """Mean of the last window, steady or not; None with too few rounds for one."""
        return self.steady.latest.mean if self.steady.latest else None

    @property
    def outcome(self) -> Outcome:
        """Steady to the end, at a level that a step ended, still falling or rising, too short to decide, or not steady.

        `stalled`: undecided, because the engine did not run in a round of the last window.
        """
        window, latest = self.steady.measured, self.steady.latest
        if latest is None or self.steady.hidden is not None:
            return "too short"
        if not math.isfinite(latest.mean):
            return "stalled"
        if window is None:
            return self.steady.trend or ("changed" if self.steady.lost else "not steady")
        moved = float(self.bandwidth[window.first - 1 : window.last].sum()) * self.round_s
        range_bytes = None if self.tracking in LOWER_IS_BETTER else self.range_bytes
        is_long = self.steady.criteria.has_enough(
            round_ns=self.round_s * 1e9, moved_bytes=moved, range_bytes=range_bytes
        )
        return "steady" if is_long else "too short"

    def fraction(self, level: float) -> float:
        """A level as a fraction of the best round; of a latency, how many times faster the best round was, inverted."""
        return self.peak / level if self.tracking in LOWER_IS_BETTER else level / self.peak


def long_runs(facts: Facts) -> list[LongRun]:
    """Judge every run of which that is asked, by the criteria of its case."""
    asked = facts.rounds()
    if asked.is_empty():
        return []
    keys = ["result_set", "run_id"]
    runs = facts.runs().join(asked, on=["result_set", "case_id"])
    intervals = (
        facts.counts(per="interval")
        .filter(pl.col("phase") == "measure", pl.col("operation").is_in(["read", "write", "trim"]))
        .join(runs.select(keys), on=keys, how="semi")
        .group_by(*keys, "interval", "begin_ns", "end_ns")
        .agg(
            pl.col("count", "bytes", "completion_sum_ns").sum(),
            pl.col("bytes").filter(pl.col("operation") == "write").sum().alias("written"),
            pl.col("interval_stalled_ns").max().fill_null(0),
        )
        .sort(*keys, "begin_ns")
    )
    by_run = {key: group for key, group in intervals.group_by(keys, maintain_order=True)}
    found = (
        _long_run(run, by_run[run["result_set"], run["run_id"]])
        for run in runs.sort("order").to_dicts()
        if (run["result_set"], run["run_id"]) in by_run
    )
    return [long_run for long_run in found if long_run is not None]


def metrics(facts: Facts) -> pl.DataFrame:
    """Return one row a judged run with the metrics of kind `sustained` of docs/metrics.md; null where unknown."""
    rows = [{"result_set": each.result_set, "run_id": each.run_id, **dict(_metrics(each))} for each in long_runs(facts)]
    schema = {"result_set": pl.String, "run_id": pl.String, **dict.fromkeys(METRICS, pl.Float64)}
    return pl.DataFrame(rows, schema=schema)


METRICS = tuple(name for name, each in REGISTRY.items() if each.kind == "sustained")


def _metrics(long_run: LongRun) -> Iterator[tuple[str, float | None]]:
    window = long_run.steady.measured
    if len(long_run.iops):
        yield "peak_iops", float(np.nanmax(long_run.iops))
    if long_run.final and math.isfinite(long_run.final):
        yield "final_fraction", long_run.fraction(long_run.final)
    if window and long_run.steady.quarter and long_run.steady.level:
        first, last = long_run.steady.quarter
        rounds = slice(first - 1, last)
        yield "steady_iops", float(np.nanmean(long_run.iops[rounds]))
        yield "steady_bandwidth", float(np.nanmean(long_run.bandwidth[rounds]))
        yield "steady_fraction", long_run.fraction(long_run.steady.level)
        yield "seconds_to_steady_state", window.last * long_run.round_s
    if long_run.cliff_s is not None and long_run.cliff_bytes is not None:
        yield "seconds_to_cliff", long_run.cliff_s
        yield "gibibytes_to_cliff", long_run.cliff_bytes / (1 << 30)


def _long_run(run: dict[str, object], intervals: pl.DataFrame) -> LongRun | None:
    intervals = _loaded(intervals, run.get("active"))
    if intervals.is_empty():
        return None
    names = ("begin_ns", "end_ns", "count", "bytes", "completion_sum_ns", "interval_stalled_ns")
    series = Series(intervals.select(pl.col(names).cast(pl.Float64)).rows())
    length = float(run["round_length"])  # type: ignore[arg-type]
    rounds = gather(series, length)
    tracking = str(run["tracking"])
    values = rounds[tracking]
    if len(values) and not np.nanmax(values) > 0:
        return None
    steady = steady_state(values, criteria=Criteria.from_parameters(run))
    begin, end, *_ = series.columns
    written = intervals["written"].cast(pl.Float64).to_numpy()
    # Runs that are not judged have written bytes too.
    judged = np.flatnonzero(~series.stalled_intervals & (end > begin))
    cliff = write_cliff(written[judged] / ((end - begin)[judged] / 1e9))
    at = int(judged[cliff.index]) if cliff else None
    return LongRun(
        result_set=str(run["result_set"]),
        run_id=str(run["run_id"]),
        case_id=str(run["case_id"]),
        part=str(run["part"]),
        repeat=int(run["repeat"]),  # type: ignore[call-overload]
        tracking=tracking,
        round_s=length / 1e9,
        values=values,
        iops=rounds["iops"],
        bandwidth=rounds["bandwidth"],
        steady=steady,
        cliff=cliff,
        cliff_s=None if at is None else float(begin[at] - begin[0]) / 1e9,
        cliff_bytes=None if at is None else int(written[:at].sum()),
        written_bytes=int(written.sum()),
        range_bytes=active_range_bytes(run),
        level=_level(steady, series, length, _of_intervals(tracking, series)),
    )


@dataclass
class Series:
    """The intervals of a measurement."""

    rows: list[tuple[float, ...]] = field(default_factory=list)
    """Start and end in nanoseconds, I/Os, bytes, sum of their latencies, and nanoseconds in which the engine did not
    run."""

    @property
    def columns(self) -> list[Floats]:
        """The same by column."""
        return list(np.asarray(self.rows, dtype=np.float64).T)

    def whole_rounds(self, length_ns: float) -> int:
        """Number of complete rounds of that length; the last may be up to 5 % shorter."""
        return int((self.rows[-1][1] - self.rows[0][0] + 0.05 * length_ns) // length_ns)

    @property
    def stalled_intervals(self) -> NDArray[np.bool_]:
        """Mask of the intervals to exclude because the engine itself did not run for part of them."""
        begin, end, *_, stalled = self.columns
        return stalled >= STALLED_SHARE * np.maximum(end - begin, 1)

    def numbers(self, length_ns: float) -> NDArray[np.int64]:
        """Round of each interval, from 0: the one that contains its middle."""
        begin, end, *_ = self.columns
        numbers: NDArray[np.int64] = ((begin - begin[0] + (end - begin) / 2) // length_ns).astype(np.int64)
        return numbers


def gather(series: Series, length_ns: float) -> dict[str, Floats]:
    """Return what may be tracked, in every whole round: IOPS, bytes per second, mean latency in nanoseconds."""
    number, whole = series.numbers(length_ns), series.whole_rounds(length_ns)
    begin, end, *summed, _ = series.columns
    kept = ~series.stalled_intervals
    seconds, counts, moved, latency = (
        np.bincount(number, weights=each * kept)[:whole] for each in ((end - begin) / 1e9, *summed)
    )
    unknown = np.full(whole, np.nan)
    return {
        "iops": np.divide(counts, seconds, out=unknown.copy(), where=seconds > 0),
        "bandwidth": np.divide(moved, seconds, out=unknown.copy(), where=seconds > 0),
        "completion_latency_ns_mean": np.divide(
            latency, counts, out=np.where(seconds > 0, 0.0, np.nan), where=counts > 0
        ),
    }


def _loaded(intervals: pl.DataFrame, active: object) -> pl.DataFrame:
    """The intervals since the load began; where load and pause alternate, all of them."""
    if not isinstance(active, str) or " every " in active:
        return intervals
    since_start = pl.col("begin_ns") - pl.col("begin_ns").min()
    return intervals.filter(since_start >= active_window(active)["begin_ns"])


def _of_intervals(tracking: str, series: Series) -> Floats:
    begin, end, counts, moved, latency, _ = series.columns
    if tracking in LOWER_IS_BETTER:
        return np.divide(latency, counts, out=np.zeros(len(counts)), where=counts > 0)
    return (counts if tracking == "iops" else moved) / ((end - begin) / 1e9)


def _level(steady: SteadyState, series: Series, length_ns: float, values: Floats) -> Estimate | None:
    """Return the level of the last quarter, with the interval from all intervals since its level was reached."""
    if steady.measured is None or steady.quarter is None or steady.level is None:
        return None
    number, begin = series.numbers(length_ns) + 1, max(steady.measured.first, steady.middle)
    kept = (number >= begin) & (number <= steady.rounds) & ~series.stalled_intervals
    last = int((kept & (number >= steady.quarter[0])).sum())
    return series_interval(values[kept], last=last)
