"""Procedures: cases whose runs are not all known beforehand, because each depends on earlier results.

A procedure is data in the plan (`Case.procedure`). Its kind is one file here, which offers

- `runs(case, observations)`: a generator that yields the next run, receives its observation, and returns a
  `Conclusion`. It depends only on its arguments and is replayed from the start over the existing records at every
  decision, so a study that was killed continues without any stored state;
- `forecast(part, study)`: its settings, the extremes to check, and the upper bound of its runs;
- `INTERLEAVED`: whether the cases of a part alternate run by run, or each completes before the next starts.

`next_run` and `conclusion` are all that other packages need. Conclusions are not stored: they are derived from the
records whenever they are needed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from iosonde.core.features import contributed
from iosonde.errors import IosondeError, ResultsError, StudyError
from iosonde.plan import Case, Run
from iosonde.procedure import derived, rounds, search, until
from iosonde.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RecordedObservations,
    UnfinishedError,
    procedure_of,
)
from iosonde.study.model import Part, Study

__all__ = [
    "Conclusion",
    "Forecast",
    "Observation",
    "Observations",
    "RecordedObservations",
    "conclusion",
    "kind_of",
    "kinds",
    "next_run",
    "progress",
]

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


def next_run(case: Case, observations: Observations) -> Run | None:
    """The next run of a case; None once its procedure has ended."""
    return progress(case, observations).next_run


def conclusion(case: Case, observations: Observations, *, so_far: bool = False) -> Conclusion | None:
    """The conclusion of the procedure of a case; before its end None, or that of the runs so far where it has one."""
    return progress(case, observations, so_far=so_far).conclusion
