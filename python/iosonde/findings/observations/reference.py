"""Published values, mapped to the factors of a study, and own values next to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from iosonde.data import reference_file
from iosonde.findings.cells import in_scope, separated_by_results, under_own_names
from iosonde.findings.finding import Finding, Topic, cases_of, weakest
from iosonde.findings.support import Support
from iosonde.metrics import wording
from iosonde.metrics.metrics import case_metrics
from iosonde.metrics.statistics import MARGIN
from iosonde.study.model import Reference, Study

_NOT_FACTORS = ("reference", "label", "source", "metric", "value")


@dataclass(frozen=True, kw_only=True)
class PublishedComparison(Finding):
    """Own values over published ones, over the cases that both have."""

    kind: ClassVar[str] = "published comparison"
    topic: ClassVar[Topic] = "reference"
    metric: str
    source: str
    labels: tuple[str, ...]
    """Devices that the values were published for."""
    ratios: tuple[tuple[str, float], ...]
    """Case and ratio, the smallest ratio first."""
    medians: tuple[tuple[str, float], ...]
    """Median ratio for each label."""
    ends: tuple[float, float] | None
    """Lowest and highest end of the intervals of all ratios; None if a case has too few runs for one."""
    repeats: int
    """Fewest runs of any case."""

    @property
    def median(self) -> float:
        """The median ratio."""
        return float(np.median([value for _, value in self.ratios]))

    def _sentence(self) -> str:
        low, high = self.ratios[0][1], self.ratios[-1][1]
        least, most = self.ends or (0.0, 0.0)
        of = f" for {wording.listing(self.labels)}" if self.labels else ""
        words = wording.metric_words(self.metric)
        if abs(least - 1) <= MARGIN and abs(most - 1) <= MARGIN:
            text = f"{words} is within {100 * MARGIN:.0f} % of the published values{of}"
        else:
            text = f"{words} is {wording.times_text(self.median)} the published value{of}"
        cases = "1 case"
        if len(self.ratios) > 1:
            ends = wording.range_text(wording.times_number(low), wording.times_number(high))
            cases = f"median of {len(self.ratios)} cases, {ends}"
        return f"{text} ({self.source}; {cases})"

    def _evidence(self) -> str:
        apart = ", ".join(f"{label} {wording.times_number(value)}" for label, value in self.medians)
        each = f"; by device: {apart}" if len(self.medians) > 1 else ""
        ends = f"; least in {self.ratios[0][0]}, most in {self.ratios[-1][0]}" if len(self.ratios) > 1 else ""
        runs = f"; {wording.counted(self.repeats, 'run')} each"
        if self.ends:
            interval = wording.range_text(*(wording.ratio_text(end) for end in self.ends))
            runs = f"; 95 % CIs of the ratios {interval}{runs}"
        return (
            f"own over published value, of the cases that both have{each}{ends}{runs}; different hardware and software"
        )


def find(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, support: Support) -> Iterator[Finding]:
    """Compare own values with published ones, over all devices that they were published for."""
    # Those without factors are of limits and improvements, which are no metrics of cases.
    references = [reference for reference in study.references if reference.columns or reference.fixed]
    if not references:
        return
    summary = case_metrics(runs)
    for reference in references:
        joined = matched(published(reference), of_part(cases, reference), summary).drop_nulls("ratio")
        compared = joined.filter(pl.col("metric").is_in(reference.compared or list(reference.held.values())))
        for (metric,), group in compared.group_by(["metric"], maintain_order=True):
            ordered = group.sort("ratio", maintain_order=True)
            medians = group.group_by("label", maintain_order=True).agg(pl.col("ratio").median())
            case_ids = cases_of(group)
            yield PublishedComparison(
                metric=str(metric),
                source=reference.source,
                labels=tuple(label for label in group["label"].unique(maintain_order=True) if label),
                ratios=tuple(ordered.select("case_id", "ratio").rows()),
                medians=tuple((label, value) for label, value in medians.rows() if label),
                ends=_ends(group),
                repeats=int(group["repeats"].min()),  # type: ignore[arg-type]  # a number
                strength=weakest("moderate", support.of_cases(case_ids)),
                case_ids=case_ids,
            )


def _ends(group: pl.DataFrame) -> tuple[float, float] | None:
    """Return the lowest and highest end of all intervals, as ratios to the published values."""
    if group["low"].null_count():
        return None
    low, high = (group[name] / group["value"] for name in ("low", "high"))
    return float(low.min()), float(high.max())  # type: ignore[arg-type]  # numbers


def published(reference: Reference) -> pl.DataFrame:
    """Return the published values of a reference.

    Columns: `reference, label, source, metric, value` (in the metric's unit), and one column for each
    factor it maps to.
    """
    table = pl.read_csv(reference_file(reference.csv))
    chosen = table.filter(*(pl.col(column) == value for column, value in reference.where.items()))
    factors = {factor: _levels(_column(chosen, column), reference) for column, factor in reference.columns.items()}
    label = pl.col(reference.label).cast(pl.String) if reference.label in table.columns else pl.lit(reference.label)
    values = [
        chosen.select(
            reference=pl.lit(reference.name),
            label=label,
            source=pl.lit(reference.source),
            metric=pl.lit(metric),
            value=pl.col(column).cast(pl.Float64, strict=False) * reference.scales.get(column, reference.scale),
            **factors,
            **{factor: pl.lit(level) for factor, level in reference.fixed.items()},
        )
        for column, metric in reference.held.items()
    ]
    return pl.concat(values).drop_nulls(list(factors)).drop_nulls("value")


def _column(table: pl.DataFrame, name: str) -> pl.Series:
    """Return a column of a CSV, or several joined by `+`."""
    if name in table.columns:
        return table[name]
    parts = [pl.col(part).cast(pl.String).fill_null("") for part in name.split("+")]
    return table.select(pl.concat_str(parts, separator="+").alias(name))[name]


def _levels(column: pl.Series, reference: Reference) -> pl.Series:
    """Return what the study calls the values of a column; null, and so left out, where it has no name for one."""
    names = reference.values.get(column.name)
    if names is None:
        return column
    known: dict[str, Any] = {str(key): level for key, level in names.items()}
    return pl.Series(column.name, [known.get(str(value)) for value in column])


def cells(published: pl.DataFrame) -> pl.DataFrame:
    """Return published values as cells with one value each, so that every analysis can be made of them too."""
    factors = [name for name in published.columns if name not in _NOT_FACTORS]
    numbers = [name for name in factors if published.schema[name].is_numeric()]
    case_id = pl.concat_str([pl.concat_str(pl.lit(f"{name}="), pl.col(name)) for name in factors], separator="/")
    with_values = published.select(*factors, "label", case_id=case_id, values=pl.concat_list("value"))
    return with_values.sort(numbers, maintain_order=True)


def of_part(cases: pl.DataFrame, reference: Reference) -> pl.DataFrame:
    """Return the cases that a reference is compared with."""
    return cases.filter(pl.col("part") == reference.part) if reference.part else cases


def matched(published: pl.DataFrame, cases: pl.DataFrame, summary: pl.DataFrame) -> pl.DataFrame:
    """Join published values with a user's `case_metrics` of one result set on the factors they share.

    Adds to `published`: `case_id, median, low, high, repeats, ratio` (own / published); null where there is no
    such case.
    """
    named = [name for name in published.columns if name not in _NOT_FACTORS]
    measured = under_own_names(cases.filter(~pl.col("control")))
    apart = separated_by_results(measured, named)
    factors = [name for name in named if name in measured.columns or name in apart]
    own = in_scope(summary, apart).select("case_id", "metric", "median", "low", "high", "repeats", *apart)
    matched = measured.select("case_id", *(name for name in factors if name not in apart)).join(own, on="case_id")
    numbers = [name for name in factors if published.schema[name].is_numeric() and matched.schema[name].is_numeric()]
    published, matched = (each.with_columns(pl.col(numbers).cast(pl.Float64)) for each in (published, matched))
    return published.join(matched, on=[*factors, "metric"], how="left", maintain_order="left").with_columns(
        ratio=pl.col("median") / pl.col("value")
    )
