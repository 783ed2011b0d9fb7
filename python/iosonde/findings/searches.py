"""Searches: the highest value at which conditions are met, or why it is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard

from iosonde.findings.finding import MOST_SPECIFIC, Count, Fact, Finding
from iosonde.metrics import wording
from iosonde.plan import Case
from iosonde.planning.procedure.observations import Conclusion
from iosonde.planning.procedure.search import Probe, SearchConclusion
from iosonde.planning.procedure.until import UntilConclusion
from iosonde.units import format_duration

Ended = tuple[Case, Conclusion | None]
"""A case with a procedure, and its conclusion; None if the procedure has not finished."""


class _OfSearch(Finding):
    """Result of a search over a parameter, for one combination of the other levels."""

    levels: Mapping[str, Any]
    hosts: int = 0
    """Hosts that each had the value that was searched; 0 for one machine."""

    @property
    def _each(self) -> str:
        return f" on each of {wording.counted(self.hosts, 'host')}" if self.hosts else ""

    @property
    def _where(self) -> str:
        words = [wording.level_words(name, level) for name, level in self.levels.items()]
        return f", with {wording.listing(words)}" if words else ""


class _Conclusion(_OfSearch):
    """Left out where a finding of a workload states the same."""

    specificity = MOST_SPECIFIC - 1

    @property
    def superseded_by(self) -> set[Fact]:
        """The boundary, which more specific findings name with its cases."""
        return {("boundary", case_id) for case_id in self.case_ids}


class Boundary(_Conclusion, kind="boundary", topic="limits", place=1):
    """The highest value at which the conditions of a search are met."""

    over: str
    conditions: str
    spelled_out: str
    """The conditions one by one, where `conditions` is the name of a rule."""
    value: float
    fails_at: float
    met: str
    """Measured at `value`."""
    failed: str
    """Measured at `fails_at`."""
    probes: int
    duration_ns: int | None = None
    """Length of a run; a condition that is met for so long may be missed in a longer one."""

    def _sentence(self) -> str:
        unit = "/s" if self.over == "rate" else ""
        value = f"{wording.factor_words(self.over)} {_number(self.value)}{unit}{self._each}"
        length = f", in runs of {format_duration(self.duration_ns)}" if self.duration_ns else ""
        return f"{self.conditions} is met up to {value}, not at {_number(self.fails_at)}{unit}{self._where}{length}"

    def _evidence(self) -> str:
        met, failed = f"at {_number(self.value)}: {self.met}", f"at {_number(self.fails_at)}: {self.failed}"
        return f"{self.spelled_out}{met}; {failed}; {wording.counted(self.probes, 'probe')}"


class NoBoundary(_Conclusion, kind="no boundary", topic="limits"):
    """A search without a boundary, or a procedure that has not finished or not reached what it seeks."""

    subject: str
    """Conditions of the search, or the case of another procedure."""
    reason: str
    what: Literal["no boundary found", "not finished", "finished"]
    details: str

    def _sentence(self) -> str:
        what = "" if self.what == "finished" else f"{self.what}; "
        return f"{self.subject}{self._where}: {what}{self.reason}"

    def _evidence(self) -> str:
        return self.details


class AlsoMet(_OfSearch, kind="also met", topic="limits"):
    """The highest probe at which the conditions are met that do not decide the search."""

    over: str
    conditions: str
    highest: float | None
    """None if they were met at no probe."""
    met: int
    probes: int

    def _sentence(self) -> str:
        if self.highest is None:
            return f"{self.conditions} (informative) not met at any probe{self._where}"
        highest = f"{wording.factor_words(self.over)} {_number(self.highest)}{self._each}"
        met = f"{self.met} of {wording.counted(self.probes, 'probe')}"
        return f"{self.conditions} (informative) met at {met}, the highest at {highest}{self._where}"

    def _evidence(self) -> str:
        return f"judged at {wording.counted(self.probes, 'probe')}"


class NotPrecise(Count, kind="not precise", topic="limits", place=2):
    """Cases whose repeats ended before their intervals were as narrow as required."""

    evidence_text = "raise `until.maximum`, or accept wider intervals with `--precision`"
    noun = "case"
    wanted: float
    """Half-width of an interval, as a share of its value."""
    widest: float | None
    """The largest of these cases; None without an interval."""
    metric: str
    repeats: int
    """Most repeats of one of these cases."""

    def _sentence(self) -> str:
        reached = "there is no interval"
        if self.widest is not None:
            title = wording.metric_words(self.metric)
            reached = f"{title} is known within {wording.percent_text(self.widest)} where it is least precise"
        wanted = wording.percent_text(self.wanted)
        return f"Precision of {wanted} not reached in {self.some} after up to {self.repeats} repeats: {reached}"


def find(procedures: Sequence[Ended], hosts: int = 0) -> Iterator[Finding]:
    """Return the boundary of each search, or why it is not known; `hosts` that carried out each run together."""
    unfinished: dict[tuple[str, str, bool], list[Case]] = {}
    for case, conclusion in procedures:
        if isinstance(conclusion, SearchConclusion):
            each = hosts and int(case.parameters.get("hosts") or hosts)
            yield _boundary(case, conclusion, each) if conclusion.reached else _no_boundary(case, conclusion)
            yield from _also_met(case, conclusion, each)
        elif not _is_repeats(conclusion) and (conclusion is None or not conclusion.reached):
            reason = conclusion.reason if conclusion else "continue with `iosonde resume DIR`"
            unfinished.setdefault((case.part, reason, conclusion is not None), []).append(case)
    yield from _not_precise([each for _, each in procedures if _is_repeats(each)])
    for (part, reason, is_finished), cases in unfinished.items():
        yield _unfinished(part, reason, [case.case_id for case in cases], is_finished=is_finished)


def _is_repeats(conclusion: Conclusion | None) -> TypeGuard[UntilConclusion]:
    """Return True for repeats with values, which end precise or not."""
    return isinstance(conclusion, UntilConclusion) and conclusion.stopped_by != "no result"


def _not_precise(ended: Sequence[UntilConclusion]) -> Iterator[Finding]:
    """State how precise the cases are whose repeats ended early."""
    missed = [each for each in ended if not each.reached]
    if not missed:
        return
    # Without an interval a value is known least.
    widths = [(width is None, width or 0.0, name) for each in missed for name, width in each.half_widths.items()]
    is_unknown, widest, metric = max(widths, default=(True, 0.0, ""))
    yield NotPrecise(
        count=len(missed),
        total=len(ended),
        wanted=missed[0].wanted,
        widest=None if is_unknown else widest,
        metric=metric,
        repeats=max(each.repeats for each in missed),
        strength="strong",
        case_ids=tuple(each.case_id for each in missed),
    )


def probes(procedures: Sequence[Ended]) -> set[str]:
    """Return the cases that searches tried: they have no more repeats than it took to decide."""
    searched = [found for _, found in procedures if isinstance(found, SearchConclusion)]
    return {probe.case_id for found in searched for probe in found.probes}


def _boundary(case: Case, found: SearchConclusion, hosts: int) -> Boundary:
    assert found.value is not None and found.fails_at is not None, "a search with a boundary"
    by_value = {probe.value: probe for probe in found.probes}
    met, failed = by_value[found.value], by_value[found.fails_at]
    return Boundary(
        over=found.settings.over,
        conditions=_conditions(found),
        spelled_out=_spelled_out(found),
        value=found.value,
        fails_at=found.fails_at,
        levels=case.levels,
        hosts=hosts,
        met=_measured(met),
        failed=_measured(failed),
        probes=len(found.probes),
        duration_ns=case.parameters.get("duration"),
        strength="strong" if len(met.runs) > 1 else "moderate",
        case_ids=(met.case_id, failed.case_id),
        part=case.part,
    )


def _no_boundary(case: Case, found: SearchConclusion) -> NoBoundary:
    last = found.probes[-1]
    at = f"at {wording.factor_words(found.settings.over)} {_number(last.value)}: {_measured(last)}"
    return NoBoundary(
        subject=_conditions(found),
        reason=found.reason,
        levels=case.levels,
        what="no boundary found",
        details=f"{_spelled_out(found)}{at}; {wording.counted(len(found.probes), 'probe')}",
        strength="moderate",
        case_ids=(last.case_id,),
        part=case.part,
    )


def _also_met(case: Case, found: SearchConclusion, hosts: int) -> Iterator[Finding]:
    if not found.settings.also_check:
        return
    passed = [
        probe
        for probe in found.probes
        if probe.runs and all(run.also_checked and all(each.holds for each in run.also_checked) for run in probe.runs)
    ]
    highest = max(passed, key=lambda probe: probe.value, default=None)
    yield AlsoMet(
        over=found.settings.over,
        conditions=found.settings.also_check_rule or _quoted(found.settings.also_check),
        highest=highest.value if highest else None,
        levels=case.levels,
        hosts=hosts,
        met=len(passed),
        probes=len(found.probes),
        strength="moderate",
        case_ids=(highest.case_id,) if highest else (),
        part=case.part,
    )


def _unfinished(part: str, reason: str, case_ids: Sequence[str], *, is_finished: bool) -> NoBoundary:
    return NoBoundary(
        subject=f"`{case_ids[0]}`" if len(case_ids) == 1 else f"{len(case_ids)} cases of part `{part}`",
        reason=reason,
        levels={},
        what="finished" if is_finished else "not finished",
        details="runs of a case depend on each other, so their number is not known before they end",
        strength="moderate",
        case_ids=tuple(case_ids),
        part=part,
    )


def _conditions(found: SearchConclusion) -> str:
    return found.settings.rule or _quoted(found.settings.holds)


def _spelled_out(found: SearchConclusion) -> str:
    return f"{_quoted(found.settings.holds)}; " if found.settings.rule else ""


def _quoted(conditions: Sequence[str]) -> str:
    return " and ".join(f"`{each}`" for each in conditions)


def _number(value: float) -> str:
    """Write a value of a search, whose steps are larger than what is rounded off."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.4g}"


def _measured(probe: Probe) -> str:
    """The measured values of a probe, run by run."""
    return " / ".join(run.failure or ", ".join(each.text for each in run.conditions) for run in probe.runs)
