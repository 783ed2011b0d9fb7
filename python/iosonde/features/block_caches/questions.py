"""Block caches: throughput with a cache over the backing device alone, and the read hit ratio behind it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from iosonde.findings.finding import Finding
from iosonde.findings.kinds import Ratio, between, of_question, over_numbers
from iosonde.findings.question import Question, QuestionKind
from iosonde.metrics import wording

ALONE = "none"
"""Level of the factor that is the backing device alone."""
HIT_RATIO = "cache_read_hit_ratio"


class CacheGain(Ratio, kind="cache gain", topic="caches"):
    """Throughput with a cache device over that of the backing device alone, for one load."""

    load: str
    hit_ratios: tuple[float, float] | None
    """Smallest and largest median read hit ratio of the cells; None where no run reports one."""
    values: tuple[float, float] | None
    """Medians of the only cell, with the cache and alone; None if there are several."""

    def _sentence(self) -> str:
        effect = f"{self._bound}{wording.times_text(self.ratio.value)} the throughput of {self.bottom}"
        if self.opposed:
            effect = f"throughput {self.opposed.text}, compared with {self.bottom}"
        elif self.decision == "unclear":
            effect = f"no clear difference from {self.bottom}"
        elif self.decision == "same":
            effect = f"{self._bound}as fast as {self.bottom}"
        return f"{self.top} on {self.load}: {effect}{self._details()}"

    def _details(self) -> str:
        values = " vs. ".join(wording.value_text(self.metric, each) for each in self.values or ())
        hits = f"with a read hit ratio of {_range(self.hit_ratios)}" if self.hit_ratios else ""
        details = ", ".join(filter(None, (values, hits)))
        return f" ({details})" if details else ""


def find(question: Question) -> Iterator[Finding]:
    """Compare each cache with the backing device alone, for each load."""
    cells, over = question.cells(), question.analysis.over
    grouped, hits = list(over_numbers(question)), _hit_ratios(question)
    for level in (each for each in cells[over].unique(maintain_order=True) if each != ALONE):
        for key, group in grouped:
            if rows := between(group, level, ALONE):
                cached = [row["cases"][0] for row in rows]
                ratios = sorted(hits[case] for case in cached if case in hits)
                pair = rows[0]["pair"] if len(rows) == 1 else None
                yield CacheGain(
                    **of_question(question, rows),
                    top=str(level),
                    bottom="the backing device alone",
                    load=question.load(key, cached[0]),
                    hit_ratios=(ratios[0], ratios[-1]) if ratios else None,
                    values=(float(np.median(pair[0])), float(np.median(pair[1]))) if pair else None,
                )


def _hit_ratios(question: Question) -> dict[str, float]:
    """Median read hit ratio of each case that reports one."""
    measured = question.runs.filter(pl.col("metric") == HIT_RATIO)
    medians = measured.group_by("case_id").agg(pl.col("value").median())
    return dict(medians.select("case_id", "value").iter_rows())


def _range(ends: tuple[float, float]) -> str:
    low, high = (f"{end:.2f}" for end in ends)
    return low if low == high else f"{low}–{high}"


KINDS = (QuestionKind("cache_gain", find, compares_levels=True),)
