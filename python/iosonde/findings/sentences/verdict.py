"""The disk or the tool? In how many runs each set the figures, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from iosonde.findings.finding import Finding, cases_of
from iosonde.metrics import wording
from iosonde.verdict.verdict import KINDS, MEANING, Kind
from iosonde.verdict.warning_kinds import WARNINGS

_NAMES: dict[Kind, str] = {"tool": "the tool", "cache": "a cache"}


def tell(outcomes: pl.DataFrame, warnings: pl.DataFrame | None) -> Iterator[Finding]:
    """Sum the verdicts up. `outcomes` is the view `runs`, `warnings` the view of that name."""
    judged = outcomes.filter(pl.col("verdict").is_not_null())
    if judged.is_empty():
        return
    counts = {kind: int((judged["verdict"] == kind).sum()) for kind in KINDS}
    others = judged.filter(pl.col("verdict") != "disk")
    yield Finding(
        kind="trust",
        title=_title(counts, len(judged)),
        evidence=_reasons(others, warnings) or MEANING["disk"],
        strength="strong",
        case_ids=cases_of(others),
    )


def _title(counts: Mapping[Kind, int], total: int) -> str:
    every = "the only run" if total == 1 else f"all {wording.counted(total, 'run')}"
    alone = next((kind for kind, count in counts.items() if count == total), None)
    if alone == "disk":
        return f"The disk set the figures of {every}, as far as can be told: not the tool, not a cache"
    if alone == "unclear":
        return f"Whether the disk set the figures of {every} is unclear"
    if alone is not None:
        return wording.sentence(f"{_NAMES[alone]} set the figures of {every}, not the disk")
    set_by = [f"{_NAMES[kind]} in {counts[kind]}" for kind in _NAMES if counts[kind]]
    unclear = f"; {counts['unclear']} {'is' if counts['unclear'] == 1 else 'are'} unclear" if counts["unclear"] else ""
    return ", ".join([f"The disk set the figures in {counts['disk']} of {total} runs", *set_by]) + unclear


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
