"""Comparison of levels: reads and writes, sequential and random, buffered and direct, one store and another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import MARGIN, Estimate, pooled_ratio, ratio, runs_needed, verdict

ALIKE = 1.25
"""Ratios of cells that differ by less are not listed one by one."""

LISTED = 6
"""With more comparisons of the same two levels, those with the same result are merged."""

Decision = Literal["equal", "different", "unclear"]


@dataclass(frozen=True, kw_only=True)
class Comparison(Finding):
    """Two levels compared, over all cells that have both."""

    kind: ClassVar[str] = "comparison"
    topic: ClassVar[Topic] = "comparison"
    metric: str
    larger: str
    smaller: str
    """Names of the levels; of an unclear comparison the first and the second."""
    about: str
    """The load that both share, with a preposition; empty if there is nothing else to name."""
    decision: Decision
    ratio: Estimate
    """Larger over smaller: the geometric mean over the cells."""
    cells: tuple[tuple[str, float], ...]
    """Words for each cell, and its ratio; the smallest ratio first."""
    repeats: int
    settled_by: str = ""
    """Repeats that would decide an unclear comparison."""
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""

    @property
    def reversed_cells(self) -> list[str]:
        """Cells in which the other level is larger by more than the margin."""
        return [words for words, value in self.cells if value < 1 / (1 + MARGIN)]

    def _sentence(self) -> str:
        both = f"{self.larger} and {self.smaller}"
        metric = wording.metric_words(self.metric)
        if self.opposed and self.decision != "different":
            return f"{metric} of {self.larger} over {self.smaller}{self.about} {self.opposed.text}"
        if self.decision == "unclear":
            ratio = wording.ratio_estimate_text(self.ratio, unit="")
            return f"No clear difference between {both}{self.about}: {metric} ratio {ratio}"
        if self.decision == "equal":
            same = sum(1 / (1 + MARGIN) <= value <= 1 + MARGIN for _, value in self.cells)
            some = f" in {same} of {len(self.cells)} cells" if same < len(self.cells) else ""
            return f"{both} have equal {metric} within {100 * MARGIN:.0f} %{self.about}{some}{self._spread()}"
        times = wording.ratio_estimate_text(self.ratio)
        average = " on average" if self.reversed_cells or self._differ else ""
        plural, higher = _is_plural(self.larger), metric_of(self.metric).better == "higher"
        verb = ("reach" if plural else "reaches") if higher else ("have" if plural else "has")
        return f"{self.larger} {verb}{average} {times} the {metric} of {self.smaller}{self.about}{self._spread()}"

    def _evidence(self) -> str:
        cells = ""
        if len(self.cells) > 1:
            low, high = (wording.ratio_text(self.cells[end][1]) for end in (0, -1))
            cells = f"; {wording.range_text(low, high)} in {len(self.cells)} cells"
        reverse = f"; reversed {', '.join(self.reversed_cells)}" if len(self.reversed_cells) > 1 else ""
        settled = f"; {self.settled_by}" if self.settled_by else ""
        runs = f"{wording.counted(self.repeats, 'run')} each"
        return (
            f"{wording.metric_words(self.metric)} of {self.larger} over {self.smaller}: "
            f"{wording.ratio_estimate_text(self.ratio)}{cells}, {runs}{reverse}{settled}"
        )

    def _spread(self) -> str:
        """Name the cells with the smallest and the largest ratio, if they are far apart."""
        (low_words, low), (high_words, high) = self.cells[0], self.cells[-1]
        if not self._differ or not low_words:
            return ""
        smallest, largest = wording.times_number(low), wording.times_number(high)
        ratio = "; ratio" if self.decision == "equal" else ","
        return f"{ratio} from {smallest} with {low_words} to {largest} with {high_words}"

    @property
    def _differ(self) -> bool:
        """Return True if the ratios of the cells are far apart."""
        return len(self.cells) > 1 and self.cells[-1][1] / self.cells[0][1] > ALIKE


@dataclass(frozen=True, kw_only=True)
class NoDifferences(Finding):
    """Several levels, no two of which differ measurably."""

    kind: ClassVar[str] = "no differences"
    topic: ClassVar[Topic] = "comparison"
    metric: str
    levels: tuple[str, ...]
    about: str
    low: float
    high: float
    """Range of the ratios of any two levels."""
    repeats: int

    def _sentence(self) -> str:
        metric = wording.metric_words(self.metric)
        return f"No clear differences in {metric} between {wording.listing(self.levels)}{self.about}"

    def _evidence(self) -> str:
        low, high = (wording.ratio_text(end) for end in (self.low, self.high))
        return f"ratios of any two {wording.range_text(low, high)}; {wording.counted(self.repeats, 'run')} each"


def find(question: Question) -> Iterator[Finding]:
    """Compare every two levels; where no two differ measurably, return one finding for all."""
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    found: list[tuple[Mapping[str, Any], pl.DataFrame, Comparison]] = []
    for key, group in question.over_numbers(answers):
        pairs = [pair for _, pair in groups(group, ["first", "second"])]
        compared = [_comparison(question, key, pair) for pair in pairs]
        if len(compared) > 1 and all(each.decision == "unclear" and not each.opposed for each in compared):
            yield _no_differences(question, pairs, compared)
        else:
            found += [(key, pair, each) for pair, each in zip(pairs, compared, strict=True)]
    yield from (each for _, _, each in _merged(question, found))


_Found = Sequence[tuple[Mapping[str, Any], pl.DataFrame, Comparison]]


def _merged(question: Question, found: _Found) -> _Found:
    """Merge comparisons of the same levels with the same result along one factor after another, while many remain."""
    for factor in [name for name in reversed(question.by) if name not in question.numeric]:
        if len(found) <= LISTED:
            break
        alike: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], pl.DataFrame, Comparison]]] = {}
        for key, pair, each in found:
            rest = tuple((name, level) for name, level in key.items() if name != factor)
            alike.setdefault((rest, each.larger, each.smaller, each.decision), []).append((key, pair, each))
        found = [member for group in alike.values() for member in _as_one(question, factor, group)]
    return found


def _as_one(question: Question, factor: str, members: _Found) -> _Found:
    """Merge comparisons that differ in one factor, unless together they decide otherwise."""
    key, _, first = members[0]
    if len(members) == 1 or factor not in key:
        return members
    together = pl.concat([pair for _, pair, _ in members], how="diagonal_relaxed")
    rest = {name: level for name, level in key.items() if name != factor}
    one = _comparison(question, rest, together, merged=[factor, *question.by[question.by.index(factor) + 1 :]])
    same = (one.larger, one.smaller, one.decision) == (first.larger, first.smaller, first.decision)
    return [(rest, together, one)] if same else members


def _no_differences(question: Question, pairs: Sequence[pl.DataFrame], found: Sequence[Comparison]) -> NoDifferences:
    ratios = [float(ratio) for pair in pairs for ratio in pair["ratio"]]
    levels = [level for each in found for level in (each.larger, each.smaller)]
    return NoDifferences(
        metric=question.analysis.metric,
        levels=tuple(dict.fromkeys(levels)),
        about=found[0].about,
        low=min(ratios),
        high=max(ratios),
        repeats=min(each.repeats for each in found),
        strength="weak",
        case_ids=tuple(dict.fromkeys(case for each in found for case in each.case_ids)),
        part=question.part.name,
    )


def _comparison(
    question: Question, key: Mapping[str, Any], pair: pl.DataFrame, *, merged: Sequence[str] = ()
) -> Comparison:
    """Compare two levels over the cells in `pair`, which may differ in numbers and in the factors `merged`."""
    named = [name for name in merged if name not in question.numeric and name in pair.columns]
    rows = list(pair.iter_rows(named=True))
    pooled = pooled_ratio([(row["first_values"], row["second_values"]) for row in rows])
    judged = verdict(pooled, better="higher")
    first, second = (_level(question, rows[0], which) for which in (0, 1))
    swapped = judged == "worse"
    repeats = min(len(row[values]) for row in rows for values in ("first_values", "second_values"))
    case_ids = tuple(dict.fromkeys(case for row in rows for case in row["case_ids"]))
    decision: Decision = "unclear" if judged == "unclear" else "equal" if judged == "same" else "different"
    cells = [(_cell_words(question, row, named), row["ratio"]) for row in rows]
    estimate = Estimate(1 / pooled.value, _inverse(pooled.high), _inverse(pooled.low)) if swapped else pooled
    return Comparison(
        metric=question.analysis.metric,
        larger=second if swapped else first,
        smaller=first if swapped else second,
        about=_about(question, key, rows, hidden=named),
        decision=decision,
        ratio=estimate,
        cells=tuple(sorted(((words, 1 / r if swapped else r) for words, r in cells), key=lambda cell: cell[1])),
        repeats=repeats,
        settled_by=runs_needed(pooled, repeats) if decision == "unclear" else "",
        opposed=_opposed(cells, rows, swapped=swapped),
        strength="weak" if decision == "unclear" else question.support.strength(case_ids, estimate),
        case_ids=case_ids,
        part=question.part.name,
    )


def _opposed(cells: Sequence[tuple[str, float]], rows: Sequence[Mapping[str, Any]], *, swapped: bool) -> Opposed | None:
    top, bottom = ("second_values", "first_values") if swapped else ("first_values", "second_values")
    return opposed([words for words, _ in cells], [(row[top], row[bottom]) for row in rows])


def _is_plural(words: str) -> bool:
    return words.endswith("s") or " and " in words


def _level(question: Question, row: Mapping[str, Any], which: int) -> str:
    """Name one level by the words that distinguish it from the other: `reads`, `sequential I/O`, `buffered I/O`."""
    over = question.analysis.over
    if over in question.apart_in_results:
        level = str(row[("first", "second")[which]])
        return f"{level}s" if over == "operation" else level
    words = [question.words(case) for case in row["case_ids"]]
    differing = {name: word for name, word in words[which].items() if words[1 - which].get(name) != word}
    if differing:
        return wording.phrase(differing)
    if words[1 - which].keys() - words[which].keys():
        return "direct I/O"
    return wording.level_words(over, row[("first", "second")[which]])


def _cell_words(question: Question, row: Mapping[str, Any], named: Sequence[str]) -> str:
    words = [*(wording.level_words(name, row[name]) for name in named), question.numbers(row)]
    return ", ".join(filter(None, words))


def _about(
    question: Question, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, hidden: Sequence[str]
) -> str:
    """Name the load by the words that both levels share in all rows."""
    hidden = [question.analysis.over, *question.numeric, *hidden]
    first, *others = (question.words(case, without=hidden) for row in rows for case in row["case_ids"])
    shared = {name: word for name, word in first.items() if all(each.get(name) == word for each in others)}
    rest = [
        wording.level_words(name, level)
        for name, level in key.items()
        if name not in hidden and not question.is_worded(name)
    ]
    of = f" for {wording.phrase(shared)}" if shared else ""
    return of + (f" at {wording.listing(rest)}" if rest else "")


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def asymmetry(cells: pl.DataFrame, *, over: str, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the ratio of every two levels of the factor `over`, for each combination of `by`.

    Columns: those of `by`; `first, second` (levels, in the study's order); `ratio, low, high` (first / second);
    `first_values, second_values` (the repeats); `case_ids`.
    """
    rows = []
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        case_ids = group["case_id"].to_list()
        for a, b in combinations(range(len(levels)), 2):
            estimate = ratio(values[a], values[b])
            rows.append(
                {
                    **key,
                    "first": levels[a],
                    "second": levels[b],
                    "ratio": estimate.value,
                    "low": estimate.low,
                    "high": estimate.high,
                    "first_values": values[a].tolist(),
                    "second_values": values[b].tolist(),
                    "case_ids": [case_ids[a], case_ids[b]],
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


KINDS = (QuestionKind("asymmetry", find, compares_levels=True),)
