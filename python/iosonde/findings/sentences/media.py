"""What drives write to their media for what they are handed, or why that is not known."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from iosonde.findings.finding import Finding, Untyped
from iosonde.metrics import media, wording
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import MINIMUM_REPEATS
from iosonde.study.model import Study

NAME = media.AMPLIFICATION.name


def tell(study: Study, cases: pl.DataFrame, metrics: pl.DataFrame, outcomes: pl.DataFrame | None) -> Iterator[Finding]:
    """Say what the media took; that it is not known only where the study asks for it."""
    values = overall(metrics).filter(pl.col("metric") == NAME, ~pl.col("control"))
    if values.height:
        yield _told(values)
    elif outcomes is not None and _asks(study):
        yield from _untold(outcomes)


def _told(values: pl.DataFrame) -> Finding:
    """One row a case would be too much: the least, the most, and where."""
    each = values.group_by("case_id", maintain_order=True).agg(pl.col("value").median(), repeats=pl.len())
    least, most = (each.row(each["value"].arg_min(), named=True), each.row(each["value"].arg_max(), named=True))
    low, high = (wording.ratio_text(float(row["value"])) for row in (least, most))
    if low == high:
        title = f"Drives write {high} bytes to their media for each byte that they are handed"
    else:
        title = f"Drives write {low} to {high} bytes to their media for each byte that they are handed"
    return Untyped(
        kind="headline",
        title=title,
        note=f"least in {least['case_id']}, most in {most['case_id']}; by the drives' own counters, in "
        f"{wording.counted(values.height, 'run')}",
        strength="strong" if each["repeats"].min() >= MINIMUM_REPEATS else "moderate",  # type: ignore[operator]
        case_ids=tuple(dict.fromkeys((most["case_id"], least["case_id"]))),
    )


def _untold(outcomes: pl.DataFrame) -> Iterator[Finding]:
    """Give the reasons, each once; nothing of simulated drives, or where there was no drive to ask."""
    none = pl.lit(None, dtype=pl.Int64)
    complete = outcomes.filter(pl.col("outcome") == "complete")
    judged = media.judged(complete.with_columns(simulated_media_write_bytes=none, simulated_write_bytes=none))
    reasons = judged["media_untold"].drop_nulls().unique(maintain_order=True).to_list()
    if reasons:
        yield Untyped(
            kind="trust",
            title="What the drives wrote to their media is not known",
            note="; ".join(reasons),
            strength="strong",
        )


def _asks(study: Study) -> bool:
    views = ((*view.metrics, view.x, view.y) for view in study.views)
    return any(NAME in asked for asked in views) or any(each.metric == NAME for each in study.analysis)
