"""Values that a study states without a question: of external commands, and device write amplification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from iosonde.findings.cells import case_words, cells, groups
from iosonde.findings.finding import Finding, Support
from iosonde.findings.kinds import Ratio, best_of, between, curves, pooled
from iosonde.metrics import derivation, wording
from iosonde.metrics.registry import least_value, named_among
from iosonde.metrics.registry import metric as metric_of
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import Estimate, repeats_interval
from iosonde.study.model import Part, Study


class Extremes(Finding, kind="best and worst", topic="performance", place=6):
    """The best and the worst case of a metric."""

    metric: str
    best: str
    """The case in words; empty if there is only one."""
    best_value: Estimate
    worst: str
    """Empty if all cases have the same value."""
    worst_value: Estimate | None
    cases: int
    repeats: int

    def _sentence(self) -> str:
        title = metric_of(self.metric).title
        best = wording.estimate_text(self.metric, self.best_value)
        if self.worst_value is None:
            return f"{title}: {best}" + (f" in each of {self.cases} cases" if self.cases > 1 else "")
        worst = wording.estimate_text(self.metric, self.worst_value)
        first, last = ("lowest", "highest") if metric_of(self.metric).better == "lower" else ("highest", "lowest")
        return f"{title}: {first} {best} at {self.best}; {last} {worst} at {self.worst}"

    def _evidence(self) -> str:
        return f"medians of {wording.counted(self.cases, 'case')}; {wording.counted(self.repeats, 'run')} each"


class Effect(Ratio, kind="effect of a factor", topic="comparison"):
    """The largest effect of a factor: its level with the largest value over that with the smallest."""

    factor: str

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes 1."""
        return self.ratio.above(1)

    def _sentence(self) -> str:
        title = metric_of(self.metric).title
        if not self.is_clear and self.opposed:
            return f"{title} at {self.top} over {self.bottom} {self.opposed.text}"
        if not self.is_clear:
            factor = wording.factor_words(self.factor)
            if not self.ratio.certain:
                return f"{title} at {self.top} over {self.bottom}: {self._times}, without a confidence interval"
            return f"No clear effect of {factor} on {title}: {self.top} over {self.bottom} {self._times}"
        return f"{title} at {self.top} is {self._times} that at {self.bottom}"

    def _evidence(self) -> str:
        return f"levels with the largest and the smallest value; {super()._evidence()}"


def named_values(study: Study, cases: pl.DataFrame, metrics: pl.DataFrame, support: Support) -> Iterator[Finding]:
    """Return extremes and effects of every named metric that has a direction, part by part."""
    for part in study.parts:
        present = metrics.filter(pl.col("part") == part.name)["metric"].unique()
        for metric in named_among(present):
            found = cells(metrics, cases, part=part.name, metric=metric, factors=list(part.factors), positive=False)
            if not found.is_empty():
                yield _extremes(part, metric, found, support)
                for factor in part.factors:
                    yield from _effects(part, metric, factor, found, support)


def _extremes(part: Part, metric: str, found: pl.DataFrame, support: Support) -> Extremes:
    downwards = metric_of(metric).better == "lower"
    first, last = best_of(found, lowest=downwards), best_of(found, lowest=not downwards)
    differ = first["case_id"] != last["case_id"]
    estimates = [repeats_interval(row["values"], least=least_value(metric)) for row in (first, last)]
    return Extremes(
        metric=metric,
        best=_words(part, first),
        best_value=estimates[0],
        worst=_words(part, last) if differ else "",
        worst_value=estimates[1] if differ else None,
        cases=len(found),
        repeats=min(map(len, found["values"])),
        **support.claim((first["case_id"], last["case_id"]), *estimates, part=part.name),
    )


def _effects(part: Part, metric: str, factor: str, found: pl.DataFrame, support: Support) -> Iterator[Effect]:
    """Compare the level with the largest mean to that with the smallest, over cells that differ in nothing else."""
    levels = _complete_levels(part, factor, found)
    has_ratios = (found["values"].list.min() > 0).all()
    if len(levels) < 2 or not has_ratios:
        return
    means = {level: _mean_log(found.filter(pl.col(factor) == level)) for level in levels}
    # Of equal means the first level is compared with the last one, never with itself.
    top, bottom = max(levels, key=means.__getitem__), min(reversed(levels), key=means.__getitem__)
    others = [name for name in part.factors if name != factor]
    rows = between(curves(found, over=factor, by=others), top, bottom)
    words = [", ".join(wording.level_words(name, row[name]) for name in others) for row in rows]
    effect = Effect(
        **pooled(metric, rows, words, support, part.name),
        factor=factor,
        top=wording.level_words(factor, top),
        bottom=wording.level_words(factor, bottom),
    )
    yield effect if effect.is_clear else replace(effect, strength="weak")


def _complete_levels(part: Part, factor: str, found: pl.DataFrame) -> list[Any]:
    """Return the levels that every combination of the other factors has; a failed case leaves out its level."""
    others = [name for name in part.factors if name != factor]
    count = len(list(groups(found, others)))
    sizes = found.group_by(factor, maintain_order=True).len()
    return [level for level, size in sizes.iter_rows() if size == count]


def _mean_log(rows: pl.DataFrame) -> float:
    return float(rows["values"].list.eval(pl.element().log()).list.mean().mean() or 0.0)  # type: ignore[arg-type]


def _words(part: Part, row: dict[str, Any]) -> str:
    words = [wording.level_words(name, row[name]) for name in part.factors]
    return ", ".join(words) if words else part.name


NAME = "media_write_amplification"


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


def write_amplification(
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
    estimates = (repeats_interval(row["value"]) for row in (least, most))
    is_one = all(wording.ratio_text(row["median"]) == wording.ratio_text(1) for row in (least, most))
    return (NoAmplification if is_one else MediaAmplification)(
        least=(words[least["case_id"]], least["median"]),
        most=(words[most["case_id"]], most["median"]),
        cases=each.height,
        runs=values.height,
        **support.claim((most["case_id"], least["case_id"]), *estimates),
    )


def _unknown(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Return the reasons, each once; nothing for simulated drives, or without a drive."""
    none = pl.lit(None, dtype=pl.Int64)
    complete = outcomes.filter(pl.col("outcome") == "complete")
    judged = derivation.judged(complete.with_columns(simulated_media_write_bytes=none, simulated_write_bytes=none))
    reasons = judged["media_not_reported"].drop_nulls().unique(maintain_order=True).to_list()
    if reasons:
        yield UnknownMedia(reasons=tuple(reasons), strength="strong")


def _asks(study: Study) -> bool:
    views = ((*view.metrics, view.x, view.y) for view in study.views)
    return any(NAME in asked for asked in views) or any(each.metric == NAME for each in study.analysis)
