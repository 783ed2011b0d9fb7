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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from iosonde.base.features import contributed
from iosonde.errors import IosondeError, ResultsError, StudyError
from iosonde.plan import Case, Plan, Run
from iosonde.planning.procedure import derived, rounds, search, until
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RunGenerator,
    UnfinishedError,
    procedure_of,
)
from iosonde.results.result_set import ResultSet
from iosonde.study.model import UNTIL, Part, Study


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


def observations_in(
    results: ResultSet, *, ignoring: Collection[tuple[str, int]] = (), session: str = ""
) -> Observations:
    """Return the observations in a result set without some attempts (run id, number), read when they are needed."""
    return Observations(results, lambda case, seen: progress(case, seen).conclusion, ignoring=ignoring, session=session)


def conclusions(results: ResultSet) -> Sequence[tuple[Case, Conclusion | None]]:
    """Every case with a procedure in a result set, with its conclusion, or that of its runs so far."""
    observations = observations_in(results)
    return [(case, progress(case, observations, so_far=True).conclusion) for case in results.plan.adaptive]


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
        self._evidence = observations_in(result_set, ignoring=ignoring, session=session)

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
    observations = observations_in(result_set)
    found = (progress(case, observations).next_run for case in result_set.plan.adaptive)
    return [run for run in found if run]


def _together(case: Case) -> tuple[str, str]:
    """Cases whose runs are decided together: those of a part, or all that repeat until they are precise."""
    kind = procedure_of(case).kind
    return (kind, "" if kind == UNTIL else case.part)
