"""All findings of a result set, and the answer to its study's question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from iosonde.base.features import contributed
from iosonde.findings import device_state, published, quality, questions, searches, throughput, values
from iosonde.findings.answer import Answer, answered, trust_of
from iosonde.findings.cells import under_own_names
from iosonde.findings.device_state import DeviceStates
from iosonde.findings.finding import FIRST, LOSSES, MOST_SPECIFIC, STRENGTHS, Fact, Finding, Topic, support_of
from iosonde.findings.interference import Interference
from iosonde.findings.question import Observation, Question
from iosonde.findings.questions import peak, steady
from iosonde.findings.searches import Ended
from iosonde.metrics import wording
from iosonde.metrics.metrics import repeat_noise
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import RepeatNoise, known_noise
from iosonde.metrics.sustained import LongRun
from iosonde.plan import PREPARATION
from iosonde.study.model import Study
from iosonde.study.workload import named

_QUESTIONS = questions.kinds()

_OBSERVATIONS: tuple[Observation, ...] = contributed("questions", "OBSERVATIONS")
_CONCLUSIONS: tuple[Callable[[Sequence[Ended]], Iterator[Finding]], ...] = contributed("questions", "CONCLUSIONS")
_NOT_RANKED: tuple[Callable[[Question], Finding | None], ...] = contributed("questions", "NOT_RANKED")
"""Findings that levels of a question must not be ranked; None where they may."""

_COMPARING: tuple[str, ...] = ("asymmetry", "peak", "flatness")
"""Questions that decide whether named levels differ: only one of them is answered per factor and metric."""

_ORDER: tuple[Topic, ...] = (
    *("integrity", "path", "limits", "state", "arrays", "caches", "stores", "transactions", "interference"),
    *("performance", "scaling", "comparison", "reference", "quality"),
)
"""Topics by how directly they answer a study's question; a study without the first ones is about performance."""


def answer(
    study: Study,
    cases: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    runs: pl.DataFrame | None = None,
    simulated: bool = False,
    **rest: Any,
) -> Answer:
    """Answer the study's question from one result set; further arguments as for `findings`."""
    trust = replace(trust_of(metrics, runs), simulated=simulated, external=_is_external(study))
    [noise] = repeat_noise(metrics).values() or [RepeatNoise()]
    with known_noise(noise):
        found = findings(study, cases, metrics, runs=runs, simulated=simulated, **rest)
        return answered(study.question, found, trust)


def _is_external(study: Study) -> bool:
    return named(study.workload).io == "command"


def findings(
    study: Study,
    cases: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    runs: pl.DataFrame | None = None,
    warnings: pl.DataFrame | None = None,
    procedures: Sequence[Ended] = (),
    long_runs: Sequence[LongRun] = (),
    disturbed: Sequence[Interference] = (),
    of_results: Sequence[Finding] = (),
    states: DeviceStates | None = None,
    hosts: int = 0,
    simulated: bool = False,
) -> list[Finding]:
    """Return everything that a result set establishes, the most important first, each fact once.

    `cases`, `runs` and `warnings` are the views of one result set; `metrics` comes from `metrics.run_metrics` of the
    same, `procedures` from `procedure.conclusions`, `long_runs` from `sustained.long_runs`, `disturbed`
    from `interference.disturbances`, `of_results` from features (`question.OfResults`), `states` from
    `device_state.device_states` (derived if missing), `hosts` is the number of those of the plan. Questions about
    arguments that are not given are left out.
    """
    # Verdicts are about the device; the values of a command are its own, whatever limited it.
    support = support_of(metrics, None if _is_external(study) else runs, long_runs)
    prepared = metrics
    steps = [case_id for _, each in procedures if each for case_id in each.steps]
    is_stated = (pl.col("part") != PREPARATION) & ~pl.col("case_id").is_in(steps)
    cases, metrics = (each.filter(is_stated) for each in (cases, metrics))
    states = states or device_state.device_states(study, cases, prepared, runs, long_runs)
    probes = searches.probes(procedures)
    measured = metrics.filter(~pl.col("case_id").is_in(list(probes)))
    given: dict[str, Any] = {"cases": cases, "runs": metrics, "outcomes": runs, "warnings": warnings}
    measurable = set(cases["part"])  # Not those that are left out because target or machine cannot have them.
    asked = [
        Question(study=study, analysis=analysis, support=support, states=states, hosts=hosts, **given)
        for analysis in study.analysis
        if analysis.part in measurable
    ]
    found: list[Finding] = [
        *states.findings,
        *searches.find(procedures, hosts),
        *(each for concluded in _CONCLUSIONS for each in concluded(procedures)),
        *throughput.find(study, cases, device_state.of_windows(study.parts, cases, metrics), support),
        *(each for observe in _OBSERVATIONS for each in observe(cases, metrics, runs, support)),
        *values.named_values(study, cases, metrics, support),
        *values.write_amplification(study, cases, metrics, runs, support),
        *(each for question in asked if not _is_decided_elsewhere(question) for each in _answer(question)),
        *disturbed,
        *throughput.offered_rates(study, cases, measured, support),
        *(each for part in study.parts if part.rounds for each in steady.find_rounds(part, cases, metrics, states)),
        *steady.find_long_runs(long_runs, cases, study.parts, states),
        *of_results,
        *published.find(study, cases, metrics, support),
        *quality.find(metrics, outcomes=runs, warnings=warnings, probes=probes, simulated=simulated),
    ]
    order = _order(study, disturbed=bool(disturbed))
    stated = [
        each if each.topic == "quality" else replace(each, limited=support.limited(each.case_ids))
        for each in _each_once(found)
    ]
    return sorted(stated, key=lambda each: _rank(each, order))


def _order(study: Study, *, disturbed: bool) -> Sequence[Topic]:
    """Return the order of topics.

    Comparisons come first in a study that asks first which of some names is best, interference in one where some
    streams disturb others for a time.
    """
    if disturbed:
        return ["interference", *(topic for topic in _ORDER if topic != "interference")]
    first = next(iter(study.analysis), None)
    part = next((each for each in study.parts if first and each.name == first.part), None)
    if first is None or part is None or not _QUESTIONS[first.kind].is_of_names:
        return _ORDER
    levels = part.all_factors.get(first.over, [])
    if not levels or all(isinstance(level, int | float) for level in levels):
        return _ORDER
    others = [topic for topic in _ORDER if topic != "comparison"]
    place = others.index("performance")
    return [*others[:place], "comparison", *others[place:]]


def _rank(finding: Finding, order: Sequence[Topic]) -> tuple[int, bool, bool, int, int, int]:
    strength = STRENGTHS.index(finding.strength)
    loss = LOSSES.index(finding.loss) if finding.loss else len(LOSSES)
    secondary = finding.is_secondary or finding.topic == "quality"
    return loss, finding.place != FIRST, secondary, order.index(finding.topic), finding.place, strength


def _each_once(found: Sequence[Finding]) -> list[Finding]:
    """Leave out repeated findings, and those about a fact that a more specific finding states."""
    stated: set[Fact] = set()
    kept: set[int] = set()
    for rank in range(MOST_SPECIFIC, -1, -1):
        chosen = [each for each in found if each.specificity == rank and stated.isdisjoint(each.superseded_by)]
        kept |= {id(each) for each in chosen}
        stated |= {fact for each in chosen for fact in each.facts}
    once: dict[tuple[str, str, str], Finding] = {}
    for each in found:
        if id(each) in kept:
            once.setdefault((each.kind, each.sentence, each.part), each)
    return list(once.values())


def _is_decided_elsewhere(question: Question) -> bool:
    """Return True if another question of the study decides whether the same named levels differ.

    Two levels are compared; of more the fastest is named; only without either, whether the factor matters at all.
    """
    asked, cells = question.analysis, question.cells()
    if asked.kind not in _COMPARING or cells.is_empty() or cells.schema[asked.over].is_numeric():
        return False
    rivals = {
        each.kind
        for each in question.study.analysis
        if each.kind in _COMPARING
        and (each.part, each.over, each.metric, each.where) == (asked.part, asked.over, asked.metric, asked.where)
    }
    order: list[str] = ["asymmetry", "peak", "flatness"]
    if cells[asked.over].n_unique() > 2 and metric_of(asked.metric).better == "higher":
        order = ["peak", "asymmetry", "flatness"]
    return asked.kind != next(kind for kind in order if kind in rivals)


def _answer(question: Question) -> Iterator[Finding]:
    """Answer a question, or return that there are too few samples for it."""
    kind = _QUESTIONS[question.analysis.kind]
    if question.cells().is_empty() and not kind.explains_missing:
        unmeasured = _unmeasured(question)
        if not unmeasured:
            return _without_samples(question)
        where = {name: level for name, level in question.analysis.where.items() if name not in unmeasured}
        question = replace(question, analysis=question.analysis.model_copy(update={"where": where}))
        return iter(()) if question.cells().is_empty() else peak.value_of_one_level(question)
    if question.analysis.kind in _COMPARING:
        different = list(filter(None, (find(question) for find in _NOT_RANKED)))
        if different:
            return iter(different)
    found = list(kind.find(question))
    if not found and kind.compares_levels:
        return peak.value_of_one_level(question)
    return iter(found)


def _unmeasured(question: Question) -> list[str]:
    """Return the factors of `where` whose level the user has left out."""
    of_part = under_own_names(question.cases.filter(pl.col("part") == question.part.name))
    return [
        name
        for name, level in question.analysis.where.items()
        if name in question.part.all_factors and name in of_part and str(level) not in map(str, of_part[name])
    ]


def _without_samples(question: Question) -> Iterator[Finding]:
    """Return a percentile with too few samples. A part without any run is a missing run."""
    metric = question.analysis.metric
    measured = question.runs.filter(pl.col("part") == question.part.name, ~pl.col("control"))
    if metric_of(metric).kind == "latency" and len(measured):
        elsewhere = metric in set(measured["metric"])
        where = question.analysis.where.items() if elsewhere else ()
        levels = tuple(wording.level_words(name, level) for name, level in where)
        yield quality.TooFewSamples(metric=metric, levels=levels, strength="weak", part=question.part.name)
