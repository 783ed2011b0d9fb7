"""Searches: the highest value at which conditions are met, or why it is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from iosonde.findings.finding import Finding, Topic
from iosonde.metrics import wording
from iosonde.plan import Case
from iosonde.procedure.conclusion import Conclusion
from iosonde.procedure.search import Probe, SearchConclusion

Ended = tuple[Case, Conclusion | None]
"""A case with a procedure, and its conclusion; None if the procedure has not finished."""


@dataclass(frozen=True, kw_only=True)
class Boundary(Finding):
    """The highest value at which the conditions of a search are met."""

    kind: ClassVar[str] = "boundary"
    topic: ClassVar[Topic] = "limits"
    over: str
    conditions: str
    spelled_out: str
    """The conditions one by one, where `conditions` is the name of a rule."""
    value: float
    fails_at: float
    levels: Mapping[str, Any]
    met: str
    """Measured at `value`."""
    failed: str
    """Measured at `fails_at`."""
    probes: int

    def _sentence(self) -> str:
        value, fails = (_number(each) for each in (self.value, self.fails_at))
        return (
            f"{self.conditions} is met up to {wording.factor_words(self.over)} {value}, not at "
            f"{fails}{_where(self.levels)}"
        )

    def _evidence(self) -> str:
        value, fails = (_number(each) for each in (self.value, self.fails_at))
        probes = wording.counted(self.probes, "probe")
        return f"{self.spelled_out}at {value}: {self.met}; at {fails}: {self.failed}; {probes}"


@dataclass(frozen=True, kw_only=True)
class NoBoundary(Finding):
    """A search without a boundary, or one that has not finished."""

    kind: ClassVar[str] = "no boundary"
    topic: ClassVar[Topic] = "limits"
    subject: str
    """Conditions of the search, or the case of another procedure."""
    reason: str
    levels: Mapping[str, Any]
    finished: bool
    details: str

    def _sentence(self) -> str:
        what = "no boundary found" if self.finished else "not finished"
        return f"{self.subject}{_where(self.levels)}: {what}; {self.reason}"

    def _evidence(self) -> str:
        return self.details


@dataclass(frozen=True, kw_only=True)
class AlsoMet(Finding):
    """Up to which probe the conditions are met that do not decide the search."""

    kind: ClassVar[str] = "also met"
    topic: ClassVar[Topic] = "limits"
    over: str
    conditions: str
    highest: float | None
    """Highest probe at which they were met; None if at none."""
    levels: Mapping[str, Any]
    met: int
    probes: int

    def _sentence(self) -> str:
        where = _where(self.levels)
        if self.highest is None:
            return f"{self.conditions} (informative) not met at any probe{where}"
        highest = f"{wording.factor_words(self.over)} {_number(self.highest)}"
        met = f"{self.met} of {wording.counted(self.probes, 'probe')}"
        return f"{self.conditions} (informative) met at {met}, the highest at {highest}{where}"

    def _evidence(self) -> str:
        return f"judged at {wording.counted(self.probes, 'probe')}"


def find(procedures: Sequence[Ended]) -> Iterator[Finding]:
    """Return the boundary of each search, or why it is not known."""
    unfinished: dict[tuple[str, str], list[Case]] = {}
    for case, conclusion in procedures:
        if isinstance(conclusion, SearchConclusion):
            yield _boundary(case, conclusion) if conclusion.reached else _no_boundary(case, conclusion)
            yield from _also_met(case, conclusion)
        elif conclusion is None or not conclusion.reached:
            reason = conclusion.reason if conclusion else "continue with `iosonde resume`"
            unfinished.setdefault((case.part, reason), []).append(case)
    for (part, reason), cases in unfinished.items():
        yield _unfinished(part, reason, [case.case_id for case in cases])


def probes(procedures: Sequence[Ended]) -> set[str]:
    """Return the cases that searches tried: they have no more repeats than it took to decide."""
    searched = [found for _, found in procedures if isinstance(found, SearchConclusion)]
    return {probe.case_id for found in searched for probe in found.probes}


def _boundary(case: Case, found: SearchConclusion) -> Boundary:
    assert found.value is not None and found.fails_at is not None, "a search with a boundary"
    by_value = {probe.value: probe for probe in found.probes}
    met, failed = by_value[found.value], by_value[found.fails_at]
    return Boundary(
        over=found.over,
        conditions=_conditions(found),
        spelled_out=_spelled_out(found),
        value=found.value,
        fails_at=found.fails_at,
        levels=case.levels,
        met=_measured(met),
        failed=_measured(failed),
        probes=len(found.probes),
        strength="strong" if len(met.runs) > 1 else "moderate",
        case_ids=(met.case_id, failed.case_id),
        part=case.part,
    )


def _no_boundary(case: Case, found: SearchConclusion) -> NoBoundary:
    last = found.probes[-1]
    return NoBoundary(
        subject=_conditions(found),
        reason=found.reason,
        levels=case.levels,
        finished=True,
        details=f"{_spelled_out(found)}at {wording.factor_words(found.over)} {_number(last.value)}: {_measured(last)}; "
        f"{wording.counted(len(found.probes), 'probe')}",
        strength="moderate",
        case_ids=(last.case_id,),
        part=case.part,
    )


def _also_met(case: Case, found: SearchConclusion) -> Iterator[Finding]:
    if not found.also_check:
        return
    passed = [
        probe
        for probe in found.probes
        if probe.runs and all(run.also_checked and all(each.holds for each in run.also_checked) for run in probe.runs)
    ]
    highest = max(passed, key=lambda probe: probe.value, default=None)
    yield AlsoMet(
        over=found.over,
        conditions=found.also_check_rule or " and ".join(map(_quoted, found.also_check)),
        highest=highest.value if highest else None,
        levels=case.levels,
        met=len(passed),
        probes=len(found.probes),
        strength="moderate",
        case_ids=(highest.case_id,) if highest else (),
        part=case.part,
    )


def _unfinished(part: str, reason: str, case_ids: Sequence[str]) -> NoBoundary:
    several = f"{len(case_ids)} cases of part `{part}`"
    return NoBoundary(
        subject=f"`{case_ids[0]}`" if len(case_ids) == 1 else several,
        reason=reason,
        levels={},
        finished=False,
        details="runs of a case depend on each other, so the number of remaining runs is not known",
        strength="moderate",
        case_ids=tuple(case_ids),
        part=part,
    )


def _conditions(found: SearchConclusion) -> str:
    return found.rule or " and ".join(map(_quoted, found.conditions))


def _spelled_out(found: SearchConclusion) -> str:
    return f"{' and '.join(map(_quoted, found.conditions))}; " if found.rule else ""


def _quoted(text: str) -> str:
    return f"`{text}`"


def _number(value: float) -> str:
    return f"{value:,.6g}"


def _measured(probe: Probe) -> str:
    """Return the measured values of a probe, run by run."""
    texts = [run.failure or ", ".join(each.text for each in run.conditions) for run in probe.runs]
    return " / ".join(texts)


def _where(levels: Mapping[str, Any]) -> str:
    words = [wording.level_words(name, level) for name, level in levels.items()]
    return f", with {wording.listing(words)}" if words else ""
