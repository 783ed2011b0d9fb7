"""Confidence intervals as a report names them: by their methods and numbers of repeats."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from iosonde.metrics.statistics import CONFIDENCE, CUT_OFF, MINIMUM_REPEATS, WIDE_TEXT, distant_modes_coverage, is_wide
from iosonde.report.material.quantities import WIDE_CELL
from iosonde.report.material.result_sets import Material, Source


def intervals_of(material: Material, metrics: Sequence[str] = (), sources: Sequence[Source] = ()) -> str:
    """Name method and number of repeats of the intervals of some metrics, or of all; empty where there are none.

    For example `95 % confidence intervals of the median of 3 repeats (Student's t on logarithms)`.
    """
    rows = material.summary.filter(pl.col("method") != "", ~pl.col("control"))
    if metrics:
        rows = rows.filter(pl.col("metric").is_in(list(metrics)))
    if sources:
        rows = rows.filter(pl.col("result_set").is_in([each.label for each in sources]))
    if rows.is_empty():
        return ""
    counts = rows["repeats"]
    fewest, most = int(counts.min()), int(counts.max())  # type: ignore[arg-type]
    repeats = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    names = rows["method"].unique().to_list()
    used = {name for name in names if f"{name}{CUT_OFF}" not in names}
    return f"95 % confidence intervals of the median of {repeats} repeats ({'; '.join(sorted(used))})"


def coverage_of(material: Material, source: Source) -> str:
    """State the coverage that the intervals of few repeats lack if there are two distant modes; empty for others."""
    rows = material.summary.filter(pl.col("result_set") == source.label, pl.col("method") != "", ~pl.col("control"))
    counts = sorted({int(count) for count in rows["repeats"]} if not source.simulated else ())
    few = [count for count in counts if count >= MINIMUM_REPEATS and distant_modes_coverage(count) < CONFIDENCE]
    if not few:
        return ""
    shares = ", ".join(f"{100 * distant_modes_coverage(count):.0f} % with {count} repeats" for count in few)
    return (
        f"95 % for independent repeats with one mode or two near modes; for two distant modes only {shares}: "
        "too few to show both modes, use 6 or more"
    )


def medians_of(material: Material, metrics: Sequence[str] = ()) -> str:
    """Describe the values of a table: medians with their intervals, or values of too few repeats."""
    found = intervals_of(material, metrics)
    if not found:
        return "Medians over repeats; too few for confidence intervals."
    rows = material.summary.filter(pl.col("metric").is_in(list(metrics))) if metrics else material.summary
    wide = any(is_wide(low, high) for low, high in rows.select("low", "high").iter_rows())
    note = f" “{WIDE_CELL}”: the interval is {WIDE_TEXT}." if wide else ""
    return f"Medians over repeats, with {found}.{note}"
