"""Comparison of levels: reads and writes, sequential and random, one store and another, less memory and all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Bounds, Finding
from iosonde.findings.kinds import Decision, Ratio, Rows, between, in_parentheses, of_question, over_numbers, pairs_of
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import MARGIN, Estimate, ratio, runs_needed, verdict

ALIKE = 1.25
"""Ratios of cells that differ by less are not listed one by one."""

LISTED = 6
"""With more comparisons of the same two levels, those with the same result are merged."""


class Comparison(Ratio, kind="comparison", topic="comparison"):
    """Two levels compared, the larger value on top; of an unclear comparison the first level."""

    settled_by: str = ""
    """Repeats that would decide an unclear comparison."""

    @property
    def reversed_cells(self) -> list[str]:
        """Cells in which the other level is larger by more than the margin."""
        return [words for words, value in self.cells if value < 1 / (1 + MARGIN)]

    def _sentence(self) -> str:
        both = f"{self.top} and {self.bottom}"
        if len(self.bounds) > 1:
            kind = "lower" if metric_of(self.metric).better == "higher" else "upper"
            return f"{both}{self.about}: {self._metric} not compared, {kind} bounds on both sides"
        if self.ratio.is_wide:
            return f"{both}{self.about}: {self._metric} too variable to compare"
        if self.opposed and self.decision != "higher":
            return f"{self._metric} of {self.top} over {self.bottom}{self.about} {self.opposed.text}{self._some_bounds}"
        if self.decision == "unclear" and not self.ratio.certain:
            compared = f"{self._metric} of {self.top} over {self.bottom}{self.about}"
            return f"{compared}: {self._times}{self._extremes(',')}, without a confidence interval"
        if self.decision == "unclear":
            return f"{self._undecided} between {both}{self.about}: {self._metric} {self._ratio_text}"
        if self.decision == "same" and self.bounds:
            return f"{self._metric} of {self.top} over {self.bottom}{self.about}: {self._times}{self._extremes(',')}"
        if self.decision == "same":
            same = sum(1 / (1 + MARGIN) <= value <= 1 + MARGIN for _, value in self.cells)
            some = f" in {same} of {len(self.cells)} cells" if same < len(self.cells) else ""
            extremes = self._extremes("; ratio")
            return f"{both} have equal {self._metric} within {100 * MARGIN:.0f} %{self.about}{some}{extremes}"
        average = " on average" if self._differ else ""
        plural, higher = self.top.endswith("s") or " and " in self.top, metric_of(self.metric).better == "higher"
        verb = ("reach" if plural else "reaches") if higher else ("have" if plural else "has")
        value = f"{self._times} the {self._metric} of {self.bottom}{self.about}"
        if self._differ and self.reversed_cells:
            spread = f"from {' to '.join(self._spread)}{self._some_bounds}"
            return f"{self._metric} of {self.top} over {self.bottom}{self.about}: {spread}"
        return f"{self.top} {verb}{average} {value}{self._extremes(',')}"

    def _evidence(self) -> str:
        if len(self.bounds) > 1:
            return f"{wording.counted(self.repeats, 'run')} each"
        reverse = f"; reversed {', '.join(self.reversed_cells)}" if len(self.reversed_cells) > 1 else ""
        return super()._evidence() + reverse + (f"; {self.settled_by}" if self.settled_by else "")

    @property
    def _some_bounds(self) -> str:
        """Qualifies the ratios of single cells."""
        kind = {"at least ": "lower", "at most ": "upper"}.get(self._bound)
        return f"; {kind} bounds where harness-limited" if kind else ""

    def _extremes(self, separator: str) -> str:
        """Name the cells with the smallest and the largest ratio, if they are far apart."""
        return f"{separator} from {' to '.join(self._spread)}" if self._differ and self.cells[0][0] else ""

    @property
    def _differ(self) -> bool:
        """True if the ratios of the cells are far apart."""
        return len(self.cells) > 1 and self.cells[-1][1] / self.cells[0][1] > ALIKE


class NoDifferences(Finding, kind="no differences", topic="comparison"):
    """Several levels, no two of which differ measurably."""

    metric: str
    levels: tuple[str, ...]
    about: str
    low: float
    high: float
    """Range of the ratios of any two levels."""
    repeats: int
    certain: bool = True
    """True if every ratio has an interval."""

    def _sentence(self) -> str:
        metric = wording.metric_words(self.metric)
        levels = wording.listing(self.levels)
        if not self.certain:
            ratios = wording.range_text(*map(wording.ratio_text, (self.low, self.high)))
            what = f"{metric} of {levels}{self.about}: ratios of any two {ratios}"
            return f"{what}, without confidence intervals"
        return f"No clear differences in {metric} between {levels}{self.about}"

    def _evidence(self) -> str:
        low, high = (wording.ratio_text(end) for end in (self.low, self.high))
        return f"ratios of any two {wording.range_text(low, high)}; {wording.counted(self.repeats, 'run')} each"


_Found = list[tuple[Mapping[str, Any], Rows, Comparison]]
"""Levels of the load, the cells, and their comparison."""


def comparisons(question: Question) -> Iterator[Finding]:
    """Compare every two levels; where no two differ measurably, return one finding for all."""
    found: _Found = []
    for key, group in over_numbers(question):
        pairs = [between(group, *levels) for levels in pairs_of(group)]
        compared = [_comparison(question, key, rows) for rows in pairs]
        if len(compared) > 1 and all(each.decision == "unclear" and not each.opposed for each in compared):
            yield _no_differences(compared)
        else:
            found += [(key, rows, each) for rows, each in zip(pairs, compared, strict=True)]
    yield from (each for _, _, each in _merged(question, found))


def _merged(question: Question, found: _Found) -> _Found:
    """Merge comparisons of the same levels with the same result along one factor after another, while many remain."""
    for factor in [name for name in reversed(question.by) if name not in question.numeric]:
        if len(found) <= LISTED:
            break
        alike: dict[tuple[Any, ...], _Found] = {}
        for key, rows, each in found:
            rest = tuple((name, level) for name, level in key.items() if name != factor)
            alike.setdefault((rest, *_result(each)), []).append((key, rows, each))
        found = [member for group in alike.values() for member in _as_one(question, factor, group)]
    return found


def _as_one(question: Question, factor: str, members: _Found) -> _Found:
    """Merge comparisons that differ in one factor, unless together they decide otherwise."""
    key, _, first = members[0]
    if len(members) == 1 or factor not in key:
        return members
    together = [row for _, rows, _ in members for row in rows]
    rest = {name: level for name, level in key.items() if name != factor}
    one = _comparison(question, rest, together, merged=[factor, *question.by[question.by.index(factor) + 1 :]])
    return [(rest, together, one)] if _result(one) == _result(first) else members


def _result(each: Comparison) -> tuple[str, str, Decision, Bounds]:
    return each.top, each.bottom, each.decision, each.bounds


def _no_differences(found: Sequence[Comparison]) -> NoDifferences:
    ratios = [value for each in found for _, value in each.cells]
    return NoDifferences(
        metric=found[0].metric,
        levels=tuple(dict.fromkeys(level for each in found for level in (each.top, each.bottom))),
        about=found[0].about,
        low=min(ratios),
        high=max(ratios),
        repeats=min(each.repeats for each in found),
        certain=all(each.ratio.certain for each in found),
        strength="weak",
        case_ids=tuple(dict.fromkeys(case for each in found for case in each.case_ids)),
        part=found[0].part,
    )


def _comparison(question: Question, key: Mapping[str, Any], rows: Rows, *, merged: Sequence[str] = ()) -> Comparison:
    """Compare two levels over cells that may differ in numbers and in the factors `merged`."""
    named = [name for name in merged if name not in question.numeric and name in rows[0]]
    of_cells = ([*(wording.level_words(name, row[name]) for name in named), question.numbers(row)] for row in rows)
    words = [", ".join(filter(None, each)) for each in of_cells]
    top, bottom = (_level(question, rows[0], which) for which in (0, 1))
    values = of_question(question, rows, words)
    if values["decision"] == "lower":
        top, bottom = bottom, top
        reverse = [{**row, "pair": row["pair"][::-1], "cases": row["cases"][::-1]} for row in rows]
        values = of_question(question, reverse, words)
    if values["decision"] == "unclear":
        values |= {"strength": "weak", "settled_by": runs_needed(values["ratio"], values["repeats"])}
    return Comparison(top=top, bottom=bottom, about=_about(question, key, rows, hidden=named), **values)


def _level(question: Question, row: Mapping[str, Any], which: int) -> str:
    """Name one level by the words that distinguish it from the other: `reads`, `sequential I/O`, `buffered I/O`."""
    over = question.analysis.over
    if over in question.apart_in_results:
        level = str(row["levels"][which])
        return f"{level}s" if over == "operation" else level
    words = [question.words(case) for case in row["cases"]]
    differing = {name: word for name, word in words[which].items() if words[1 - which].get(name) != word}
    if differing:
        return wording.phrase(differing)
    if words[1 - which].keys() - words[which].keys():
        return "direct I/O"
    return wording.level_words(over, row["levels"][which])


def _about(
    question: Question, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, hidden: Sequence[str]
) -> str:
    """Name the load by the words that both levels share in all rows."""
    hidden = [question.analysis.over, *question.numeric, *hidden]
    first, *others = (question.words(case, without=hidden) for row in rows for case in row["cases"])
    shared = {name: word for name, word in first.items() if all(each.get(name) == word for each in others)}
    rest = [
        wording.level_words(name, level)
        for name, level in key.items()
        if name not in hidden and not question.is_worded(name)
    ]
    of = f" for {wording.phrase(shared)}" if shared else ""
    return of + (f" at {wording.listing(rest)}" if rest else "")


MEMORY = "memory_limit"
"""Parameter whose value is the memory of a case."""

ENOUGH = ("same", "better")


class MemoryShare(Finding, kind="memory share", topic="limits", place=2):
    """The largest share of memory that can be replaced without a measurably higher latency."""

    tier: str
    """Title of the part: where the remaining data is."""
    metric: str
    about: str
    replaced: float
    """Share of memory that the device replaces; 0 if it replaces none of the measured shares."""
    ratio: Estimate | None
    """The metric with that share replaced over the metric with all memory."""
    next_replaced: float | None
    """The next larger share that was measured; None if the largest one was replaced."""
    next_ratio: Estimate | None
    next_decision: str
    """`worse` or `unclear`; empty if the largest share was replaced."""
    repeats: int
    equal_beyond: tuple[float, ...] = ()
    """Larger shares than `next_replaced` at which the metric is not higher."""

    def _sentence(self) -> str:
        metric = f"{wording.metric_words(self.metric)}{self.about}"
        smallest = "the smallest measured share of memory" if self.equal_beyond else ""
        if self.replaced and self.ratio:
            share, times = wording.percent_text(self.replaced), wording.ratio_estimate_text(self.ratio)
            found = f"with {share} of memory replaced, {metric} is {times} that with all memory"
        elif self.next_decision == "unclear":
            found = f"not clear whether {smallest or 'any memory'} can be replaced at equal {metric}"
        elif self.equal_beyond:
            found = f"{smallest} cannot be replaced at equal {metric}"
        else:
            found = f"no measured share of memory can be replaced at equal {metric}"
        return f"{self.tier}: {found}; {self._limit()}"

    def _limit(self) -> str:
        if self.next_replaced is None or self.next_ratio is None:
            return "no larger share was measured"
        larger = [wording.percent_text(each) for each in self.equal_beyond]
        beyond = f"; with {wording.listing(larger)} replaced it is not higher" if larger else ""
        found = "the difference is not clear," if self.next_decision == "unclear" else "it is"
        times = wording.ratio_estimate_text(self.next_ratio)
        return f"with {wording.percent_text(self.next_replaced)} replaced {found} {times}{beyond}"

    def _evidence(self) -> str:
        compared = f"{wording.metric_words(self.metric)} of each memory limit over that of the largest one"
        return f"{compared}, equal within 5 %; {wording.counted(self.repeats, 'run')} each"


def memory_shares(question: Question) -> Iterator[Finding]:
    """Compare each level of `over` with the one that has the most memory."""
    memory = dict(question.cases.select("case_id", MEMORY).iter_rows()) if MEMORY in question.cases.columns else {}
    frame = question.cells()
    known = frame.filter(pl.col("case_id").is_in([case for case, size in memory.items() if size]))
    for key, group in groups(known, question.by):
        rows = sorted(group.iter_rows(named=True), key=lambda row: -int(memory[row["case_id"]]))
        if len(rows) > 1:
            yield _answer(question, key, rows, memory)


def _answer(question: Question, key: dict[str, Any], rows: list[dict[str, Any]], memory: dict[str, Any]) -> MemoryShare:
    whole, *others = rows
    replaced, found, following = 0.0, None, None
    beyond: list[float] = []
    for row in others:
        share = 1 - int(memory[row["case_id"]]) / int(memory[whole["case_id"]])
        times = ratio(row["values"], whole["values"])
        decision = verdict(times, better="lower")
        if following:
            beyond += [share] if decision in ENOUGH else []
        elif decision not in ENOUGH:
            following = (share, times, decision)
        else:
            replaced, found = share, times
    return MemoryShare(
        tier=question.part.title or question.part.name,
        metric=question.analysis.metric,
        about=in_parentheses(key, without=["operation"]),
        replaced=replaced,
        ratio=found,
        next_replaced=following[0] if following else None,
        next_ratio=following[1] if following else None,
        next_decision=following[2] if following else "",
        repeats=min(len(row["values"]) for row in rows),
        equal_beyond=tuple(beyond),
        **question.claim([row["case_id"] for row in rows], following[1] if following else found),
    )


KINDS = (
    QuestionKind("asymmetry", comparisons, compares_levels=True, is_of_names=True),
    QuestionKind("memory_share", memory_shares, compares_levels=True),
)
