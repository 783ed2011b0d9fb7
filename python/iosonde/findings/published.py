"""Published values, mapped to the factors of a study, and own values next to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from iosonde.data import reference_file
from iosonde.findings.cells import case_words, in_scope, separated_by_results, under_own_names
from iosonde.findings.finding import Finding, Support
from iosonde.metrics import wording
from iosonde.metrics.metrics import case_metrics
from iosonde.metrics.statistics import MARGIN
from iosonde.study.model import Reference, Study

_NOT_FACTORS = ("reference", "label", "source", "metric", "value")


@dataclass(frozen=True, kw_only=True)
class DeviceRatio:
    """Own values over those published for one device, over the cases that both have."""

    label: str
    """The device; empty if the publication has a single one without a name."""
    ratios: tuple[tuple[str, float], ...]
    """Words for each case, and its ratio; the smallest ratio first."""
    ends: tuple[float, float] | None
    """Lowest and highest end of the intervals of all ratios; None if a case has too few runs for one."""

    @property
    def median(self) -> float:
        """The median ratio."""
        return float(np.median([value for _, value in self.ratios]))

    @property
    def is_equal(self) -> bool:
        """Return True if the intervals of all ratios are within the margin."""
        return self.ends is not None and all(abs(end - 1) <= MARGIN for end in self.ends)

    @property
    def of(self) -> str:
        """` for SP900`."""
        return f" for {self.label}" if self.label else ""

    @property
    def extremes(self) -> str:
        """`1 case`, or `median of 12 cases, from 0.81 times with ... to 1.20 times with ...`."""
        if len(self.ratios) == 1:
            return "1 case"
        low, high = (f"{wording.times_text(value)} with {words}" for words, value in (self.ratios[0], self.ratios[-1]))
        return f"median of {len(self.ratios)} cases, from {low} to {high}"


class PublishedComparison(Finding, kind="published comparison", topic="reference"):
    """Own values over published ones, device by device."""

    metric: str
    source: str
    devices: tuple[DeviceRatio, ...]
    """Devices that values were published for, the smallest median ratio first."""
    repeats: int
    """Fewest runs of any case."""

    def _sentence(self) -> str:
        words = wording.metric_words(self.metric)
        first, *others = self.devices
        if not others:
            value = (
                f"within {100 * MARGIN:.0f} % of the published values"
                if first.is_equal
                else f"{wording.times_text(first.median)} the published value"
            )
            return f"{words} is {value}{first.of} ({self.source}; {first.extremes})"
        named = self.devices if len(self.devices) <= NAMED else (first, others[-1])
        listed = [f"{wording.times_text(each.median)}{each.of}" for each in named]
        which = wording.listing(listed) if named is self.devices else " to ".join(listed)
        medians = f"medians over the cases of each of {len(self.devices)} devices"
        return f"{words} is {which} the published values ({self.source}; {medians})"

    def _evidence(self) -> str:
        apart = "; ".join(f"{each.label or 'all'}: {each.extremes}" for each in self.devices)
        ends = [end for each in self.devices for end in each.ends or (None, None)]
        known = [end for end in ends if end is not None]
        interval = ""
        if len(known) == len(ends):
            low, high = (wording.ratio_text(end) for end in (min(known), max(known)))
            interval = f"; 95 % CIs of the ratios {wording.range_text(low, high)}"
        runs = f"{wording.counted(self.repeats, 'run')} each"
        return f"own over published value; {apart}{interval}; {runs}; different hardware and software"


NAMED = 4
"""Devices that are listed; of more the extremes are."""


def find(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, support: Support) -> Iterator[Finding]:
    """Compare own values with published ones, for each device that they were published for."""
    # Those without factors are of limits and improvements, which are no metrics of cases.
    references = [reference for reference in study.references if reference.columns or reference.fixed]
    if not references:
        return
    summary, words = case_metrics(runs), case_words(study, cases)
    for reference in references:
        joined = matched(published(reference), of_part(cases, reference), summary).drop_nulls("ratio")
        compared = joined.filter(pl.col("metric").is_in(reference.compared or list(reference.held.values())))
        for (metric,), group in compared.group_by(["metric"], maintain_order=True):
            devices = [
                _of_device(str(label or ""), each, words)
                for (label,), each in group.group_by(["label"], maintain_order=True)
            ]
            yield PublishedComparison(
                metric=str(metric),
                source=reference.source,
                devices=tuple(sorted(devices, key=lambda each: each.median)),
                repeats=int(group["repeats"].min()),  # type: ignore[arg-type]  # a number
                **support.claim(group["case_id"], at_most="moderate"),
            )


def _of_device(label: str, group: pl.DataFrame, words: Mapping[str, str]) -> DeviceRatio:
    ordered = group.sort("ratio", maintain_order=True)
    ratios = ordered.select("case_id", "ratio").rows()
    return DeviceRatio(
        label=label, ratios=tuple((words[case_id], value) for case_id, value in ratios), ends=_ends(group)
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
