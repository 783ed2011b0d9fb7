"""How one's own figures compare with published ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from iosonde.findings.finding import Finding, Untyped, cases_of
from iosonde.findings.reference import beside, of_part, published
from iosonde.metrics import wording
from iosonde.metrics.metrics import case_metrics
from iosonde.metrics.statistics import MARGIN
from iosonde.study.model import Reference, Study


def tell(study: Study, cases: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Finding]:
    """Say how many times the published figures one's own are, over all devices that they were published of."""
    summary = case_metrics(runs)
    for reference in study.references:
        joined = beside(published(reference), of_part(cases, reference), summary).drop_nulls("ratio")
        compared = joined.filter(pl.col("metric").is_in(reference.compared or list(reference.held.values())))
        for (metric,), group in compared.group_by(["metric"], maintain_order=True):
            yield _finding(reference, str(metric), group)


def _finding(reference: Reference, metric: str, group: pl.DataFrame) -> Finding:
    """Give the median ratio and its range: these are different cases, so there is no interval to speak of."""
    low, middle, high = np.percentile(group["ratio"].to_numpy(), [0, 50, 100])
    labels = [label for label in group["label"].unique(maintain_order=True) if label]
    words, of = wording.metric_words(metric), f" of {wording.listing(labels)}" if labels else ""
    equal = abs(low - 1) <= MARGIN and abs(high - 1) <= MARGIN
    compared = "equals that" if equal else f"is {wording.times_text(float(middle))} that"
    cases = (
        "1 case"
        if len(group) == 1
        else f"{len(group)} cases: {wording.times_number(low)} to {wording.times_number(high)}"
    )
    return Untyped(
        kind="reference",
        title=wording.sentence(f"{words} {compared}{of} in {reference.source} ({cases})"),
        note=f"median of own / published over the cases that both have{_each(group, labels)}; "
        f"other hardware, other years",
        strength="moderate",
        case_ids=cases_of(group),
    )


def _each(group: pl.DataFrame, labels: list[str]) -> str:
    """Give the median for each device where there are several, and the cases at both ends."""
    medians = group.group_by("label", maintain_order=True).agg(pl.col("ratio").median())
    apart = [f"{label} {wording.times_number(ratio)}" for label, ratio in medians.select("label", "ratio").rows()]
    ordered = group.sort("ratio", maintain_order=True)
    ends = f"; least in {ordered['case_id'][0]}, most in {ordered['case_id'][-1]}" if len(group) > 1 else ""
    return (f" ({', '.join(apart)})" if len(labels) > 1 else "") + ends
