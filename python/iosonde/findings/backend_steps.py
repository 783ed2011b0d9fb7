"""What each I/O backend gains over the one before it, and which share of its latency is software."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.findings.asymmetry import asymmetry
from iosonde.findings.cells import cells, groups
from iosonde.findings.finding import Finding, Topic, weakest
from iosonde.findings.question import Question
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import Estimate, pooled_ratio, ratio

LATENCY = "completion_latency_ns_mean"
USER_LEVEL = "nvme_user"
"""The backend whose latency at queue depth 1 is taken as the device's own: it polls, and the kernel is not involved."""


@dataclass(frozen=True, kw_only=True)
class BackendStep(Finding):
    """The metric with one backend over that with the backend before it, in the order of the study."""

    kind: ClassVar[str] = "backend step"
    topic: ClassVar[Topic] = "comparison"
    load: str
    metric: str
    before: str
    after: str
    is_total: bool
    """Whether it is from the first backend to the best."""
    ratio: Estimate
    """After over before: the geometric mean over the cells."""
    cells: tuple[tuple[str, float], ...]
    """Words for each cell, and its ratio; the smallest ratio first."""
    repeats: int

    def _sentence(self) -> str:
        metric, times = wording.metric_words(self.metric), wording.ratio_estimate_text(self.ratio)
        what = "in total, " if self.is_total else ""
        return f"{self.load}: {what}{self.after} has {times} the {metric} of {self.before}{self._spread()}"

    def _spread(self) -> str:
        (low_words, low), (high_words, high) = self.cells[0], self.cells[-1]
        if len(self.cells) < 2 or not low_words:
            return ""
        smallest, largest = wording.times_number(low), wording.times_number(high)
        return f", from {smallest} with {low_words} to {largest} with {high_words}"

    def _evidence(self) -> str:
        cells = f"{wording.counted(len(self.cells), 'cell')}, {wording.counted(self.repeats, 'run')} each"
        return f"{wording.metric_words(self.metric)} of {self.after} over {self.before}; {cells}"


@dataclass(frozen=True, kw_only=True)
class SoftwareShare(Finding):
    """The share of each backend's latency at queue depth 1 that the polled user-level driver does not have."""

    kind: ClassVar[str] = "software share"
    topic: ClassVar[Topic] = "performance"
    load: str
    shares: tuple[tuple[str, Estimate], ...]
    """Backend, and its share: 1 less the user-level latency over its own. Empty: unknown."""
    repeats: int

    def _sentence(self) -> str:
        if not self.shares:
            return (
                f"{self.load}: the share of the latency that is software is unknown, because the backend "
                f"`{USER_LEVEL}`, whose latency is taken as the device's own, was not measured"
            )
        listed = [f"{name} {_share_text(share)}" for name, share in self.shares]
        return f"{self.load}: share of the latency at queue depth 1 that is software: {', '.join(listed)}"

    def _evidence(self) -> str:
        if not self.shares:
            return "no run of the user-level driver at queue depth 1"
        return (
            f"1 less the mean latency of `{USER_LEVEL}` over that of the backend, one job; "
            f"{wording.counted(self.repeats, 'run')} each"
        )


def _share_text(share: Estimate) -> str:
    if share.low is None or share.high is None:
        return wording.percent_text(share.value)
    return f"{wording.percent_text(share.value)} (95 % CI {wording.percent_range(share.low, share.high)})"


def find(question: Question) -> Iterator[Finding]:
    """Compare each backend with the one before it and the first with the best; then the software's share of latency."""
    compared = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    for key, group in question.over_numbers(compared):
        levels = _in_order(question, {*group["first"], *group["second"]})
        for before, after in pairwise(levels):
            yield from _step(question, key, group, before, after, is_total=False)
        best = _best(question, group, levels)
        if len(levels) > 2 and best != levels[0] and best != levels[1]:
            yield from _step(question, key, group, levels[0], best, is_total=True)
    yield from _software(question)


def _in_order(question: Question, found: set[str]) -> list[str]:
    levels = question.part.all_factors[question.analysis.over]
    named = [str(getattr(level, "label", level)) for level in levels]
    return [level for level in named if level in found]


def _best(question: Question, group: pl.DataFrame, levels: Sequence[str]) -> str:
    """The level with the best geometric mean over the cells that it shares with the first."""
    sign = 1 if metric_of(question.analysis.metric).better == "higher" else -1
    over_first = {levels[0]: 0.0}
    for level in levels[1:]:
        rows = _rows(group, levels[0], level)
        if rows:
            over_first[level] = sign * float(np.mean([np.log(row["ratio"]) for row in rows]))
    return max(over_first, key=lambda level: over_first[level])


def _rows(group: pl.DataFrame, before: str, after: str) -> list[dict[str, Any]]:
    """Each cell that has both levels: `ratio` is after over before, `values` the repeats of both."""
    found = []
    for row in group.iter_rows(named=True):
        values = {row["first"]: row["first_values"], row["second"]: row["second_values"]}
        if values.keys() == {before, after}:
            inverse = row["first"] == before
            found.append({**row, "ratio": 1 / row["ratio"] if inverse else row["ratio"], "values": values})
    return found


def _step(
    question: Question, key: Mapping[str, Any], group: pl.DataFrame, before: str, after: str, *, is_total: bool
) -> Iterator[Finding]:
    rows = _rows(group, before, after)
    if not rows:
        return
    pooled = pooled_ratio([(row["values"][after], row["values"][before]) for row in rows])
    case_ids = tuple(dict.fromkeys(case for row in rows for case in row["case_ids"]))
    cells = [(question.numbers(row) if question.numeric else "", float(row["ratio"])) for row in rows]
    yield BackendStep(
        load=question.load(key, rows[0]["case_ids"][0]),
        metric=question.analysis.metric,
        before=before,
        after=after,
        is_total=is_total,
        ratio=pooled,
        cells=tuple(sorted(cells, key=lambda cell: cell[1])),
        repeats=min(len(values) for row in rows for values in row["values"].values()),
        strength=question.support.strength(case_ids, pooled),
        case_ids=case_ids,
        part=question.part.name,
    )


def _software(question: Question) -> Iterator[Finding]:
    """One finding for each load at queue depth 1 with one job."""
    over = question.analysis.over
    factors = [name for name in question.by if name not in ("queue_depth", "jobs")]
    where: dict[str, Any] = {name: 1 for name in ("queue_depth", "jobs") if name in question.by}
    found = cells(
        question.runs,
        question.cases,
        part=question.part.name,
        metric=LATENCY,
        factors=[over, *factors],
        where={**question.analysis.where, **where},
    )
    if found.is_empty():
        return
    for key, group in groups(found, factors):
        values = dict(zip(group[over], group["values"], strict=True))
        case_of = dict(zip(group[over], group["case_id"], strict=True))
        yield _share(question, key, values, case_of)


def _share(
    question: Question, key: Mapping[str, Any], values: Mapping[str, Any], case_of: Mapping[str, str]
) -> SoftwareShare:
    floor = next((level for level, case in case_of.items() if question.case(case).get("backend") == USER_LEVEL), None)
    kernel = [level for level in _in_order(question, set(values)) if level != floor]
    shares = []
    if floor is not None:
        for level in kernel:
            part = ratio(np.asarray(values[floor].to_list()), np.asarray(values[level].to_list()))
            shares.append((level, Estimate(1 - part.value, _less(part.high), _less(part.low), part.method, part.n)))
    case_ids = tuple(case_of.values())
    estimates = [share for _, share in shares]
    return SoftwareShare(
        load=question.load(key, case_ids[0]),
        shares=tuple(shares),
        repeats=min(len(each) for each in values.values()),
        strength=question.support.strength(case_ids, *estimates) if shares else weakest("weak"),
        case_ids=case_ids,
        part=question.part.name,
    )


def _less(part: float | None) -> float | None:
    return None if part is None else 1 - part
