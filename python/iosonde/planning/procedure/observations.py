"""Interface of procedures: forecasts for the plan, runs that they yield, observations that they receive, conclusions.

An observation is the latest completed attempt of a run. A record counts only if its parameters are those that the
procedure needs now: when an earlier run is repeated with another result, later decisions change, and records of the
former path no longer apply.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from iosonde.plan import Case, JsonObject, Procedure, Run, Scalar
from iosonde.study.model import Parameters
from iosonde.study.workload.block import BLOCK

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
    return Run(
        run_id=run_id,
        case_id="/".join([case.case_id, *(f"{key}={level_text(level)}" for key, level in levels.items())]),
        repeat=repeat,
        order=-1,
        spec=BLOCK.vary(procedure.spec, {**case.parameters, **parameters}, seed=seed, run_id=run_id, streams=streams),
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


class Observation(Protocol):
    """One run that has ended."""

    @property
    def failure(self) -> str:
        """Reason for a missing result; empty if there is one."""

    @property
    def session(self) -> str:
        """The `run` or `resume` that carried it out."""

    def value(self, metric: str, *, stream: str = "", operation: str = "") -> float | None:
        """A metric of the measurement, of the whole load unless a stream or operation is named; None if unknown."""

    def slow_shares(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        """Of each slice of the measurement: the I/Os that took longer than the threshold, and all of them."""


class Observations(Protocol):
    """All observations so far."""

    session: str
    """The current `run` or `resume`; empty for a reader."""

    def observation(self, run: Run) -> Observation | None:
        """The observation of a run, if it was carried out with the same parameters."""

    def elapsed_s(self) -> float:
        """Time of all runs so far, in seconds."""

    def noise(self) -> RepeatNoise:
        """The noise of repeats, estimated over all cases so far."""

    def best(self, part: str, metric: str, levels: Mapping[str, Any]) -> float | None:
        """The best median of a metric among the cases of a part that share these levels."""

    def conclusion(self, part: str, levels: Mapping[str, Any]) -> Conclusion | None:
        """The conclusion of the procedure of the part's case with these levels."""


@dataclass(frozen=True)
class RecordObservation:
    """A record, with the tables of its run."""

    record: Record
    results: ResultSet
    """Holds only this run."""
    _metrics: Callable[[Record], pl.DataFrame]

    @property
    def failure(self) -> str:
        return self.record.failure.message if self.record.failure else ""

    @property
    def session(self) -> str:
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
        """The metric that reports show: without a stream, of the only one or of all together (`scopes.overall`)."""
        from iosonde.metrics.scopes import ALL

        rows = [each for each in self._values.get(metric, ()) if each[1] == (operation or ALL)]
        several = any(name == ALL for name, *_ in self._values.get(metric, ()))
        wanted = stream or (ALL if several else None)
        values = [value for name, _, value in rows if wanted in (None, name)]
        return float(values[0]) if len(values) == 1 else None

    def slow_shares(self, limit: Limit, slice_ns: int | None) -> list[tuple[int, int]]:
        from iosonde.metrics.limit_test import Measured

        key = ("slow_shares", limit, slice_ns)
        return self.results.derived(key, lambda: Measured.of(self.results).slices(limit, slice_ns))
