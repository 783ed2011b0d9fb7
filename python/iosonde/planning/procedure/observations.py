"""Interface of procedures: forecasts for the plan, runs that they yield, observations that they receive, conclusions.

An observation is the latest completed attempt of a run. A record counts only if its parameters are those that the
procedure needs now: when an earlier run is repeated with another result, later decisions change, and records of the
former path no longer apply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from iosonde.plan import Case, JsonObject, Procedure, Run, Scalar
from iosonde.study.model import Parameters
from iosonde.study.workload import described

if TYPE_CHECKING:
    import polars as pl

    from iosonde.metrics.limit_test import Limit
    from iosonde.metrics.statistics import RepeatNoise
    from iosonde.results import ResultSet
    from iosonde.results.schema import Record


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Settings and bounds of a procedure."""

    settings: JsonObject
    """Everything that its decisions depend on besides records."""
    extremes: Sequence[Parameters]
    """The extreme parameters that it may set, as written; the case is checked with each, the largest last."""
    decided: Sequence[str]
    """Parameters that the procedure sets, so that the case does not have them."""
    max_runs: int
    """Upper bound of its runs."""
    rates_known: bool = True
    """True if the extremes bound the load on the target."""
    preparing: int = 0
    """Number of runs among them that prepare the target or are stages, whose duration differs."""
    stages: Sequence[Parameters] = ()
    """The stages after the rounds of each repeat, as written."""
    uncertain: bool = True
    """True if it may need fewer."""
    text: str
    """Its steps and bounds, for a reader of the plan."""


def procedure_of(case: Case) -> Procedure:
    assert case.procedure, f"`{case.case_id}` has no procedure"
    return case.procedure


def probe(
    case: Case,
    name: str,
    repeat: int,
    *,
    levels: dict[str, Scalar],
    parameters: JsonObject,
    streams: Sequence[str] = (),
) -> Run:
    """Repeat `repeat` of the case with these parameters on top; its id ends in `NAME-rREPEAT`, or `rREPEAT`.

    `levels` is what a reader sees of them: with any, the run belongs to a case of its own, named after them. Its
    place in the order of execution is set when it is carried out. `streams` are other streams than those of the case.
    """
    procedure = procedure_of(case)
    ending = f"{name}-r{repeat}" if name else f"r{repeat}"
    run_id = f"{procedure.stem}-{ending}"
    seed = seed_of(procedure.spec["seed"], ending)
    workload = described(procedure.spec["workload"])
    return Run(
        run_id=run_id,
        case_id="/".join([case.case_id, *(f"{key}={level_text(level)}" for key, level in levels.items())]),
        repeat=repeat,
        order=-1,
        spec=workload.vary(
            procedure.spec, {**case.parameters, **parameters}, seed=seed, run_id=run_id, streams=streams
        ),
        levels=levels,
        parameters=parameters,
    )


def rounded(value: float) -> float:
    """Six digits, which is what the name of a case shows."""
    return float(f"{value:.6g}")


def level_text(level: Any) -> str:
    """A number as in the name of a case."""
    if isinstance(level, float) and not level.is_integer():
        return f"{level:.6g}"
    return str(int(level) if isinstance(level, float) else level)


def seed_of(seed: int, ending: str) -> int:
    """Another for each run; below 2^53, so that every reader of JSON has it exactly."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{ending}".encode()).digest()[:8]) >> 11


class UnfinishedError(Exception):
    """Thrown into a procedure in place of its next observation: a reader asks what the runs so far show.

    A procedure that can tell returns its conclusion; others let the error pass.
    """


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The result of a procedure; kinds extend it."""

    case_id: str
    reached: bool
    """True if it succeeded."""
    reason: str = ""
    """Reason for failure; empty if it succeeded."""
    value: float | None = None
    """The value that it searched for, if it found one."""

    @property
    def steps(self) -> Collection[str]:
        """Cases whose values have no meaning but in this conclusion: other findings leave them out."""
        return ()


@dataclass(frozen=True)
class Observation:
    """One run that has ended: its record, with the tables of its run."""

    record: Record
    results: ResultSet
    """Holds only this run."""
    _metrics: Callable[[Record], pl.DataFrame]

    @property
    def failure(self) -> str:
        """Reason for a missing result; empty if there is one."""
        return self.record.failure.message if self.record.failure else ""

    @property
    def session(self) -> str:
        """The `run` or `resume` that carried it out."""
        return self.record.session

    @cached_property
    def metrics(self) -> pl.DataFrame:
        return self._metrics(self.record)

    @cached_property
    def _values(self) -> dict[str, list[tuple[str, str, float]]]:
        """Stream, operation and value of each metric: procedures are replayed before each run, and read all again."""
        found: dict[str, list[tuple[str, str, float]]] = {}
        for metric, *scope in self.metrics.select("metric", "stream", "operation", "value").iter_rows():
            found.setdefault(metric, []).append(tuple(scope))
        return found

    def value(self, metric: str, *, stream: str = "", operation: str = "") -> float | None:
        """A metric of the measurement, as reports show it; None if unknown.

        Without a stream it is that of the only one, or of all together (`scopes.overall`).
        """
        from iosonde.metrics.scopes import ALL

        rows = [each for each in self._values.get(metric, ()) if each[1] == (operation or ALL)]
        several = any(name == ALL for name, *_ in self._values.get(metric, ()))
        wanted = stream or (ALL if several else None)
        values = [value for name, _, value in rows if wanted in (None, name)]
        return float(values[0]) if len(values) == 1 else None

    def slow_shares(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        """Of each slice of the measurement: the I/Os that took longer than the threshold, and all of them."""
        from iosonde.metrics.limit_test import Measured

        key = ("slow_shares", limit, slice_ns)
        return self.results.derived(key, lambda: Measured.of(self.results).slices(limit, slice_ns))


class Observations:
    """The observations in a result set, read when they are needed."""

    def __init__(
        self,
        results: ResultSet,
        conclude: Callable[[Case, Observations], Conclusion | None],
        *,
        ignoring: Collection[tuple[str, int]] = (),
        session: str = "",
    ) -> None:
        """`ignoring`: attempts (run id, number) that do not count, so that their runs are repeated."""
        self.session = session
        """The current `run` or `resume`; empty for a reader."""
        self._results, self._conclude = results, conclude
        self._ignoring = frozenset(ignoring)

    def observation(self, run: Run) -> Observation | None:
        """The latest attempt, if it completed and has these parameters."""
        record = self._results.record(run.run_id)
        if record is None or record.outcome == "stopped" or (record.run_id, record.attempt) in self._ignoring:
            return None
        if any(record.parameters.get(name) != value for name, value in run.parameters.items()):
            return None
        return self._observation(record)

    def _observation(self, record: Record) -> Observation:
        return self._results.derived(
            ("observation", record.run_id, record.attempt),
            lambda: Observation(record, self._results.only([record.run_id]), self._metrics),
        )

    def _metrics(self, record: Record) -> pl.DataFrame:
        """Metrics of a run, computed together with those of all others that are not known yet: a reader needs most."""
        known: dict[tuple[str, int], pl.DataFrame] = self._results.derived("run_metrics", dict)
        if (record.run_id, record.attempt) not in known:
            attempts = [(each.run_id, each.attempt) for each in self._results.records()]
            lacking = dict(attempt for attempt in attempts if attempt not in known)
            known |= _metrics_by_run(self._results.only(lacking), lacking)
        return known[record.run_id, record.attempt]

    def elapsed_s(self) -> float:
        """Time of all runs so far, in seconds."""

        def computed() -> float:
            times = [(record.started_at, record.ended_at) for record in self._results.records()]
            spans = (datetime.fromisoformat(end) - datetime.fromisoformat(start) for start, end in times)
            return sum(span.total_seconds() for span in spans)

        return self._results.derived(("elapsed_s", self._results.attempts), computed)

    def noise(self) -> RepeatNoise:
        """The noise of repeats, estimated over all cases so far."""

        def computed() -> RepeatNoise:
            records = [each for each in self._results.records() if each.outcome == "complete" and not each.control]
            return _noise([self._observation(record).metrics for record in records])

        return self._results.derived(("noise", self._results.attempts), computed)

    def best(self, part: str, metric: str, levels: Mapping[str, Any]) -> float | None:
        """The best median of a metric, as reports show it, among the cases of a part that share these levels."""
        records = [record for record in self._results.records() if _is_of(record, part, levels)]
        key = ("best", metric, *((record.run_id, record.attempt) for record in records))
        ids = [each.run_id for each in records]
        return self._results.derived(key, lambda: _best_median(self._results.only(ids), metric))

    def conclusion(self, part: str, levels: Mapping[str, Any]) -> Conclusion | None:
        """The conclusion of the procedure of the part's case with these levels."""
        cases = [case for case in self._results.plan.adaptive if case.part == part and _agree(case.levels, levels)]
        return self._conclude(cases[0], self) if cases else None


def _metrics_by_run(results: ResultSet, attempts: Mapping[str, int]) -> dict[tuple[str, int], pl.DataFrame]:
    from iosonde.metrics.metrics import run_metrics

    metrics = run_metrics(results)
    by_run = metrics.partition_by("run_id", maintain_order=True, as_dict=True)
    return {run: by_run.get((run[0],), metrics.clear()) for run in attempts.items()}


def _noise(frames: Sequence[pl.DataFrame]) -> RepeatNoise:
    import polars as pl

    from iosonde.metrics.metrics import repeat_noise
    from iosonde.metrics.statistics import UNKNOWN_NOISE

    return next(iter(repeat_noise(pl.concat(frames)).values()), UNKNOWN_NOISE) if frames else UNKNOWN_NOISE


def _best_median(results: ResultSet, metric: str) -> float | None:
    import polars as pl

    from iosonde.metrics.metrics import case_metrics, run_metrics
    from iosonde.metrics.registry import metric as metric_of
    from iosonde.metrics.scopes import overall

    if not results.records():
        return None
    medians = case_metrics(overall(run_metrics(results))).filter(pl.col("metric") == metric)["median"]
    if medians.is_empty():
        return None
    return float(medians.min() if metric_of(metric).better == "lower" else medians.max())  # type: ignore[arg-type]


def _is_of(record: Record, part: str, levels: Mapping[str, Any]) -> bool:
    return record.part == part and record.outcome == "complete" and _agree(record.levels, levels)


def _agree(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return True if two combinations agree on the factors that both have."""
    return all(others[name] == level for name, level in some.items() if name in others)


RunGenerator = Generator[Run, Observation, Conclusion]
"""The runs of a procedure, one after the other."""
