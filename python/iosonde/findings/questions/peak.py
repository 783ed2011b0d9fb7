"""Peak: which level of a factor gives most, how much, and how far the next best is behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from iosonde.findings.cells import groups
from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Highest, highest
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.questions.saturation import SHARE_OF_PEAK, still_rises
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, ratio, repeats_interval


class Peak(Highest, kind="peak", topic="performance", place=3):
    """The highest value along a factor with numeric levels, over all other factors."""

    reached: str
    """First setting with 95 % of the peak."""
    reached_value: float
    is_last: bool = False
    """True if it is the last level measured: no level shows that it is a peak."""

    def _sentence(self) -> str:
        reach = "reach at least" if self.lower_bound else "reach" if self.is_last else "peak at"
        reached = "" if self.reached == self.setting else f"; at least 95 % of it with {self.reached}"
        value = wording.estimate_text(self.metric, self.value)
        return "; ".join([f"{self.load} {reach} {value} with {self.setting}{reached}", *self._limits])

    def _evidence(self) -> str:
        reached = f"; {wording.value_text(self.metric, self.reached_value)} with {self.reached}"
        return f"{self._selection}{reached if self.reached != self.setting else ''}{self._other_verdicts}"


class Fastest(Finding, kind="fastest", topic="comparison"):
    """The largest of several named levels."""

    load: str
    metric: str
    levels: tuple[tuple[str, Estimate], ...]
    """Words for every level (and for the other factors that it is best with) and its value, the largest first."""
    lead: Estimate | None
    """Ratio of the largest to the second; None with a single level."""
    tied: int
    """Number of levels that do not differ measurably from the largest, itself included."""
    repeats: int
    unclear: tuple[str, ...] = ()
    """Levels with too few runs for an interval of the lead over them."""

    def _sentence(self) -> str:
        names = [name for name, _ in self.levels]
        first = wording.value_text(self.metric, self.levels[0][1].value)
        if self.lead is None:
            return f"{self.load}: {first} with {names[0]}"
        if not self.lead.certain:
            return f"{self.load}: highest value with {names[0]} ({first}), too few runs to compare it with {names[1]}"
        few = wording.listing(self.unclear) if self.unclear else ""
        runs = f"; too few runs for a confidence interval with {few}" if few else ""
        if self.tied > 1:
            tied, value = wording.listing(names[: self.tied]), self.levels[0][1].value
            behind = [
                f"{wording.percent_text(each.value / value)} of it with {name}"
                for name, each in self.levels[self.tied :]
            ]
            rest = f"; {wording.listing(behind)}" if behind else ""
            return f"{self.load}: {tied} do not differ measurably ({first} with {names[0]}){rest}{runs}"
        if self.unclear:
            return f"{self.load}: highest value with {names[0]} ({first}){runs}"
        times = wording.ratio_estimate_text(self.lead)
        return f"{self.load} are fastest with {names[0]}: {first}, {times} the value with {names[1]}"

    def _evidence(self) -> str:
        listed = "; ".join(f"{name} {wording.estimate_text(self.metric, value)}" for name, value in self.levels)
        return f"{listed}; {wording.counted(self.repeats, 'run')} each"


def find(question: Question) -> Iterator[Finding]:
    """Return the peak, or of levels that are names the fastest.

    Unlike other questions this one maximises over factors that the study does not name in `by`.
    """
    if not question.seeks_maximum:
        return
    cells, over = question.cells().with_columns(median=pl.col("values").list.median()), question.analysis.over
    make = _peak if cells.schema[over].is_numeric() else _fastest
    for key, group in groups(cells, [name for name in question.analysis.by if name != over]):
        yield make(question, key, group)


def _peak(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over = question.analysis.over
    rest = [name for name in question.by if name not in key]
    highest_first = group.sort(pl.col("median").round_sig_figs(3), descending=True, maintain_order=True)
    best = highest_first.row(0, named=True)  # Levels are in their order: of equal values the one with the least effort.
    # Levels are in the order of the factor, so the first that is near the peak is where it is reached.
    reached = group.filter(pl.col("median") >= SHARE_OF_PEAK * best["median"]).row(0, named=True)
    return Peak(
        **highest(best, group, question.support, case_ids=[reached["case_id"]]),
        load=question.load(key, best["case_id"], without=[over, *rest]),
        metric=question.analysis.metric,
        setting=_setting(over, rest, best),
        reached=_setting(over, rest, reached),
        reached_value=reached["median"],
        unsaturated=_is_unsaturated(over, rest, best, group),
        is_last=best[over] == group[over].max() and not over.endswith("_fraction"),
        part=question.part.name,
    )


def _is_unsaturated(over: str, rest: Sequence[str], best: Mapping[str, Any], group: pl.DataFrame) -> bool:
    """Return True if the value rises up to the largest level, and no lower level of any cell is near it."""
    alike = {row[over] for row in group.iter_rows(named=True) if all(row[name] == best[name] for name in rest)}
    if over.endswith("_fraction") or best[over] < group[over].max() or len(alike) < 2:
        return False
    return still_rises(best, group.filter(pl.col(over) < best[over]))


def _fastest(question: Question, key: Mapping[str, Any], group: pl.DataFrame) -> Finding:
    over = question.analysis.over
    rest = [name for name in question.by if name not in key]
    ordered = group.sort("median", descending=True, maintain_order=True)
    rows = [
        {**row, "setting": _named(over, rest, row)}
        for row in ordered.unique(over, keep="first", maintain_order=True).to_dicts()
    ]
    best = rows[0]
    leads = [ratio(best["values"], row["values"]) for row in rows[1:]]
    tied = 1 + sum(lead.certain and not lead.above(1) for lead in leads)
    uncertain = [lead for lead in leads if not lead.certain]
    return Fastest(
        load=question.load(key, best["case_id"], without=rest),
        metric=question.analysis.metric,
        levels=tuple((row["setting"], repeats_interval(row["values"])) for row in _tied_first(rows, leads)),
        lead=leads[0] if leads else None,
        tied=tied,
        repeats=min(len(row["values"]) for row in rows),
        unclear=tuple(row["setting"] for row, lead in zip(rows[1:], leads, strict=True) if not lead.certain),
        **question.claim([row["case_id"] for row in rows], *leads[:1], *uncertain),
    )


def _tied_first(rows: Sequence[dict[str, Any]], leads: Sequence[Estimate]) -> list[dict[str, Any]]:
    """Put the levels that do not differ measurably from the largest right after it."""
    others = list(zip(rows[1:], leads, strict=True))
    tied = [row for row, lead in others if lead.certain and not lead.above(1)]
    return [rows[0], *tied, *(row for row, _ in others if row not in tied)]


def _setting(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    return wording.listing([wording.level_words(name, row[name]) for name in (over, *rest)])


def _named(over: str, rest: list[str], row: Mapping[str, Any]) -> str:
    """`ext4 (queue depth 8)`: a name, and what it is best with."""
    others = f" ({wording.listing([wording.level_words(name, row[name]) for name in rest])})" if rest else ""
    return wording.level_words(over, row[over]) + others


KINDS = (QuestionKind("peak", find, compares_levels=True, is_of_names=True),)
