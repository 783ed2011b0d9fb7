"""Throughput that a store retains when a device extends a memory that is too small for its data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from iosonde.findings.finding import Finding, Topic, weakest
from iosonde.findings.kinds import Opposed, asymmetry, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, pooled_ratio
from iosonde.workload import terms


@dataclass(frozen=True, kw_only=True)
class MemoryExtension(Finding):
    """Throughput of each extension over that of the first level, all in memory, over all cells that have both."""

    kind: ClassVar[str] = "memory extension"
    topic: ClassVar[Topic] = "stores"
    place: ClassVar[int] = 1
    store: str
    whole: str
    """Name of the first level."""
    metric: str
    kept: tuple[tuple[str, Estimate], ...]
    """Name of each other level, and its throughput over that of the first."""
    opposed: tuple[Opposed | None, ...]
    """For each of them the cells with opposite effects, if there are any."""
    about: str
    cells: int
    repeats: int

    def _sentence(self) -> str:
        metric = wording.metric_words(self.metric)
        parts = [
            f"{level} {cells.text if cells else wording.ratio_estimate_text(each)}"
            for (level, each), cells in zip(self.kept, self.opposed, strict=True)
        ]
        return f"{self.store} {metric} over {self.whole}{self.about}: {', '.join(parts)}"

    def _evidence(self) -> str:
        over = f" over {self.cells} cells" if self.cells > 1 else ""
        return f"ratio of medians{over}; {wording.counted(self.repeats, 'run')} each"


def find(question: Question) -> Iterator[Finding]:
    """Compare every level of `over` with the first; numeric levels of other factors are pooled."""
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    if answers.is_empty():
        return
    for key, group in question.over_numbers(answers):
        whole = str(group["first"][0])
        rows = group.filter(pl.col("first") == whole)
        yield _answer(question, key, whole, rows)


def _answer(question: Question, key: dict[str, Any], whole: str, rows: pl.DataFrame) -> MemoryExtension:
    kept, extremes, case_ids, repeats = [], [], [], []
    for (second,), pairs in rows.group_by(["second"], maintain_order=True):
        found = list(pairs.iter_rows(named=True))
        compared = [(pair["second_values"], pair["first_values"]) for pair in found]
        kept.append((str(second), pooled_ratio(compared)))
        extremes.append(opposed([question.numbers(pair) for pair in found], compared))
        case_ids += [case_id for pair in found for case_id in pair["case_ids"]]
        repeats += [len(pair[values]) for pair in found for values in ("first_values", "second_values")]
    ids = tuple(dict.fromkeys(case_ids))
    stores = question.cases.filter(pl.col("case_id").is_in(ids))["store"].unique().to_list()
    words = [wording.level_words(name, level) for name, level in key.items()]
    return MemoryExtension(
        store=" and ".join(sorted(terms.store_name(store) for store in stores)),
        whole=whole,
        metric=question.analysis.metric,
        kept=tuple(kept),
        opposed=tuple(extremes),
        about=f" ({', '.join(words)})" if words else "",
        cells=len(rows) // max(1, len(kept)),
        repeats=min(repeats),
        strength=weakest(*(question.support.strength(ids, each) for _, each in kept)),
        case_ids=ids,
        part=question.part.name,
    )


KINDS = (QuestionKind("memory_extension", find, compares_levels=True),)
