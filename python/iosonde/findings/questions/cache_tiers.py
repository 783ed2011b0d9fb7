"""What a tier of a cache is worth: gets per second, hit ratios and device reads with it and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from iosonde.findings.finding import Finding, Topic
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.findings.questions.asymmetry import asymmetry
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, pooled_ratio, verdict

OF_A_CASE = ("cache_hit_ratio", "extstore_hit_ratio", "device_read_bytes_per_get", "device_write_bytes_per_get")
"""Metrics that are stated next to the compared one."""


@dataclass(frozen=True, kw_only=True)
class CacheTier(Finding):
    """Two arrangements of a cache's tiers, over all cells that have both."""

    kind: ClassVar[str] = "cache tier"
    topic: ClassVar[Topic] = "stores"
    first: str
    second: str
    """Names of the levels, in the order of the study."""
    metric: str
    gain: Estimate
    """Second over first."""
    decision: str
    """`better`, `worse`, `same` or `unclear`."""
    first_hit_ratio: float
    second_hit_ratio: float
    from_extstore: float
    """Share of the gets that extstore served at the second level; 0 without extstore."""
    device_read_bytes: float
    """Per get, at the second level."""
    device_write_bytes: float
    about: str
    cells: int
    repeats: int
    published: float | None = None
    """Published ratio of the same comparison."""
    source: str = ""
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""

    def _sentence(self) -> str:
        metric = wording.metric_words(self.metric)
        ratio = wording.ratio_estimate_text(self.gain)
        hits = (
            f"the hit ratio is {wording.percent_text(self.second_hit_ratio)} instead of "
            f"{wording.percent_text(self.first_hit_ratio)}"
        )
        served = f", {wording.percent_text(self.from_extstore)} of gets from extstore" if self.from_extstore else ""
        subject = f"{self.second} against {self.first}{self.about}"
        if self.opposed:
            return f"{subject}: {metric} {self.opposed.text}; {hits}{served}"
        if self.decision == "unclear":
            return f"{subject}: no clear difference in {metric}, {ratio}; {hits}{served}"
        return f"{subject}: {metric} {ratio}; {hits}{served}"

    def _evidence(self) -> str:
        over = f" over {self.cells} cells" if self.cells > 1 else ""
        each = (
            f"{wording.metric_words(self.metric)} of {self.second} over {self.first}: "
            f"{wording.ratio_estimate_text(self.gain)}{over}; {wording.counted(self.repeats, 'run')} each"
        )
        device = (
            f"; {wording.value_text('device_read_bytes_per_get', self.device_read_bytes)} read from and "
            f"{wording.value_text('device_write_bytes_per_get', self.device_write_bytes)} written to the device per get"
        )
        published = f"; published: {self.published:g} times ({self.source})" if self.published else ""
        return each + device + published


def find(question: Question) -> Iterator[Finding]:
    """Compare every two levels of `over`, each combination of other factors by itself unless they are numbers."""
    over, metric = question.analysis.over, question.analysis.metric
    answers = asymmetry(question.cells(), over=over, by=question.by)
    if answers.is_empty():
        return
    for key, group in question.over_numbers(answers):
        for (first, second), rows in group.group_by(["first", "second"], maintain_order=True):
            yield _compared(question, key, str(first), str(second), rows, metric)


def _compared(
    question: Question, key: dict[str, Any], first: str, second: str, rows: pl.DataFrame, metric: str
) -> CacheTier:
    of_pairs = list(rows.iter_rows(named=True))
    compared = [(row["second_values"], row["first_values"]) for row in of_pairs]
    gain = pooled_ratio(compared)
    before, after = ([row["case_ids"][place] for row in of_pairs] for place in (0, 1))
    case_ids = tuple(dict.fromkeys([*before, *after]))
    words = [wording.level_words(name, level) for name, level in key.items()]
    values = {name: _mean(question, name, after) for name in OF_A_CASE}
    return CacheTier(
        first=first,
        second=second,
        metric=metric,
        gain=gain,
        decision=verdict(gain, better="higher"),
        first_hit_ratio=_mean(question, "cache_hit_ratio", before),
        second_hit_ratio=values["cache_hit_ratio"],
        from_extstore=values["extstore_hit_ratio"],
        device_read_bytes=values["device_read_bytes_per_get"],
        device_write_bytes=values["device_write_bytes_per_get"],
        about=f" ({', '.join(words)})" if words else "",
        cells=len(of_pairs),
        repeats=min(len(row[values]) for row in of_pairs for values in ("first_values", "second_values")),
        published=question.analysis.published,
        source=question.study.source,
        opposed=opposed([question.numbers(row) for row in of_pairs], compared),
        strength=question.support.strength(case_ids, gain),
        case_ids=case_ids,
        part=question.part.name,
    )


def _mean(question: Question, metric: str, case_ids: list[str]) -> float:
    """Return the mean over the repeats of some cases; 0 where nothing was counted."""
    found = question.cells(metric).filter(pl.col("case_id").is_in(case_ids))["values"].explode()
    return float(found.mean() or 0.0)  # type: ignore[arg-type]


KINDS = (QuestionKind("cache_tiers", find, compares_levels=True),)
