"""What searches found, and what keeps a case with a procedure from its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosonde.findings.finding import Finding, Untyped
from iosonde.metrics import wording
from iosonde.plan import Case
from iosonde.procedure.conclusion import Conclusion
from iosonde.procedure.search import Probe, SearchConclusion

Ended = tuple[Case, Conclusion | None]
"""A case with a procedure, and what that came to; None if it is not at its end."""


def tell(procedures: Sequence[Ended]) -> Iterator[Finding]:
    """Say of each search where the boundary lies, or why it is not known."""
    for case, conclusion in procedures:
        if isinstance(conclusion, SearchConclusion):
            yield _found(case, conclusion) if conclusion.reached else _not_found(case, conclusion)
            yield from _beside(case, conclusion)
        elif conclusion is None or not conclusion.reached:
            yield _unfinished(case, conclusion)


def probes(procedures: Sequence[Ended]) -> set[str]:
    """The cases that searches tried: they have no more repeats than it took to decide."""
    searched = [found for _, found in procedures if isinstance(found, SearchConclusion)]
    return {probe.case_id for found in searched for probe in found.probes}


def _found(case: Case, found: SearchConclusion) -> Finding:
    assert found.value is not None and found.fails_at is not None, "a search that found something"
    probes = {probe.value: probe for probe in found.probes}
    holds, fails = probes[found.value], probes[found.fails_at]
    return _finding(
        case,
        title=f"{_conditions(found)} holds up to {_value(found, found.value)} and no longer at"
        f" {_value(found, found.fails_at)}{_where(case)}",
        evidence=f"{_named(found)}at {_value(found, holds.value)}: {_measured(holds)}; at {_value(found, fails.value)}:"
        f" {_measured(fails)}; {wording.counted(len(found.probes), 'probe')}",
        strength="strong" if len(holds.runs) > 1 else "moderate",
        case_ids=(holds.case_id, fails.case_id),
    )


def _not_found(case: Case, found: SearchConclusion) -> Finding:
    last = found.probes[-1]
    return _finding(
        case,
        title=f"No boundary of {_conditions(found)} was found{_where(case)}: {found.reason}",
        evidence=f"{_named(found)}at {_value(found, last.value)}: {_measured(last)};"
        f" {wording.counted(len(found.probes), 'probe')}",
        strength="moderate",
        case_ids=(last.case_id,),
    )


def _beside(case: Case, found: SearchConclusion) -> Iterator[Finding]:
    """Say up to which probe the conditions hold that decide nothing."""
    if not found.beside:
        return
    passed = [
        probe.value
        for probe in found.probes
        if probe.runs and all(run.beside and all(each.holds for each in run.beside) for run in probe.runs)
    ]
    verdict = (
        f"holds up to {_value(found, max(passed))}, as far as it was tried"
        if passed
        else "holds at none that was tried"
    )
    yield _finding(
        case,
        title=f"Beside it, {found.beside_rule or ' and '.join(map(_quoted, found.beside))} {verdict}{_where(case)}",
        evidence=f"judged at {wording.counted(len(found.probes), 'probe')}, decides nothing",
        strength="moderate",
        case_ids=tuple(probe.case_id for probe in found.probes if probe.value in passed[-1:]),
    )


def _unfinished(case: Case, conclusion: Conclusion | None) -> Finding:
    reason = conclusion.reason if conclusion else "it was stopped; `iosonde resume` goes on with it"
    return _finding(
        case,
        title=f"`{case.case_id}` is not at its end: {reason}",
        evidence="its runs follow from each other, so the rest of them is not known",
        strength="moderate",
        case_ids=(case.case_id,),
    )


def _finding(case: Case, *, title: str, evidence: str, strength: str, case_ids: tuple[str, ...]) -> Finding:
    return Untyped(
        kind="search",
        title=wording.sentence(title),
        note=evidence,
        strength="strong" if strength == "strong" else "moderate",
        case_ids=case_ids,
        part=case.part,
    )


def _conditions(found: SearchConclusion) -> str:
    return found.rule or " and ".join(map(_quoted, found.conditions))


def _named(found: SearchConclusion) -> str:
    """Spell a rule out where the title calls it by its name."""
    return f"{' and '.join(map(_quoted, found.conditions))}; " if found.rule else ""


def _quoted(text: str) -> str:
    return f"`{text}`"


def _value(found: SearchConclusion, value: float) -> str:
    return f"{wording.factor_words(found.over)} {value:,.6g}"


def _measured(probe: Probe) -> str:
    """What the runs of a probe gave, run by run."""
    texts = [run.failure or ", ".join(each.text for each in run.conditions) for run in probe.runs]
    return " / ".join(texts)


def _where(case: Case) -> str:
    levels = [wording.level_words(name, level) for name, level in case.levels.items()]
    return f", with {wording.listing(levels)}" if levels else ""
