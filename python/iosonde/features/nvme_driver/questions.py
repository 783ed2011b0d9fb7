"""The gain of each I/O backend over the one before it, and the share of its latency that is software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from iosonde.features.nvme_driver.backends import NAME
from iosonde.findings.cells import groups
from iosonde.findings.finding import FIRST, Finding
from iosonde.findings.kinds import Curve, between, of_question, over_numbers
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import Estimate, pooled_ratio, ratio, repeats_interval
from iosonde.study.model import Analysis, Level

LATENCY = "completion_latency_ns_mean"


class BackendStep(Finding, kind="backend step", topic="comparison"):
    """The metric with one backend over that with another, by default the one before it in the order of the study."""

    load: str
    metric: str
    before: str
    after: str
    ratio: Estimate
    """After over before: the geometric mean over the cells."""
    cells: tuple[tuple[str, float], ...]
    """Words for each cell, and its ratio; the smallest ratio first."""
    repeats: int

    def _sentence(self) -> str:
        metric, times = wording.metric_words(self.metric), wording.ratio_estimate_text(self.ratio)
        return f"{self.load}: {self.after} has {times} the {metric} of {self.before}{self._spread()}"

    def _spread(self) -> str:
        (low_words, low), (high_words, high) = self.cells[0], self.cells[-1]
        if len(self.cells) < 2 or not low_words:
            return f" with {low_words}" if low_words else ""
        smallest, largest = wording.times_number(low), wording.times_number(high)
        return f", from {smallest} with {low_words} to {largest} with {high_words}"

    def _evidence(self) -> str:
        cells = f"{wording.counted(len(self.cells), 'cell')}, {wording.counted(self.repeats, 'run')} each"
        return f"{wording.metric_words(self.metric)} of {self.after} over {self.before}; {cells}"


class TotalGain(BackendStep, kind="total backend gain", topic="comparison", place=1):
    """The metric with the best backend over that with the first."""

    leads: bool
    """True if intervals show this backend to be better than every other."""
    improving: tuple[str, ...]
    """Backends that intervals show to be better than the first."""

    def _sentence(self) -> str:
        metric, times = wording.metric_words(self.metric), wording.ratio_estimate_text(self.ratio)
        several = len(self.cells) > 1
        value = f"has {times} the {metric} of {self.before}{self._spread()}"
        end = "highest" if metric_of(self.metric).better == "higher" else "lowest"
        after = f"{self.after}, with the {end} {'geometric mean' if several else 'median'} of all backends, {value}"
        if self.after not in self.improving:
            over = f" on average over {len(self.cells)} cells" if several else ""
            shown = wording.listing(self.improving) if self.improving else "no backend"
            verb = "are" if len(self.improving) > 1 else "is"
            return f"{self.load}: {shown} {verb} shown to improve on {self.before}{over}; {after}"
        if not self.leads:
            return f"{self.load}: {after}"
        return f"{self.load}: {self.after}, the best backend, {value}"


class SoftwareShare(Finding, kind="software share", place=FIRST, topic="performance"):
    """The share of each backend's latency at queue depth 1 that is above the floor: the polled user-level driver's.

    That is taken as the device's own: the kernel is not involved.
    """

    load: str
    floor: Estimate
    """Mean latency of the polled user-level driver, in nanoseconds."""
    shares: tuple[tuple[str, Estimate], ...]
    """Backend, and its share: 1 less the floor over its latency (negative if that is lower); in the study's order."""
    repeats: int

    def _sentence(self) -> str:
        floor = wording.estimate_text(LATENCY, self.floor)
        above = [each for each in self.shares if each[1].value > 0]
        below = [name for name, share in self.shares if share.value <= 0]
        ordered = sorted(above, key=lambda each: each[1].value)
        ends = dict.fromkeys((ordered[0], ordered[-1])) if ordered else ()
        of_latency = (" of the latency", "")
        listed = [
            f"{_share_text(share)}{what} with {name}" for (name, share), what in zip(ends, of_latency, strict=False)
        ]
        clauses = [f"software is {' to '.join(listed)}"] if listed else []
        if below:
            clauses.append(
                f"the latency of {wording.listing(below)} is not shown to be above that of the user-level driver"
            )
        clauses.append(f"the floor is {floor} with the user-level driver")
        return f"{self.load} at queue depth 1: {'; '.join(clauses)}"

    def _evidence(self) -> str:
        listed = ", ".join(f"{name} {wording.percent_text(max(0.0, share.value))}" for name, share in self.shares)
        return (
            f"1 less the mean latency of `{NAME}` over that of the backend, at least 0, one job: {listed}; "
            f"{wording.counted(self.repeats, 'run')} each"
        )


class UnknownSoftwareShare(Finding, kind="unknown software share", topic="performance"):
    """No run of the user-level driver at queue depth 1 gives the floor of the latency."""

    evidence_text = "no complete run of the user-level driver at queue depth 1, which gives the floor of the latency"
    load: str

    def _sentence(self) -> str:
        return (
            f"{self.load}: the software share of the latency is unknown, because the backend `{NAME}` "
            "was not measured at queue depth 1"
        )


def _share_text(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return wording.percent_text(share.value)
    return f"{wording.percent_text(share.value)} (95 % CI {wording.percent_range(max(0.0, share.low), share.high)})"


def find(question: Question) -> Iterator[Finding]:
    """Compare each backend with the one before it and the first with the best; then state the software share."""
    for key, group in over_numbers(question):
        levels = _in_order(question, {level for curve in group for level in curve.levels})
        for before, after in pairwise(levels):
            yield from _step(BackendStep, question, key, group, before, after)
        best = _best(question, group, levels)
        if len(levels) > 2 and best != levels[0] and best != levels[1]:
            others = [level for level in levels if level != best and between(group, best, level)]
            ends = {
                "leads": all(_is_better(question, group, best, than=level) for level in others),
                "improving": tuple(level for level in levels[1:] if _is_better(question, group, level, than=levels[0])),
            }
            yield from _step(TotalGain, question, key, group, levels[0], best, **ends)
    levels_of_study = question.part.all_factors[question.analysis.over]
    has_driver = any(level.set.get("backend") == NAME for level in levels_of_study if isinstance(level, Level))
    if has_driver and question.analysis == _first(question):
        yield from _software(question)


def _first(question: Question) -> Analysis:
    """The first analysis of this kind in the study, which alone states the share: parts may repeat its cells."""
    return next(each for each in question.study.analysis if each.kind == question.analysis.kind)


def _in_order(question: Question, found: set[str]) -> list[str]:
    levels = question.part.all_factors[question.analysis.over]
    named = [str(getattr(level, "label", level)) for level in levels]
    return [level for level in named if level in found]


def _over(group: Sequence[Curve], level: str, other: str) -> Estimate | None:
    """Return the ratio of two levels over all cells that have both; None without any."""
    rows = between(group, level, other)
    return pooled_ratio([row["pair"] for row in rows]) if rows else None


def _best(question: Question, group: Sequence[Curve], levels: Sequence[str]) -> str:
    """The level with the best geometric mean over the cells that it shares with the first."""
    found = {level: each.value for level in levels[1:] if (each := _over(group, level, levels[0]))}
    best = max if metric_of(question.analysis.metric).better == "higher" else min
    return best([levels[0], *found], key=lambda level: found.get(level, 1.0))


def _is_better(question: Question, group: Sequence[Curve], level: str, *, than: str) -> bool:
    found = _over(group, level, than)
    if found is None:
        return False
    return found.above(1) if metric_of(question.analysis.metric).better == "higher" else found.below(1)


def _step(
    kind: type[BackendStep],
    question: Question,
    key: Mapping[str, Any],
    group: Sequence[Curve],
    before: str,
    after: str,
    **more: Any,
) -> Iterator[Finding]:
    rows = between(group, after, before)
    if not rows:
        return
    found = of_question(question, rows)
    yield kind(
        load=question.load(key, rows[0]["cases"][1]),
        before=before,
        after=after,
        case_ids=tuple(dict.fromkeys(case for row in rows for case in reversed(row["cases"]))),
        **{name: found[name] for name in ("metric", "ratio", "cells", "repeats", "strength", "part")},
        **more,
    )


def _software(question: Question) -> Iterator[Finding]:
    """One finding for each load at queue depth 1 with one job."""
    over = question.analysis.over
    factors = [name for name in question.by if name not in ("queue_depth", "jobs")]
    where: dict[str, Any] = {name: 1 for name in ("queue_depth", "jobs") if name in question.by}
    found = question.cells_by(LATENCY, [over, *factors], {**question.analysis.where, **where})
    if found.is_empty():
        return
    for key, group in groups(found, factors):
        values = dict(zip(group[over], group["values"], strict=True))
        case_of = dict(zip(group[over], group["case_id"], strict=True))
        yield _share(question, key, values, case_of)


def _share(
    question: Question, key: Mapping[str, Any], values: Mapping[str, Any], case_of: Mapping[str, str]
) -> Finding:
    cases = {level: question.case(case_id) for level, case_id in case_of.items()}
    driven = [level for level, case in cases.items() if case.get("backend") == NAME]
    floor = next((level for level in driven if not cases[level].get("interrupts")), None)
    kernel = [level for level in _in_order(question, set(values)) if level not in driven]
    case_ids = tuple(case_of.values())
    load = question.load(key, case_ids[0])
    if floor is None or not kernel:
        return UnknownSoftwareShare(load=load, strength="weak", case_ids=case_ids, part=question.part.name)
    fastest = np.asarray(values[floor].to_list())
    shares = []
    for level in kernel:
        part = ratio(fastest, np.asarray(values[level].to_list()))
        low, high = (None if end is None else 1 - end for end in (part.high, part.low))
        shares.append((level, Estimate(1 - part.value, low, high, part.method, part.n)))
    return SoftwareShare(
        load=load,
        floor=repeats_interval(fastest),
        shares=tuple(shares),
        repeats=min(len(each) for each in values.values()),
        **question.claim(case_ids, *(share for _, share in shares)),
    )


KINDS = (QuestionKind("backend_steps", find, is_of_names=True),)
