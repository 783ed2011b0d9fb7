"""The answer to a study's question: at most three findings, a line on how far to trust them, the others by topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from iosonde.findings.finding import OF_THE_SYSTEM, TOPICS, Drift, Finding, load_drift, verdicts_text
from iosonde.metrics import wording
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.metrics.verdict.verdict import KINDS, Kind
from iosonde.results.schema import UNSUPPORTED

SENTENCES = 3
"""Length of an answer."""

NOTABLE_DRIFT = 0.05


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Support of a result set for claims about the device."""

    verdicts: Mapping[Kind, int]
    """Number of judged runs by verdict; empty for simulated devices."""
    runs: int
    """Runs that were started, complete or not."""
    incomplete: int
    """Runs that failed or were stopped."""
    wrong: int = 0
    """Runs that found wrong data."""
    single: bool
    """True if no case has enough repeats for a confidence interval."""
    drift: Drift | None = None
    simulated: bool = False
    external: bool = False
    """True if external commands were measured: their own values, whatever limited them."""

    @property
    def judged(self) -> int:
        return sum(self.verdicts.values())

    @property
    def mostly_unlimited(self) -> bool:
        """True if more than half of the judged runs were limited neither by the device nor by the server on it."""
        limited = sum(self.verdicts.get(kind, 0) for kind in OF_THE_SYSTEM)
        return not self.external and self.judged > 0 and 2 * limited < self.judged

    @property
    def line(self) -> str:
        """One line for the top of a report."""
        wrong = f"wrong data in {self.wrong} of {wording.counted(self.runs, 'run')}" if self.wrong else ""
        parts = [wrong, self._condition()]
        if self.incomplete:
            parts.append(f"{self.incomplete} of {wording.counted(self.runs, 'run')} failed or stopped")
        parts.append(self._drift())
        if self.single:
            parts.append(f"no confidence intervals over repeats: fewer than {MINIMUM_REPEATS}")
        return wording.sentence("; ".join(part for part in parts if part))

    def _drift(self) -> str:
        """Decided as by the finding about drift."""
        if not self.drift or abs(self.drift.change.value) <= NOTABLE_DRIFT:
            return ""
        if self.drift.has_trend:
            return f"the control case drifted by {wording.percent_text(abs(self.drift.change.value))}"
        return f"the control case varied by {wording.percent_text(self.drift.spread)} without a trend"

    def _condition(self) -> str:
        if self.simulated:
            return "simulated device on a virtual clock: bottleneck analysis does not apply"
        if not self.judged:
            return "no run has a verdict"
        undetermined = self.verdicts.get("undetermined", 0)
        if 2 * undetermined > self.judged and not self.external:
            runs = wording.some(undetermined, self.judged, "run")
            return f"in {runs} it is not known whether the device was the bottleneck"
        counts = {kind: self.verdicts[kind] for kind in KINDS if self.verdicts.get(kind)}
        text = verdicts_text(counts, self.judged, verb="was " if self.judged == 1 else "were ")
        return f"{text}{self._bounds()}" if self.mostly_unlimited else text

    def _bounds(self) -> str:
        """Harness-limited results are lower bounds; an undetermined one may be that of a cache as well."""
        cached, undetermined = (self.verdicts.get(kind, 0) for kind in ("cache-served", "undetermined"))
        if 2 * cached > self.judged:
            return ": results of a cache, not of the device"
        if cached:
            return ""
        if 2 * undetermined == self.judged:
            return ": results not attributable to the device"
        return ": lower bounds where harness-limited" if undetermined else ": lower bounds only"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a result set to its study's question."""

    question: str
    summary: tuple[Finding, ...]
    """The answer to the question: at most three findings, the most important first."""
    trust: Trust
    rest: tuple[Finding, ...]
    """The other findings, in the order of their topics."""

    @property
    def is_usable(self) -> bool:
        """False if other load disturbed most runs: what is not strong is folded then."""
        return not any(each.loss == "disturbed" for each in self.summary)

    @property
    def is_trust_first(self) -> bool:
        """True if a reader must know the verdicts before the claims; without a usable run there is no claim."""
        return self.trust.mostly_unlimited and self.is_usable

    @property
    def findings(self) -> list[Finding]:
        """All findings, the summary first."""
        return [*self.summary, *self.rest]


def trust_of(metrics: pl.DataFrame, outcomes: pl.DataFrame | None) -> Trust:
    """Return the trust in a result set; `outcomes` is the view `runs`."""
    repeats = metrics.filter(~pl.col("control")).group_by("case_id").agg(pl.col("run_id").n_unique())
    single = len(repeats) > 0 and bool((repeats["run_id"] < MINIMUM_REPEATS).all())
    found = load_drift(metrics)
    if outcomes is None:
        return Trust(verdicts={}, runs=metrics["run_id"].n_unique(), incomplete=0, single=single, drift=found)
    ended = outcomes.select("outcome", pl.col("failure", "verdict").fill_null(""), "has_wrong_data").rows()
    return trust_from(ended, single=single, drift=found)


def trust_from(
    ended: Sequence[tuple[str, str, str, bool]], *, single: bool, drift: Drift | None, simulated: bool = False
) -> Trust:
    """Return the trust in runs from `Record.ended` of each."""
    possible = [outcome for outcome, failure, *_ in ended if failure != UNSUPPORTED]
    counts = Counter(verdict for _, _, verdict, _ in ended)
    return Trust(
        verdicts={kind: counts[kind] for kind in KINDS if counts[kind]},
        runs=len(possible),
        incomplete=sum(outcome != "complete" for outcome in possible),
        wrong=sum(is_wrong for *_, is_wrong in ended),
        single=single,
        drift=drift,
        simulated=simulated,
    )


_OF_ONE_LOAD = ("peak", "throughput", "unloaded latency", "durable writes", "one level")
"""Kinds that state a value of one load."""


def _varied(findings: Sequence[Finding]) -> list[Finding]:
    """Put values of one kind and metric behind those of others: bandwidth, IOPS and a latency instead of three rates.

    Findings of other topics keep their places, and so do the peaks of a study with a single part, which asks for them:
    reads and writes are two answers.
    """
    parts = {each.part for each in findings if each.topic == "performance" and each.part}
    kinds = _OF_ONE_LOAD if len(parts) > 1 else [kind for kind in _OF_ONE_LOAD if kind != "peak"]
    seen: set[tuple[str, object]] = set()
    first: list[Finding] = []
    repeated: list[Finding] = []
    for each in findings:
        if each.kind in kinds:
            key = (each.kind, getattr(each, "metric", None))
            (repeated if key in seen else first).append(each)
            seen.add(key)
    ordered = iter([*first, *repeated])
    return [next(ordered) if each.kind in kinds else each for each in findings]


def answered(question: str, findings: Sequence[Finding], trust: Trust) -> Answer:
    """Divide findings, the most important first, into the answer and the rest."""
    chosen = [each for each in findings if each.topic != "quality" or each.loss]
    if any(each.loss == "disturbed" for each in chosen):  # Nothing that was measured is an answer.
        chosen = [each for each in chosen if each.loss or each.holds_under_load]
    summary = tuple(_varied(chosen)[:SENTENCES])
    shown = {id(each) for each in summary}
    # The line on trust states the number of runs by verdict, and missing repeats of all cases.
    stated = {"verdicts", *(["few repeats"] if trust.single else [])}
    rest = [each for each in findings if id(each) not in shown and each.kind not in stated]
    order = list(TOPICS)
    return Answer(
        question=question,
        summary=summary,
        trust=trust,
        rest=tuple(sorted(rest, key=lambda each: order.index(each.topic))),
    )
