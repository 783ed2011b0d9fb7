"""Procedures: cases whose runs are not all known beforehand, because each depends on earlier results.

A procedure is data in the plan (`Case.procedure`). Its kind is one file here, which offers

- `runs(case, observations)`: a generator that yields the next run, receives its observation, and returns a
  `Conclusion`. It depends only on its arguments and is replayed from the start over the existing records at every
  decision, so a study that was killed continues without any stored state;
- `forecast(part, study)`: its settings, the extremes to check, and the upper bound of its runs;
- `INTERLEAVED`: whether the cases of a part alternate run by run, or each completes before the next starts.

`progress` replays one procedure. `Schedule` has the next run of a study: first those that the plan lists, then those
that its procedures decide on. Conclusions are not stored: they are derived from the records whenever they are needed.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from iosonde.base.features import contributed
from iosonde.errors import IosondeError, ResultsError, StudyError
from iosonde.plan import Case, Plan, Run
from iosonde.planning.procedure import derived, rounds, search, until
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RecordObservation,
    UnfinishedError,
    procedure_of,
)
from iosonde.results.result_set import ResultSet
from iosonde.study.model import Part, Study

if TYPE_CHECKING:
    import polars as pl

    from iosonde.metrics.statistics import RepeatNoise
    from iosonde.results.schema import Record

RunGenerator = Generator[Run, Observation, Conclusion]


class Kind(Protocol):
    """Interface of a kind of procedure."""

    INTERLEAVED: bool

    def forecast(self, part: Part, study: Study) -> Forecast:
        """Its contribution to the plan; `StudyError` if the part is invalid."""

    def runs(self, case: Case, observations: Observations) -> RunGenerator:
        """The runs of the procedure, one after the other."""


_OF_PARTS: Mapping[str, Kind] = {"derived": derived, "rounds": rounds, "search": search, "until": until}
"""Kinds by their names, which are keys of a part in a study file."""


@cache
def kinds() -> Mapping[str, Kind]:
    """Every kind by its name, those of features too.

    They are looked up when they are needed: a module of a feature may be imported first, and imports this one.
    """
    return {**_OF_PARTS, **dict(contributed("procedures", "KINDS", tuple))}


def kind_of(part: Part) -> str:
    """The kind of procedure of a part's cases; empty if the plan lists all their runs."""
    kinds = [name for name in _OF_PARTS if getattr(part, name, None)]
    kinds += [part.procedure.name] if part.procedure else []
    if len(kinds) > 1:
        raise StudyError(f"a part cannot have both `{kinds[0]}` and `{kinds[1]}`", hint="split it into two parts")
    return kinds[0] if kinds else ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a procedure."""

    done: Sequence[Observation]
    """Observations so far, in the order of its runs."""
    next_run: Run | None
    """None once it has ended."""
    conclusion: Conclusion | None
    """None before its end."""


def progress(case: Case, observations: Observations, *, so_far: bool = False) -> Progress:
    """Replay the procedure of a case over the existing observations; `ResultsError` where plan or records are damaged.

    With `so_far`, the conclusion before its end is that of the runs so far, where the procedure offers one. Plan and
    records may come from another person: settings and values are free-form, so any exception is an error of theirs.
    """
    try:
        return _replay(case, observations, so_far=so_far)
    except IosondeError:
        raise
    except Exception as error:
        raise ResultsError(
            f"the procedure of the case `{case.case_id}` cannot be replayed: plan or records are damaged",
            where=f"{type(error).__name__}: {error}",
            hint="restore the files of the result set, or run the study again",
        ) from error


def _replay(case: Case, observations: Observations, *, so_far: bool) -> Progress:
    runs = kinds()[procedure_of(case).kind].runs(case, observations)
    done: list[Observation] = []
    planned = 0
    try:
        run = next(runs)
        while (observation := observations.observation(run)) is not None:
            done.append(observation)
            planned += run.restart == 0
            run = runs.send(observation)
    except StopIteration as end:
        return Progress(done=done, next_run=None, conclusion=end.value)
    most = procedure_of(case).max_runs
    assert run.restart or planned < most, f"`{case.case_id}` exceeds its bound of {most} runs"
    return Progress(done=done, next_run=run, conclusion=_so_far(runs) if so_far and done else None)


def _so_far(runs: RunGenerator) -> Conclusion | None:
    try:
        runs.throw(UnfinishedError())
    except StopIteration as end:
        found: Conclusion = end.value
        return found
    except UnfinishedError:
        pass
    return None


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """Upper bound of the remaining work."""

    runs: int
    """Runs of the plan without a record."""
    at_most: int
    """Runs that procedures may still add."""
    seconds: float
    """Ramp and measurement of all these runs."""

    @classmethod
    def from_plan(cls, plan: Plan) -> Remaining:
        costs = {case.case_id: case.cost.seconds for case in plan.cases}
        bounds = [(each.procedure, each.cost.seconds) for each in plan.cases if each.procedure]
        return cls(
            runs=len(plan.runs),
            at_most=sum(procedure.max_runs for procedure, _ in bounds),
            seconds=sum(costs[run.case_id] for run in plan.runs)
            + sum(each.preparation.seconds + (each.max_runs - each.preparing) * seconds for each, seconds in bounds),
        )


class RecordedObservations:
    """The observations in a result set, read when they are needed."""

    def __init__(self, results: ResultSet, *, ignoring: Collection[tuple[str, int]] = (), session: str = "") -> None:
        """`ignoring`: attempts (run id, number) that do not count, so that their runs are repeated."""
        self.session = session
        self._results = results
        self._ignoring = frozenset(ignoring)

    def observation(self, run: Run) -> RecordObservation | None:
        """The latest attempt, if it completed and has these parameters."""
        record = self._results.record(run.run_id)
        if record is None or record.outcome == "stopped" or (record.run_id, record.attempt) in self._ignoring:
            return None
        if any(record.parameters.get(name) != value for name, value in run.parameters.items()):
            return None
        return self._observation(record)

    def _observation(self, record: Record) -> RecordObservation:
        return self._results.derived(
            ("observation", record.run_id, record.attempt),
            lambda: RecordObservation(record, self._results.only([record.run_id]), self._metrics),
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
        def computed() -> float:
            times = [(record.started_at, record.ended_at) for record in self._results.records()]
            spans = (datetime.fromisoformat(end) - datetime.fromisoformat(start) for start, end in times)
            return sum(span.total_seconds() for span in spans)

        return self._results.derived(("elapsed_s", self._results.attempts), computed)

    def noise(self) -> RepeatNoise:
        def computed() -> RepeatNoise:
            records = [each for each in self._results.records() if each.outcome == "complete" and not each.control]
            return _noise([self._observation(record).metrics for record in records])

        return self._results.derived(("noise", self._results.attempts), computed)

    def best(self, part: str, metric: str, levels: Mapping[str, Any]) -> float | None:
        """By the medians that reports show."""
        records = [record for record in self._results.records() if _is_of(record, part, levels)]
        key = ("best", metric, *((record.run_id, record.attempt) for record in records))
        ids = [each.run_id for each in records]
        return self._results.derived(key, lambda: _best_median(self._results.only(ids), metric))

    def conclusion(self, part: str, levels: Mapping[str, Any]) -> Conclusion | None:
        cases = [case for case in self._results.plan.adaptive if case.part == part and _agree(case.levels, levels)]
        return progress(cases[0], self).conclusion if cases else None


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


def conclusions(results: ResultSet) -> Sequence[tuple[Case, Conclusion | None]]:
    """Every case with a procedure in a result set, with its conclusion, or that of its runs so far."""
    observations = RecordedObservations(results)
    return [(case, progress(case, observations, so_far=True).conclusion) for case in results.plan.adaptive]


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


class Schedule:
    """The remaining runs of a result set, one by one."""

    def __init__(self, result_set: ResultSet, *, retry_failed: bool = False, session: str = "") -> None:
        """With `retry_failed`, runs that have failed so far are repeated once; unsupported combinations are not."""
        self._result_set = result_set
        # Listed once, so that a run that fails again is not repeated forever.
        self._planned = result_set.missing_runs(retry_failed=retry_failed)
        self._attempts = {run.run_id: result_set.next_attempt(run.run_id) for run in self._planned}
        failed = [each for each in result_set.records() if retry_failed and each.is_failed]
        ignoring = [(each.run_id, each.attempt) for each in failed]
        self._replayed: dict[str, Progress] = {}
        self._replayed_at = -1
        self._evidence = RecordedObservations(result_set, ignoring=ignoring, session=session)

    def next_run(self) -> Run | None:
        """The next run; the same one until it has a record, None at the end."""
        attempts = self._result_set.next_attempt
        while self._planned and attempts(self._planned[0].run_id) > self._attempts[self._planned[0].run_id]:
            self._planned.pop(0)
        return self._planned[0] if self._planned else self._decided()

    def ahead(self) -> Remaining:
        costs = {case.case_id: case.cost.seconds for case in self._result_set.plan.cases}
        open_cases: list[tuple[Case, int]] = []
        for case in self._result_set.plan.adaptive:
            is_open = bool(self._planned) or any(left for _, left in open_cases)
            open_cases.append((case, self._left(case, earlier_is_open=is_open)))
        return Remaining(
            runs=len(self._planned),
            at_most=sum(left for _, left in open_cases),
            seconds=sum(costs[run.case_id] for run in self._planned)
            + sum(case.cost.seconds * left for case, left in open_cases),
        )

    def _decided(self) -> Run | None:
        """The next run of the first part with an unfinished procedure; within the part, setup by setup."""
        for _, part in itertools.groupby(self._result_set.plan.adaptive, key=_together):
            groups: dict[tuple[str, ...], list[Case]] = {}
            for case in part:
                groups.setdefault(case.setup_key, []).append(case)
            run = next(filter(None, map(self._of_part, groups.values())), None)
            if run:
                return run.model_copy(update={"order": self._order(run)})
        return None

    def _of_part(self, cases: Sequence[Case]) -> Run | None:
        """Interleaved cases each run once before any runs again, in another order each time."""
        found = (self._progress(case) for case in cases)
        if not kinds()[procedure_of(cases[0]).kind].INTERLEAVED:
            return next((each.next_run for each in found if each.next_run), None)
        asking = [(len(each.done), each.next_run) for each in found if each.next_run]
        least = min((done for done, _ in asking), default=0)
        turn = [run for done, run in asking if done == least]
        return self._drawn(turn, least) if turn else None

    def _drawn(self, turn: Sequence[Run], number: int) -> Run:
        plan = self._result_set.plan
        if not plan.study.get("shuffle", True):
            return turn[0]
        return min(turn, key=lambda run: random.Random(f"{plan.seed}/{number}/{run.case_id}").random())

    def _progress(self, case: Case) -> Progress:
        """Replayed once after each record."""
        if self._replayed_at != self._result_set.attempts:
            self._replayed_at, self._replayed = self._result_set.attempts, {}
        if case.case_id not in self._replayed:
            self._replayed[case.case_id] = progress(case, self._evidence)
        return self._replayed[case.case_id]

    def _left(self, case: Case, *, earlier_is_open: bool) -> int:
        """Upper bound of the remaining runs of a case; all of them where it waits for the results of earlier ones."""
        found = self._progress(case)
        if found.next_run:
            return max(1, procedure_of(case).max_runs - len(found.done))
        is_unreached = found.conclusion is not None and not found.conclusion.reached
        return procedure_of(case).max_runs if earlier_is_open and is_unreached and not found.done else 0

    def _order(self, run: Run) -> int:
        """After all planned and completed runs; a further attempt keeps the position of the first."""
        earlier = self._result_set.record(run.run_id)
        if earlier:
            return earlier.order
        planned = (each.order for each in self._result_set.plan.runs)
        return max(itertools.chain(planned, (each.order for each in self._result_set.records())), default=-1) + 1


def open_runs(result_set: ResultSet) -> list[Run]:
    """The next runs of all procedures of a result set; empty once all have ended."""
    observations = RecordedObservations(result_set)
    found = (progress(case, observations).next_run for case in result_set.plan.adaptive)
    return [run for run in found if run]


def _together(case: Case) -> tuple[str, str]:
    """Cases whose runs are decided together: those of a part, or all that repeat until they are precise."""
    kind = procedure_of(case).kind
    return (kind, "" if kind == until.KIND else case.part)
