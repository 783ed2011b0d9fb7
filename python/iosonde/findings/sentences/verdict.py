"""Number of runs with each verdict, and the warnings behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from iosonde.findings.finding import Finding, Untyped, cases_of
from iosonde.metrics import wording
from iosonde.verdict.verdict import KINDS, MEANING, Kind
from iosonde.verdict.warning_kinds import WARNINGS


def tell(outcomes: pl.DataFrame, warnings: pl.DataFrame | None) -> Iterator[Finding]:
    """Sum the verdicts up. `outcomes` is the view `runs`, `warnings` the view of that name."""
    judged = outcomes.filter(pl.col("verdict").is_not_null())
    if judged.is_empty():
        return
    counts = {kind: int((judged["verdict"] == kind).sum()) for kind in KINDS}
    others = judged.filter(pl.col("verdict") != "device-limited")
    yield Untyped(
        kind="trust",
        title=_title(counts, len(judged)),
        note=_reasons(others, warnings) or MEANING["device-limited"],
        strength="strong",
        case_ids=cases_of(others),
    )


def _title(counts: Mapping[Kind, int], total: int) -> str:
    [(first, count), *others] = [(kind, counts[kind]) for kind in KINDS if counts[kind]]
    verb = "was" if total == 1 else "were"
    text = f"{count} of {wording.counted(total, 'run')} {verb} {first}"
    return text + "".join(f", {number} {kind}" for kind, number in others)


def _reasons(others: pl.DataFrame, warnings: pl.DataFrame | None) -> str:
    """Name the warnings that decided, the most frequent first: `turnaround (5 runs), other_io (2 runs)`."""
    if warnings is None or others.is_empty():
        return ""
    decided = warnings.join(others.select("run_id", "verdict"), on="run_id").filter(
        pl.col("code").is_in([code for code, kind in WARNINGS.items() if kind.points_to != "note"])
    )
    runs = (
        decided.group_by("code", maintain_order=True).agg(pl.col("run_id").n_unique()).sort("run_id", descending=True)
    )
    return ", ".join(f"`{code}` ({wording.counted(count, 'run')})" for code, count in runs.iter_rows())
