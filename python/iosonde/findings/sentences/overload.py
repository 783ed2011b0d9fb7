"""Where an open loop asked for more than the target could do."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from iosonde.findings.finding import Finding, Untyped, cases_of
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL

KEPT_UP = 0.99
"""A target that starts this share of what was due has kept up."""
NAMED = 4


def tell(cases: pl.DataFrame, runs: pl.DataFrame) -> Iterator[Finding]:
    """Name the streams that the target did not keep up with, and what it achieved, for each part apart.

    A probe of a search that is overloaded has found what it was for, so those are told as weakly as they weigh.
    """
    shares = _medians(runs, "achieved_rate_fraction").rename({"median": "share"})
    rates = _medians(runs, "iops").rename({"median": "achieved"})
    measured = shares.join(rates, on=["case_id", "part", "stream"], how="inner", maintain_order="left")
    for (part,), group in measured.group_by(["part"], maintain_order=True):
        behind = group.filter(pl.col("share") < KEPT_UP).sort("share", descending=True, maintain_order=True)
        if len(behind):
            yield _finding(str(part), group, behind)


def _finding(part: str, group: pl.DataFrame, behind: pl.DataFrame) -> Finding:
    cases, total = behind["case_id"].n_unique(), group["case_id"].n_unique()
    streams = group["stream"].n_unique() > 1
    named = [
        f"`{case_id}`{f' ({stream})' if streams else ''} {wording.percent_text(share)} of the offered rate,"
        f" {wording.value_text('iops', achieved)}"
        for case_id, stream, share, achieved in behind.select("case_id", "stream", "share", "achieved")
        .head(NAMED)
        .iter_rows()
    ]
    more = f"; and {len(behind) - NAMED} more" if len(behind) > NAMED else ""
    return Untyped(
        kind="overload",
        title=f"Overloaded in {cases} of {wording.counted(total, 'open-loop case')}:"
        " the target did not keep up, so response latency grows for as long as the load lasts",
        note=f"achieved: {'; '.join(named)}{more}",
        strength="strong",
        case_ids=cases_of(behind),
        part=part,
    )


def _medians(runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return the median over repeats for each stream of each case; of several streams each, not all together."""
    each = runs.filter(pl.col("metric") == metric, pl.col("operation") == ALL, pl.col("stream") != ALL)
    return each.group_by("case_id", "part", "stream", maintain_order=True).agg(median=pl.col("value").median())
