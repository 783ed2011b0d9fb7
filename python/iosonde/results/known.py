"""Cases and runs of a result set, with those that were decided while it was carried out.

What a procedure tries is a case of its own, with repeats of its own: a rate that a search tried is not a repeat of
another rate. Such cases are known by their records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.plan import Case, Plan, Run
from iosonde.results.schema import Record

_OF_NUMBERS = ("search", "derived", "until")
"""Procedures whose levels are numbers, by which their cases are ordered; those of others are in the order of runs."""


def cases(plan: Plan, records: Sequence[Record]) -> list[Case]:
    """The plan's cases in order; what a procedure has tried takes the place of its case."""
    return [known for case in plan.cases for known in (_tried(case, plan, records) if case.procedure else [case])]


def mismatch(case: Case, record: Record) -> str:
    """Return the first level that a procedure cannot have tried; empty if there is none. Searches try numbers."""
    if not case.procedure or case.procedure.kind not in _OF_NUMBERS:
        return ""
    tried = {name: level for name, level in record.levels.items() if name not in case.levels}
    wrong = (name for name, level in tried.items() if not isinstance(level, int | float))
    return next((f"`levels.{name}` is not a number, as a search tries" for name in wrong), "")


def run(record: Record) -> Run:
    """The run of a record."""
    return Run(run_id=record.run_id, case_id=record.case_id, repeat=record.repeat, order=record.order, spec=record.spec)


def _tried(case: Case, plan: Plan, records: Sequence[Record]) -> list[Case]:
    own = [record for record in records if plan.case_of(record.run_id) is case]
    tried = {record.case_id: record for record in own}
    if case.procedure and case.procedure.kind not in _OF_NUMBERS:
        return [_case(case, record) for record in tried.values()] or [case]
    return sorted((_case(case, record) for record in tried.values()), key=lambda each: _place(case, each)) or [case]


def _case(case: Case, record: Record) -> Case:
    return case.model_copy(
        update={
            "case_id": record.case_id,
            "part": record.part,
            "levels": record.levels,
            "parameters": record.parameters,
            "procedure": None,
        }
    )


def _place(case: Case, tried: Case) -> list[float]:
    """By the numbers that were tried, the smallest first."""
    return list(_numbers(case, tried))


def _numbers(case: Case, tried: Case) -> Iterator[float]:
    return (float(level) for name, level in tried.levels.items() if name not in case.levels)
