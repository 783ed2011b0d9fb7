"""Device write amplification: bytes that drives write to their media for each byte they receive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from iosonde.findings.cells import case_words
from iosonde.findings.finding import Finding
from iosonde.findings.support import Support
from iosonde.metrics import media, wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import repeats_interval
from iosonde.study.model import Study

NAME = media.AMPLIFICATION.name


class MediaAmplification(Finding, kind="device write amplification", topic="performance"):
    """The smallest and the largest device write amplification of all cases."""

    least: tuple[str, float]
    most: tuple[str, float]
    """Words for the case, and its median."""
    cases: int
    runs: int

    def _sentence(self) -> str:
        low, high = (wording.ratio_text(value) for _, value in (self.least, self.most))
        if low == high:
            return f"Device write amplification: {low} in {wording.counted(self.cases, 'case')}"
        return f"Device write amplification: from {low} ({self.least[0]}) to {high} ({self.most[0]})"

    def _evidence(self) -> str:
        cases, runs = wording.counted(self.cases, "case"), wording.counted(self.runs, "run")
        return f"medians of {cases}; drives' own counters, {runs}"


class NoAmplification(MediaAmplification, kind="no write amplification", topic="quality"):
    """The same where every case has 1.00: of drives that write in place, and of fresh ones."""


class UnknownMedia(Finding, kind="unknown device write amplification", topic="quality"):
    """Reasons for which the device write amplification is not known."""

    reasons: tuple[str, ...]

    def _sentence(self) -> str:
        return "Device write amplification is not known"

    def _evidence(self) -> str:
        return "; ".join(self.reasons)


def find(
    study: Study, cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None, support: Support
) -> Iterator[Finding]:
    """Return the amplification; that it is not known only where the study requires it."""
    values = overall(metrics).filter(pl.col("metric") == NAME, ~pl.col("control"))
    if values.height:
        yield _amplification(values, case_words(study, cases), support)
    elif outcomes is not None and _asks(study):
        yield from _unknown(outcomes)


def _amplification(values: pl.DataFrame, words: Mapping[str, str], support: Support) -> MediaAmplification:
    each = values.group_by("case_id", maintain_order=True).agg("value", median=pl.col("value").median())
    least, most = (each.row(end, named=True) for end in (each["median"].arg_min(), each["median"].arg_max()))
    case_ids = tuple(dict.fromkeys((most["case_id"], least["case_id"])))
    is_one = all(wording.ratio_text(row["median"]) == wording.ratio_text(1) for row in (least, most))
    return (NoAmplification if is_one else MediaAmplification)(
        least=(words[least["case_id"]], least["median"]),
        most=(words[most["case_id"]], most["median"]),
        cases=each.height,
        runs=values.height,
        strength=support.strength(case_ids, *(repeats_interval(row["value"]) for row in (least, most))),
        case_ids=case_ids,
    )


def _unknown(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Return the reasons, each once; nothing for simulated drives, or without a drive."""
    none = pl.lit(None, dtype=pl.Int64)
    complete = outcomes.filter(pl.col("outcome") == "complete")
    judged = media.judged(complete.with_columns(simulated_media_write_bytes=none, simulated_write_bytes=none))
    reasons = judged["media_not_reported"].drop_nulls().unique(maintain_order=True).to_list()
    if reasons:
        yield UnknownMedia(reasons=tuple(reasons), strength="strong")


def _asks(study: Study) -> bool:
    views = ((*view.metrics, view.x, view.y) for view in study.views)
    return any(NAME in asked for asked in views) or any(each.metric == NAME for each in study.analysis)
