"""The next run of a study: first the runs that the plan lists, then those that its procedures decide on.

Every decision depends only on the plan and the existing records, so a study that was killed continues where it was.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.plan import Case, Plan, Run
from iosonde.procedure import Progress, RecordedObservations, kinds, progress, until
from iosonde.procedure.observations import procedure_of
from iosonde.results.result_set import ResultSet


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
        while self._planned and self._is_done(self._planned[0]):
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

    def _is_done(self, run: Run) -> bool:
        return self._result_set.next_attempt(run.run_id) > self._attempts[run.run_id]

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
