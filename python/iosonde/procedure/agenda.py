"""What is to be done next: the runs that the plan lists, then those that its procedures decide on.

Every answer follows from the plan and the records that lie there, so a study that was killed goes on as if nothing had
happened.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from iosonde.plan import Case, Plan, Run
from iosonde.procedure import KINDS, Progress, ResultEvidence, progress
from iosonde.results.result_set import ResultSet


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """How much is left."""

    runs: int
    """Runs of the plan without a record."""
    at_most: int
    """Runs that procedures may still decide on."""
    seconds: float
    """Ramp and measurement of all of them."""

    @classmethod
    def of(cls, plan: Plan) -> Ahead:
        """All of a plan."""
        costs = {case.case_id: case.cost.seconds for case in plan.cases}
        bounds = [(each.procedure, each.cost.seconds) for each in plan.cases if each.procedure]
        return cls(
            runs=len(plan.runs),
            at_most=sum(procedure.most_runs for procedure, _ in bounds),
            seconds=sum(costs[run.case_id] for run in plan.runs)
            + sum(each.preparation.seconds + (each.most_runs - each.preparing) * seconds for each, seconds in bounds),
        )


class Agenda:
    """The runs that are left in a result set, one by one."""

    def __init__(self, result_set: ResultSet, *, retry_failed: bool = False, session: str = "") -> None:
        """With `retry_failed`, what has failed until now is to be done once more."""
        self._result_set = result_set
        # Listed once: what fails again is not to be repeated forever.
        self._planned = result_set.missing_runs(retry_failed=retry_failed)
        self._attempts = {run.run_id: result_set.next_attempt(run.run_id) for run in self._planned}
        failed = [each for each in result_set.records() if retry_failed and each.outcome == "failed"]
        ignoring = [(each.run_id, each.attempt) for each in failed]
        self._evidence = ResultEvidence(result_set, ignoring=ignoring, session=session)

    def next_run(self) -> Run | None:
        """What is to be carried out now; the same until it has a record, None at the end."""
        while self._planned and self._is_done(self._planned[0]):
            self._planned.pop(0)
        return self._planned[0] if self._planned else self._decided()

    def ahead(self) -> Ahead:
        """How much is left, at most."""
        costs = {case.case_id: case.cost.seconds for case in self._result_set.plan.cases}
        open_cases = [(case, self._left(case)) for case in self._result_set.plan.adaptive]
        return Ahead(
            runs=len(self._planned),
            at_most=sum(left for _, left in open_cases),
            seconds=sum(costs[run.case_id] for run in self._planned)
            + sum(case.cost.seconds * left for case, left in open_cases),
        )

    def _is_done(self, run: Run) -> bool:
        return self._result_set.next_attempt(run.run_id) > self._attempts[run.run_id]

    def _decided(self) -> Run | None:
        """What the first part whose procedures are not at their end asks for; within it, what stands on one setup."""
        for _, part in itertools.groupby(self._result_set.plan.adaptive, key=lambda case: case.part):
            groups: dict[tuple[str, ...], list[Case]] = {}
            for case in part:
                groups.setdefault(case.stands_on, []).append(case)
            run = next(filter(None, map(self._of_part, groups.values())), None)
            if run:
                return run.model_copy(update={"order": self._order(run)})
        return None

    def _of_part(self, cases: Sequence[Case]) -> Run | None:
        """Cases that take turns are carried out once before any comes again, each time in another order."""
        found = (self._progress(case) for case in cases)
        if not KINDS[_kind(cases[0])].INTERLEAVED:
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
        return progress(case, self._evidence)

    def _left(self, case: Case) -> int:
        """Runs that a case takes at most from here."""
        assert case.procedure, "an adaptive case"
        found = self._progress(case)
        return max(1, case.procedure.most_runs - len(found.done)) if found.next_run else 0

    def _order(self, run: Run) -> int:
        """After everything that the plan lists and that was done; a further attempt stands where the first stood."""
        earlier = self._result_set.record(run.run_id)
        if earlier:
            return earlier.order
        planned = (each.order for each in self._result_set.plan.runs)
        return max(itertools.chain(planned, (each.order for each in self._result_set.records())), default=-1) + 1


def open_runs(result_set: ResultSet) -> list[Run]:
    """What the procedures of a result set ask for now: nothing once all are at their end."""
    evidence = ResultEvidence(result_set)
    found = (progress(case, evidence).next_run for case in result_set.plan.adaptive)
    return [run for run in found if run]


def _kind(case: Case) -> str:
    assert case.procedure, "an adaptive case"
    return case.procedure.kind
