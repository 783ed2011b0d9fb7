"""Block caches: throughput with a cache over the backing device alone, and the read hit ratio behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.findings.cells import along, groups
from iosonde.findings.finding import Finding, Topic
from iosonde.findings.opposed import Opposed, opposed
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording
from iosonde.metrics.statistics import Estimate, pooled_ratio, verdict

ALONE = "none"
"""Level of the factor that is the backing device alone."""
HIT_RATIO = "cache_read_hit_ratio"


@dataclass(frozen=True, kw_only=True)
class CacheGain(Finding):
    """Effect of a cache device on one load."""

    kind: ClassVar[str] = "cache gain"
    topic: ClassVar[Topic] = "caches"
    cache: str
    """Level of the factor, such as `bcache`."""
    load: str
    metric: str
    gain: Estimate
    """With the cache over the backing device alone, pooled over the cells."""
    decision: str
    """`better`, `worse`, `same` or `unclear`."""
    hit_ratios: tuple[float, float] | None
    """Smallest and largest median read hit ratio of the cells; None where no run reports one."""
    with_cache: float | None
    alone: float | None
    """Medians of the only cell; None if there are several."""
    cells: int
    repeats: int
    opposed: Opposed | None = None
    """Cells with opposite effects, if there are any."""

    def _sentence(self) -> str:
        subject, details = f"{self.cache} on {self.load}", self._details()
        if self.opposed:
            return f"{subject}: throughput {self.opposed.text}, compared with the backing device alone{details}"
        if self.decision == "unclear":
            return f"{subject}: no clear difference from the backing device alone{details}"
        if self.decision == "same":
            return f"{subject}: as fast as the backing device alone{details}"
        times = wording.times_text(self.gain.value)
        return f"{subject}: {times} the throughput of the backing device alone{details}"

    def _details(self) -> str:
        """Write both values and the hit ratio in parentheses, as far as there are any."""
        values = [wording.value_text(self.metric, each) for each in (self.with_cache, self.alone) if each is not None]
        hits = [] if self.hit_ratios is None else [f"with a read hit ratio of {_range(self.hit_ratios)}"]
        details = [*([" vs. ".join(values)] if values else []), *hits]
        return f" ({', '.join(details)})" if details else ""

    def _evidence(self) -> str:
        cells = f" over {self.cells} cells" if self.cells > 1 else ""
        return (
            f"with the cache over the backing device alone: {wording.ratio_estimate_text(self.gain)}{cells}; "
            f"{wording.counted(self.repeats, 'run')} each"
        )


def find(question: Question) -> Iterator[Finding]:
    """Compare each cache with the backing device alone, for each load."""
    over = question.analysis.over
    hits = _hit_ratios(question)
    pairs = list(_pairs(question.cells(), over, question.by))
    answers = pl.DataFrame([row for row, _ in pairs], infer_schema_length=None)
    if answers.is_empty():
        return
    values = {
        row["case_ids"]: each for row, each in ((row | {"case_ids": tuple(row["case_ids"])}, v) for row, v in pairs)
    }
    for level in dict.fromkeys(answers["cache_level"]):
        for key, group in question.over_numbers(answers.filter(pl.col("cache_level") == level)):
            rows = list(group.iter_rows(named=True))
            compared = [values[tuple(row["case_ids"])] for row in rows]
            gain = pooled_ratio(compared)
            case_ids = tuple(dict.fromkeys(case for row in rows for case in row["case_ids"]))
            ratios = sorted(hits[row["case_ids"][0]] for row in rows if row["case_ids"][0] in hits)
            yield CacheGain(
                cache=str(level),
                load=question.load(key, rows[0]["case_ids"][0]),
                metric=question.analysis.metric,
                gain=gain,
                decision=verdict(gain, better="higher"),
                hit_ratios=(ratios[0], ratios[-1]) if ratios else None,
                with_cache=float(np.median(compared[0][0])) if len(compared) == 1 else None,
                alone=float(np.median(compared[0][1])) if len(compared) == 1 else None,
                cells=len(rows),
                repeats=min(len(each) for pair in compared for each in pair),
                opposed=opposed([question.numbers(row) for row in rows], compared),
                strength=question.support.strength(case_ids, gain),
                case_ids=case_ids,
                part=question.part.name,
            )


def _pairs(cells: pl.DataFrame, over: str, by: list[str]) -> Iterator[tuple[dict[str, Any], tuple[Any, Any]]]:
    """Yield each cached cell with its repeats and those of the backing device alone."""
    for key, group in groups(cells, by):
        levels, values = along(group, over)
        case_ids = group["case_id"].to_list()
        if ALONE not in levels:
            continue
        base = levels.index(ALONE)
        for index, level in enumerate(levels):
            if index != base:
                row = {**key, "cache_level": level, "case_ids": [case_ids[index], case_ids[base]]}
                yield row, (values[index], values[base])


def _hit_ratios(question: Question) -> dict[str, float]:
    """Median read hit ratio of each case that reports one."""
    measured = question.runs.filter(pl.col("metric") == HIT_RATIO)
    medians = measured.group_by("case_id").agg(pl.col("value").median())
    return dict(medians.select("case_id", "value").iter_rows())


def _range(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.2f}" for end in ends)
    return low if low == high else f"{low}–{high}"


KINDS = (QuestionKind("cache_gain", find, compares_levels=True),)
