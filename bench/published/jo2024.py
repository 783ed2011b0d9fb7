"""Jo et al. 2024, Table 1: four drives, what they are specified for and their latency at five nines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simulated import Figures, Load, SimulationError, measure

from iosonde.features.simulated_drives.target import SimulatedDriveTarget
from iosonde.storage import open_target
from published.points import HEAD, Point, markdown, rows, summary
from published.steady_drives import SMALL, steady, with_own_blocks

MODELS = {
    "DC SSD (PM963)": "pm963",
    "EP SSD (PM1725a)": "pm1725a",
    "Optane SSD (P4800X)": "p4800x",
    "Z-SSD (SZ985)": "sz985",
}
OPERATIONS = 4_000_000
"""Twelve samples beyond five nines even of the writes of a 70/30 mix."""


@dataclass(frozen=True, kw_only=True)
class TablePoint(Point):
    """With its device and its row."""

    device: str
    metric: str


def points(engine: Path) -> Iterator[TablePoint]:
    """Every row of Table 1 that a simulation can answer."""
    for device, name in MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            drive = _Drive(engine, name, Path(scratch))
            for row in rows("jo2024_table1_devices.csv"):
                if row["device"] == device and (simulated := drive.figure(row["metric"])) is not None:
                    yield TablePoint(
                        where=f"{name}, {row['metric']}",
                        published=_number(row["value"]),
                        simulated=simulated,
                        device=device,
                        metric=row["metric"],
                    )


class _Drive:
    """One drive; what was measured serves every row that asks for it."""

    def __init__(self, engine: Path, name: str, directory: Path) -> None:
        self._engine, self._directory = engine, directory
        self._fast, self._whole = f"sim:{name},capacity={SMALL}", with_own_blocks(name, directory)
        self._states: dict[str, Path] = {}
        self._tails: dict[tuple[int, float], dict[str, dict[str, float | None]]] = {}

    def figure(self, metric: str) -> float | None:
        """In the unit of the row."""
        match metric.split("_"):
            case ["typical", kind, "latency", "us"]:
                return self._latency(1, 1.0 if kind == "read" else 0.0, kind, "p50")
            case [depth, ("read" | "write") as kind, "latency", "99.999", "us"]:
                return self._latency(int(depth[2:]), 1.0 if kind == "read" else 0.0, kind, "p99_999")
            case [depth, "mix70", kind, "latency", "99.999", "us"]:
                return self._latency(int(depth[2:]), 0.7, kind, "p99_999")
            case ["max", kind, "iops", "4k"]:
                load = Load(block_bytes=4096, queue_depth=256, read_fraction={"read": 1.0, "write": 0.0}.get(kind, 0.7))
                return self._steady(self._fast, load, 1_500_000).iops
            case ["sequential", kind, "gb", "s"]:
                fraction = 1.0 if kind == "read" else 0.0
                load = Load(block_bytes=128 << 10, queue_depth=32, read_fraction=fraction, access="sequential")
                # As specified: of a drive that was written in order.
                return measure(self._engine, self._fast, load, seconds=1, ramp_seconds=0.5).bandwidth / 1e9
        return None

    def _latency(self, queue_depth: int, read_fraction: float, kind: str, tail: str) -> float:
        key = (queue_depth, read_fraction)
        if key not in self._tails:
            load = Load(block_bytes=4096, queue_depth=queue_depth, read_fraction=read_fraction)
            self._tails[key] = self._steady(self._whole, load, OPERATIONS).latency_ns
        value = self._tails[key][kind][tail]
        if value is None:
            raise SimulationError(f"too few samples for {tail} of {kind}s at queue depth {queue_depth}")
        return value / 1000

    def _steady(self, target: str, load: Load, operations: int) -> Figures:
        """Of the drive after random writes, each time from the same state."""
        model = open_target(target)
        assert isinstance(model, SimulatedDriveTarget)
        state = None
        if model.model.translation.kind != "in_place":
            if target not in self._states:
                kept = self._directory / f"state-{len(self._states)}"
                self._states[target] = steady(self._engine, target, model.free_bytes(), kept)
            state = self._directory / "state-copy"
            shutil.copy(self._states[target], state)
        return measure(self._engine, target, load, seconds=1e5, operations=operations, state=state, interval_seconds=60)


def _number(text: str) -> float:
    """Of `800000 (x4) / 1800000 (x8)` the first, of `12-20` the middle."""
    first = text.split(" ")[0]
    low, _, high = first.partition("-")
    return (float(low) + float(high or low)) / 2


def report(found: list[TablePoint]) -> str:
    """Errors of what is specified and of five nines, and every point."""
    tails = [point for point in found if "99.999" in point.metric]
    groups = [
        ("rates and typical latencies", [point for point in found if point not in tails]),
        ("five nines, one kind of I/O", [point for point in tails if "mix70" not in point.metric]),
        ("five nines, 70/30 mix", [point for point in tails if "mix70" in point.metric]),
        ("**all**", found),
    ]
    return "\n\n".join([markdown(HEAD, [summary(label, group) for label, group in groups]), _table(found)])


def _table(found: list[TablePoint]) -> str:
    metrics = list(dict.fromkeys(point.metric for point in found))
    by_place = {(point.device, point.metric): point for point in found}
    lines = [[metric, *(_cell(by_place.get((device, metric))) for device in MODELS)] for metric in metrics]
    return markdown(("published / simulated", *MODELS), lines)


def _cell(point: TablePoint | None) -> str:
    return f"{point.published:,.4g} / {point.simulated:,.4g} ({point.error:+.0%})" if point else "-"
