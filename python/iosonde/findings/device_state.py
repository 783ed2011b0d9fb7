"""Device state: whether so little was written that the device was fresh, and no steady state could be reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from iosonde.findings.finding import Finding, Topic
from iosonde.metrics import wording
from iosonde.metrics.scopes import ALL
from iosonde.study.model import Study
from iosonde.units import format_bytes
from iosonde.workload.block.requirements import active_range_bytes

NEARLY_ALL = 0.9
"""Share of the capacity that the active range must cover, and that must have been written, for a steady state."""


@dataclass(frozen=True, kw_only=True)
class FreshDevice(Finding):
    """Cases that were measured on a device that cannot have been in steady state."""

    kind: ClassVar[str] = "fresh device"
    topic: ClassVar[Topic] = "state"
    capacity_bytes: int
    range_bytes: int | None
    """Largest active range of these cases."""
    written_bytes: int
    """By all runs of the result set until the last of these."""

    @property
    def small_range(self) -> bool:
        """Whether the active range is the reason."""
        return self.range_bytes is not None and self.range_bytes < NEARLY_ALL * self.capacity_bytes

    def _sentence(self) -> str:
        capacity = format_bytes(self.capacity_bytes)
        reason = (
            f"the load addressed {format_bytes(self.range_bytes)} of {capacity}"
            if self.small_range and self.range_bytes is not None
            else f"{format_bytes(self.written_bytes)} were written to a device of {capacity}"
        )
        return f"Values of part `{self.part}` are for a fresh device, not for steady state: {reason}"

    def _evidence(self) -> str:
        return (
            f"steady state of a drive requires writing at least its capacity over at least {100 * NEARLY_ALL:.0f} % of "
            f"it; {format_bytes(self.written_bytes)} written, {wording.counted(len(self.case_ids), 'case')}"
        )


def find(study: Study, cases: pl.DataFrame, runs: pl.DataFrame, outcomes: pl.DataFrame | None) -> Iterator[FreshDevice]:
    """Return the parts that look for steady state on a device that cannot reach it.

    `runs` are the metrics of all runs, preparation included. Nothing is returned where the capacity is not known: of
    files, which are a part of a device.
    """
    if outcomes is None or "target_bytes" not in outcomes.columns:
        return
    capacities = outcomes["target_bytes"].drop_nulls()
    if capacities.is_empty():
        return
    capacity = int(capacities.max())  # type: ignore[arg-type]  # numbers
    written = _written(runs)
    for part in study.parts:
        chosen = cases.filter(pl.col("part") == part.name, ~pl.col("control"))
        rows = [row for row in chosen.to_dicts() if row.get("round_length") or part.rounds]
        writing = [row for row in rows if row["case_id"] in set(written["case_id"])]
        if not writing:
            continue
        ids = [row["case_id"] for row in rows]
        last = runs.filter(pl.col("case_id").is_in(ids))["order"].max()
        total = int(written.filter(pl.col("order") <= last)["written"].sum())
        ranges = [size for row in writing if (size := active_range_bytes(row))]
        found = FreshDevice(
            capacity_bytes=capacity,
            range_bytes=max(ranges, default=None),
            written_bytes=total,
            strength="strong",
            case_ids=tuple(ids),
            part=part.name,
        )
        if found.small_range or total < NEARLY_ALL * capacity:
            yield found


def _written(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes that each run wrote while measured."""
    keys = ["run_id", "case_id", "order", "stream"]
    names = ("bandwidth", "seconds")
    rows = runs.filter(pl.col("metric").is_in(names), pl.col("stream") != ALL)
    seconds = rows.filter(pl.col("metric") == "seconds").group_by("run_id").agg(seconds=pl.col("value").max())
    return (
        rows.filter(pl.col("metric") == "bandwidth", pl.col("operation") == "write", pl.col("value") > 0)
        .select(*keys, "value")
        .join(seconds, on="run_id")
        .with_columns(written=pl.col("value") * pl.col("seconds"))
    )
