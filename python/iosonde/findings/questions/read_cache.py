"""What RocksDB's persistent read cache is worth: throughput and hit ratios of its tiers with the cache and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import polars as pl

from iosonde.findings.finding import Finding, Topic
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.questions.asymmetry import asymmetry
from iosonde.metrics import wording
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.statistics import Estimate, pooled_ratio, verdict


@dataclass(frozen=True, kw_only=True)
class ReadCacheGain(Finding):
    """A database with one size of the read cache against another, or against none, over all cells that have both."""

    kind: ClassVar[str] = "read cache"
    topic: ClassVar[Topic] = "stores"
    first: str
    second: str
    """Names of the levels, in the order of the study."""
    metric: str
    gain: Estimate
    """Second over first."""
    decision: str
    """`better`, `worse`, `same` or `unclear`."""
    block_cache_hit_ratio: float | None
    read_cache_hit_ratio: float | None
    """At the second level; None where RocksDB did not count."""
    about: str
    cells: int
    repeats: int
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""

    def _sentence(self) -> str:
        subject = f"{self.second} against {self.first}{self.about}"
        metric, ratio = wording.metric_words(self.metric), wording.ratio_estimate_text(self.gain)
        if self.opposed:
            return f"{subject}: {metric} {self.opposed.text}{self._tiers()}"
        clear = f"{metric} {ratio}" if self.decision != "unclear" else f"no clear difference in {metric}, {ratio}"
        return f"{subject}: {clear}{self._tiers()}"

    def _tiers(self) -> str:
        """Where blocks came from at the second level."""
        if self.block_cache_hit_ratio is None:
            return ""
        memory = f"; {wording.percent_text(self.block_cache_hit_ratio)} of blocks found in memory"
        if self.read_cache_hit_ratio is None:
            return memory
        return f"{memory}, {wording.percent_text(self.read_cache_hit_ratio)} of the others in the read cache"

    def _evidence(self) -> str:
        over = f" over {self.cells} cells" if self.cells > 1 else ""
        return (
            f"{wording.metric_words(self.metric)} of {self.second} over {self.first}: "
            f"{wording.ratio_estimate_text(self.gain)}{over}; {wording.counted(self.repeats, 'run')} each"
        )


def find(question: Question) -> Iterator[Finding]:
    """Compare every two levels of `over`, each combination of other factors by itself unless they are numbers."""
    answers = asymmetry(question.cells(), over=question.analysis.over, by=question.by)
    if answers.is_empty():
        return
    for key, group in question.over_numbers(answers):
        for (first, second), rows in group.group_by(["first", "second"], maintain_order=True):
            yield _compared(question, key, str(first), str(second), rows)


def _compared(question: Question, key: dict[str, Any], first: str, second: str, rows: pl.DataFrame) -> ReadCacheGain:
    metric, pairs = question.analysis.metric, list(rows.iter_rows(named=True))
    better: Literal["higher", "lower"] = "lower" if metric_of(metric).better == "lower" else "higher"
    compared = [(pair["second_values"], pair["first_values"]) for pair in pairs]
    gain = pooled_ratio(compared)
    before, after = ([pair["case_ids"][place] for pair in pairs] for place in (0, 1))
    case_ids = tuple(dict.fromkeys([*before, *after]))
    words = [wording.level_words(name, level) for name, level in key.items()]
    return ReadCacheGain(
        first=first,
        second=second,
        metric=metric,
        gain=gain,
        decision=verdict(gain, better=better),
        block_cache_hit_ratio=_mean(question, "block_cache_hit_ratio", after),
        read_cache_hit_ratio=_mean(question, "read_cache_hit_ratio", after),
        about=f" ({', '.join(words)})" if words else "",
        cells=len(pairs),
        repeats=min(len(pair[values]) for pair in pairs for values in ("first_values", "second_values")),
        opposed=opposed([question.numbers(pair) for pair in pairs], compared),
        strength=question.support.strength(case_ids, gain),
        case_ids=case_ids,
        part=question.part.name,
    )


def _mean(question: Question, metric: str, case_ids: list[str]) -> float | None:
    """The mean over the repeats of some cases; None where none has a value."""
    cells = question.cells(metric)
    if cells.is_empty():
        return None
    values = cells.filter(pl.col("case_id").is_in(case_ids))["values"].explode().drop_nulls().to_list()
    return sum(values) / len(values) if values else None


KINDS = (QuestionKind("read_cache", find, compares_levels=True),)
