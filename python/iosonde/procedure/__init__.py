"""Procedures: cases whose runs are not all known beforehand, because what comes next depends on what was found.

A procedure is data in the plan (`Case.procedure`). Its kind is one file here, which offers

- `course(case, evidence)`: a generator that yields runs it wants, receives what was observed of each, and returns a
  `Conclusion`. It must depend on nothing but its arguments: the course is taken from its beginning whenever something
  is to be decided, with the records that lie there, so a study that was killed goes on where it was by itself;
- `outlook(part, study)`: what can be said of it beforehand: its settings, the extremes to check, how many runs at most;
- `INTERLEAVED`: whether the cases of a part take turns, run by run, or each is finished before the next begins.

`next_run` and `conclusion` are all that others need. Nothing of a conclusion is stored: records are facts, and whoever
wants to know what they mean asks again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from iosonde.errors import StudyError
from iosonde.plan import Case, Run
from iosonde.procedure import found, rounds, search
from iosonde.procedure.conclusion import Conclusion
from iosonde.procedure.evidence import Evidence, Observation, ResultEvidence
from iosonde.procedure.outlook import Outlook
from iosonde.study.model import Part, Study

__all__ = [
    "KINDS",
    "Conclusion",
    "Evidence",
    "Observation",
    "Outlook",
    "ResultEvidence",
    "conclusion",
    "kind_of",
    "next_run",
    "progress",
]

Course = Generator[Run, Observation, Conclusion]


class Kind(Protocol):
    """What a kind of procedure offers."""

    INTERLEAVED: bool

    def outlook(self, part: Part, study: Study) -> Outlook:
        """What can be said beforehand; `StudyError` if it cannot be done."""

    def course(self, case: Case, evidence: Evidence) -> Course:
        """What the procedure does, one run after the other."""


KINDS: Mapping[str, Kind] = {"found": found, "rounds": rounds, "search": search}
"""Every kind by its name, which is the key of a part in a study file."""


def kind_of(part: Part) -> str:
    """The kind of procedure that a part's cases have; empty if all their runs are known beforehand."""
    kinds = [name for name in KINDS if getattr(part, name)]
    if len(kinds) > 1:
        raise StudyError(f"a part has either `{kinds[0]}` or `{kinds[1]}`", hint="make two parts of it")
    return kinds[0] if kinds else ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a procedure has come."""

    done: Sequence[Observation]
    """What it has observed so far, in the order in which it asked."""
    next_run: Run | None
    """What it needs now; None once it has come to its end."""
    conclusion: Conclusion | None
    """What it came to; None before its end."""


def progress(case: Case, evidence: Evidence) -> Progress:
    """How far the procedure of a case has come with the evidence that there is."""
    assert case.procedure, f"`{case.case_id}` has no procedure"
    course = KINDS[case.procedure.kind].course(case, evidence)
    done: list[Observation] = []
    planned = 0
    try:
        run = next(course)
        while (observation := evidence.of(run)) is not None:
            done.append(observation)
            planned += run.restart == 0
            run = course.send(observation)
    except StopIteration as end:
        return Progress(done=done, next_run=None, conclusion=end.value)
    assert run.restart or planned < case.procedure.most_runs, f"`{case.case_id}` would take more runs than was said"
    return Progress(done=done, next_run=run, conclusion=None)


def next_run(case: Case, evidence: Evidence) -> Run | None:
    """The run that a case needs now; None once its procedure has come to its end."""
    return progress(case, evidence).next_run


def conclusion(case: Case, evidence: Evidence) -> Conclusion | None:
    """What the procedure of a case came to; None before its end."""
    return progress(case, evidence).conclusion
