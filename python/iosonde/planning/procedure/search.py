"""Search: the highest rate, load, queue depth or number of jobs at which conditions hold.

From the start value the search doubles while the conditions hold, or halves while they do not, until one value holds
and one fails; then it bisects between them on a logarithmic scale until they are close enough. It takes for granted
that what fails at a value fails above it too, and states it in its docs, since it cannot be seen from its probes.

A probe is a value with its repeats. Only what is shown to hold holds: too few samples for a percentile are not a pass,
but a higher rate may have enough, so the search continues upwards from there. A probe without any result ends the
search, since no other value is likelier to work.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from iosonde.errors import StudyError
from iosonde.plan import Case, Run, Scalar
from iosonde.planning.procedure.condition import Condition, Judgement, parse
from iosonde.planning.procedure.observations import (
    Conclusion,
    Forecast,
    Observation,
    Observations,
    RunGenerator,
    level_text,
    probe,
    procedure_of,
    rounded,
)
from iosonde.study.model import Part, Study

INTERLEAVED = False
"""A search is finished before the next begins: its probes are compared with each other, so they are together."""

Verdict = Literal["holds", "fails", "undecided", "broken"]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One run of a probe."""

    conditions: Sequence[Judgement]
    also_checked: Sequence[Judgement]
    failure: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.failure:
            return "broken"
        if all(each.holds for each in self.conditions):
            return "holds"
        return "fails" if any(each.holds is False for each in self.conditions) else "undecided"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A value that was tried."""

    value: float
    case_id: str
    runs: Sequence[Judged]
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class SearchConclusion(Conclusion):
    """Conclusion of a search. `value` is the highest that held, if any did."""

    settings: Settings
    fails_at: float | None
    """The lowest value that was seen not to hold, if any was."""
    probes: Sequence[Probe]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A search as a procedure's settings have it."""

    over: str
    holds: Sequence[str]
    rule: str
    """Name of all conditions together; empty if they have none."""
    also_check: Sequence[str]
    also_check_rule: str
    lowest: float
    highest: float
    start: float
    precision: float
    whole: bool
    """True if values must be whole numbers."""
    repeats: int
    agree: Literal["majority", "all"]
    streams: Sequence[str]

    def conditions(self) -> tuple[list[Condition], list[Condition]]:
        """Those that decide, and those that are judged only."""
        holds, also_check = (
            [parse(text, streams=self.streams) for text in each] for each in (self.holds, self.also_check)
        )
        return holds, also_check

    def most_probes(self) -> int:
        """Values that are tried at most."""
        up = _halvings(math.log(self.highest / self.start), math.log(2)) + 1
        down = _halvings(math.log(self.start / self.lowest), math.log(2)) + 1
        # The first bracket spans a factor of 2 at most; each bisection leaves half of its logarithm, but for rounding.
        bisections = max(0, math.ceil(math.log2(math.log(2) / math.log1p(self.precision)))) + 1
        return max(up, down) + bisections


def forecast(part: Part, study: Study) -> Forecast:
    """The bounds of a part's searches, checked as far as names and numbers allow."""
    settings = _settings(part, study)
    probes, repeats = settings.most_probes(), settings.repeats
    conditions = " and ".join(settings.holds)
    rule = f" ({settings.rule})" if settings.rule else ""
    return Forecast(
        settings=vars(settings),
        extremes=[{settings.over: settings.lowest}, {settings.over: settings.highest}],
        decided=[settings.over],
        max_runs=probes * repeats,
        text=f"searches the highest {settings.over} of {level_text(settings.lowest)}..{level_text(settings.highest)} "
        f"where {conditions}{rule}, within {100 * settings.precision:g} %, in at most {probes} probes x {repeats} runs",
    )


def runs(case: Case, observations: Observations) -> RunGenerator:
    """Bracket, then bisect."""
    settings = Settings(**procedure_of(case).settings)
    probes: list[Probe] = []
    bracket = Bracket()
    value: float | None = settings.start
    while value is not None:
        tried = yield from _try(case, settings, len(probes) + 1, value)
        probes.append(tried)
        if tried.verdict == "broken":
            break
        bracket = bracket.narrowed(tried)
        value = bracket.next_value(settings)
    return _conclusion(case, settings, probes, bracket)


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """Known bounds of the limit."""

    holds: float | None = None
    """The highest value that holds."""
    undecided: float | None = None
    """As long as nothing holds: the highest value with too few samples for a decision, which a higher rate may have."""
    fails: float | None = None
    """The lowest value that does not hold, or was not shown to although a lower one was."""

    def narrowed(self, tried: Probe) -> Bracket:
        if tried.verdict == "holds":
            return Bracket(holds=tried.value, fails=self.fails)
        if tried.verdict == "undecided" and self.holds is None:
            return replace(self, undecided=tried.value)
        return replace(self, fails=tried.value)

    def next_value(self, settings: Settings) -> float | None:
        """The value to try next; None at the end."""
        low, high = self.undecided if self.holds is None else self.holds, self.fails
        if high is None:
            assert low is not None, "something was tried"
            return None if low >= settings.highest else min(2 * low, settings.highest)
        if low is None:
            half = high // 2 if settings.whole else rounded(high / 2)
            return None if high <= settings.lowest else max(half, settings.lowest)
        if high / low <= 1 + settings.precision or (settings.whole and high - low <= 1):
            return None
        middle = math.sqrt(low * high)
        return min(max(round(middle), low + 1), high - 1) if settings.whole else rounded(middle)


def _try(case: Case, settings: Settings, number: int, value: float) -> Generator[Run, Observation, Probe]:
    """Repeats at a value, no more than it takes to decide."""
    judged: list[Judged] = []
    case_id = ""
    while not _decided(settings, judged):
        chosen: dict[str, Scalar] = {settings.over: value}
        run = probe(case, f"p{number:02}", len(judged) + 1, levels=chosen, parameters=chosen)
        case_id = run.case_id
        judged.append(_judge(settings, (yield run)))
    return Probe(value=value, case_id=case_id, runs=judged, verdict=_verdict(settings, judged))


def _judge(settings: Settings, observation: Observation) -> Judged:
    if observation.failure:
        return Judged(conditions=(), also_checked=(), failure=observation.failure)
    holds, also = ([each.judge(observation) for each in conditions] for conditions in settings.conditions())
    return Judged(conditions=holds, also_checked=also)


def _decided(settings: Settings, judged: Sequence[Judged]) -> bool:
    """Return True if further repeats could not change the verdict."""
    hold = sum(each.verdict == "holds" for each in judged)
    left = settings.repeats - len(judged)
    return not left or hold >= _needed(settings) or hold + left < _needed(settings)


def _needed(settings: Settings) -> int:
    return settings.repeats if settings.agree == "all" else settings.repeats // 2 + 1


def _verdict(settings: Settings, judged: Sequence[Judged]) -> Verdict:
    verdicts = [each.verdict for each in judged]
    if verdicts.count("holds") >= _needed(settings):
        return "holds"
    if set(verdicts) == {"broken"}:
        return "broken"
    return "fails" if "fails" in verdicts else "undecided"


def _conclusion(case: Case, settings: Settings, probes: Sequence[Probe], bracket: Bracket) -> SearchConclusion:
    return SearchConclusion(
        case_id=case.case_id,
        reached=probes[-1].verdict != "broken" and bracket.holds is not None and bracket.fails is not None,
        reason=_reason(settings, probes[-1], bracket),
        value=bracket.holds,
        settings=settings,
        fails_at=bracket.fails,
        probes=probes,
    )


def _reason(settings: Settings, last: Probe, bracket: Bracket) -> str:
    if last.verdict == "broken":
        return f"every run at {settings.over} {level_text(last.value)} failed: {last.runs[-1].failure}"
    if bracket.holds is None and bracket.undecided is not None:
        return f"too few samples at {settings.over} {level_text(bracket.undecided)} and below to decide"
    if bracket.fails is None:
        return f"the conditions hold up to {level_text(settings.highest)}, the highest {settings.over} of the search"
    if bracket.holds is None:
        return f"the conditions fail down to {level_text(settings.lowest)}, the lowest {settings.over} of the search"
    return ""


def _settings(part: Part, study: Study) -> Settings:
    search = part.search
    assert search, "a part that searches"
    parameter, workload = search.over.rpartition(".")[2], study.workload_of(part)
    if parameter not in workload.scalable:
        listed = ", ".join(f"`{each}`" for each in workload.scalable)
        raise StudyError(f"cannot search over `{search.over}`", hint=f"use one of {listed}")
    lowest, highest = (workload.read_value(parameter, value) for value in search.between)
    start = lowest if search.start is None else workload.read_value(parameter, search.start)
    if not lowest < highest:
        raise StudyError(
            f"`between` must be the lowest and the highest value; got {level_text(lowest)} and {level_text(highest)}",
            hint="swap the values, or widen the range",
        )
    if not lowest <= start <= highest:
        raise StudyError(f"`start` must be within `between`; got {level_text(start)}")
    settings = Settings(
        **search.model_dump(include={"over", "rule", "also_check_rule", "precision", "agree"}),
        holds=_in_one_line([search.holds] if isinstance(search.holds, str) else search.holds),
        also_check=_in_one_line(search.also_check),
        lowest=lowest,
        highest=highest,
        start=start,
        whole=parameter in workload.whole_numbers,
        repeats=study.repeats,
        streams=part.stream_names,
    )
    if not settings.holds:
        raise StudyError(
            "a search requires a condition", hint='add one, such as `holds = "response_latency_ns_p99_9 <= 1ms"`'
        )
    settings.conditions()
    return settings


def _in_one_line(conditions: Sequence[str]) -> list[str]:
    return [" ".join(text.split()) for text in conditions]


def _halvings(span: float, step: float) -> int:
    """Steps of that size that it takes to cross a span, with grace for rounding."""
    return math.ceil(span / step - 1e-9)
