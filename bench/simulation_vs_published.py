"""Values of simulated drives compared with those of four papers, and the errors.

    python bench/simulation_vs_published.py [--papers davidovic2019,han2021,jo2024,master2010] [--output FILE.csv]

Prints Markdown (docs/simulation.md holds it); the file gets every pair of values. Needs nothing but the engine, and no
quiet machine: time is the drives' own. All four papers take about ten minutes and 2 GB of memory.

- Davidovic et al. 2019: all 1,020 points of bandwidth over block size and queue depth, on 1, 2 and 3 drives.
- Han et al. 2021: bandwidth of Optane 900P drives in RAID 0, 1, 10, 5 and 6, figures 1 to 5, and alone, Table 1.
- Jo et al. 2024, Table 1: four drives, what they are specified for and their latency at five nines.
- Master et al. 2010 (NERSC): peaks of a PCIe card and a SATA drive, and what an hour of random writes leaves.
"""

from __future__ import annotations

import csv
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from shared import BenchError, options, table
from simulated import Figures, Load, measure

from iosonde.data import data_folder
from iosonde.execution.engine import find_engine
from iosonde.features.simulated_drives.model import load_model, models
from iosonde.features.simulated_drives.storage import SimulatedDriveTarget
from iosonde.storage import open_target

HEAD = ("points", "number", "bias", "median error", "90th percentile", "worst", "where the worst is")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A published value and that of a simulated drive, in one unit."""

    where: str
    published: float
    simulated: float
    of: dict[str, Any] = field(default_factory=dict)
    """Its place among the others, by which a report groups it."""

    @property
    def error(self) -> float:
        """Relative: 0.1 where the simulation is a tenth higher."""
        return self.simulated / self.published - 1


Groups = Iterable[tuple[str, Callable[[Point], bool]]]


def rows(name: str) -> list[dict[str, str]]:
    """A file of published values."""
    with (data_folder("reference") / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary(label: str, points: Sequence[Point]) -> list[str]:
    """One line of a table with `HEAD`; the bias is the median with its sign, the others are of absolute errors."""
    worst = max(points, key=lambda point: abs(point.error))
    sizes = sorted(abs(point.error) for point in points)
    ninth = sizes[min(len(sizes) - 1, round(0.9 * (len(sizes) - 1)))]
    return [
        label,
        f"{len(points):,}",
        *(f"{median(point.error for point in points):+.0%}", f"{median(sizes):.0%}", f"{ninth:.0%}"),
        f"{worst.error:+.0%}",
        f"{worst.where}: {worst.published:,.4g} published, {worst.simulated:,.4g} simulated",
    ]


def grouped(found: Sequence[Point], groups: Groups) -> list[list[str]]:
    """Errors by group."""
    return [summary(label, [point for point in found if choose(point)]) for label, choose in groups]


def listed(found: Sequence[Point], unit: str, form: str) -> str:
    """Every point."""
    lines = [
        [each.where, f"{each.published:{form}}", f"{each.simulated:{form}}", f"{each.error:+.0%}"] for each in found
    ]
    return table((unit, "published", "simulated", "error"), lines, align="---")


# Davidovic et al. 2019 ------------------------------------------------------------------------------------------------

SP900 = {
    1: "sim:sp900,capacity=16GB",
    2: "sim:sp900*2,chunk=16KiB,capacity=8GB,bandwidth=1250MB/s",
    3: "sim:sp900*3,chunk=16KiB,capacity=6GB,bandwidth=1250MB/s",
}
"""The stripe unit is the paper's; 1,250 MB/s is the most that its board ever moved, whatever the drives."""
DRIVE_BYTES_PER_SECOND = 500e6
DRIVES = {1: "1 drive", 2: "2 drives", 3: "3 drives"}
DAVIDOVIC_GROUPS = [
    *(
        (f"{text}, {kind}s", lambda point, key=(drives, kind): (point.of["drives"], point.of["kind"]) == key)
        for drives, text in DRIVES.items()
        for kind in ("read", "write")
    ),
    ("queue depth 1", lambda point: point.of["depth"] == 1),
    ("queue depth 2", lambda point: point.of["depth"] == 2),
    ("queue depths 4 to 10", lambda point: 4 <= point.of["depth"] <= 10),
    ("queue depths 16 and above", lambda point: point.of["depth"] >= 16),
    ("blocks up to 4 KiB", lambda point: point.of["block"] <= 4096),
    ("blocks of 8 to 64 KiB", lambda point: 4096 < point.of["block"] <= 65536),
    ("blocks of 128 KiB and above", lambda point: point.of["block"] > 65536),
    ("**all**", lambda _: True),
]


def davidovic(engine: Path) -> Iterator[Point]:
    """The whole grid, in the order of the table."""
    for row in rows("davidovic2019_raid0.csv"):
        drives, depth, block = int(row["drives"]), int(row["queue_depth"]), int(row["block_bytes"])
        kib = f"{block >> 10} KiB" if block < 1 << 20 else f"{block >> 20} MiB"
        yield Point(
            where=f"{DRIVES[drives]}, {row['op']}, {kib if block >= 1024 else f'{block} B'} at queue depth {depth}",
            published=float(row["bandwidth_mb_s"]),
            simulated=davidovic_bandwidth(engine, drives, row["op"], depth, block) / 1e6,
            of={"drives": drives, "kind": row["op"], "depth": depth, "block": block},
        )


def davidovic_bandwidth(engine: Path, drives: int, operation: str, queue_depth: int, block_bytes: int) -> float:
    """Bytes per second of sequential I/O over all that fits, as ATTO does it."""
    read_fraction = 1.0 if operation == "read" else 0.0
    load = Load(block_bytes=block_bytes, queue_depth=queue_depth, read_fraction=read_fraction, access="sequential")
    # Every place in the queue is used a few times, and the write buffer is full before it counts.
    turn = max(0.04, queue_depth * block_bytes / (DRIVE_BYTES_PER_SECOND * drives))
    return measure(engine, SP900[drives], load, seconds=6 * turn, ramp_seconds=turn).bandwidth


def davidovic_report(found: list[Point]) -> list[str]:
    """Errors by drives, operation and region of the grid, and the most that each array reaches."""
    simulated = {tuple(point.of.values()): point.simulated for point in found}
    # Each published point with the simulated one at half its queue depth, where there is one.
    halves = [(point, tuple((point.of | {"depth": point.of["depth"] / 2}).values())) for point in found]
    halved = [replace(point, simulated=simulated[half]) for point, half in halves if half in simulated]
    summaries = [*grouped(found, DAVIDOVIC_GROUPS), summary("half of the queue depth in flight", halved)]
    lines = []
    for kind in ("read", "write"):
        of_kind = [point for point in found if point.of["kind"] == kind]
        for drives, text in DRIVES.items():
            most = [
                [max(getattr(each, side) for each in of_kind if each.of["drives"] == count) for count in (drives, 1)]
                for side in ("published", "simulated")
            ]
            lines.append([f"{kind}, {text}", *(f"{value:,.0f} ({value / one:.2f}x)" for value, one in most)])
    head = ("most MB/s (times one drive)", "published", "simulated")
    return [table(HEAD, summaries, align="---"), table(head, lines, align="---")]


# Han et al. 2021 ------------------------------------------------------------------------------------------------------

THREADS = 64
PARITY = {"5": "340MB/s", "6": "270MB/s"}
"""Approximate write throughput of the paper's host with parity, for any number of drives."""
HAN_GROUPS: Groups = [
    ("one drive", lambda point: point.of["level"] == "none"),
    ("reads of arrays", lambda point: point.of["level"] != "none" and point.of["kind"] == "read"),
    ("writes of RAID 0, 1, 10", lambda point: point.of["level"] in ("0", "1", "10") and point.of["kind"] == "write"),
    ("writes of RAID 5, 6", lambda point: point.of["level"] in PARITY and point.of["kind"] == "write"),
    ("**all**", lambda _: True),
]


def han(engine: Path) -> Iterator[Point]:
    """One drive, then the arrays; those with direct I/O, since a simulated drive has no page cache above it."""
    for row in rows("han2021_table1_single_device.csv"):
        if "900P" in row["device"] and row["io_path"] == "direct":
            yield Point(
                where=f"one drive, {row['pattern']} {row['op']}",
                published=float(row["bandwidth_mb_s"]) / 1000,
                simulated=han_bandwidth(engine, "sim:p900", row["op"], row["pattern"]),
                of={"level": "none", "kind": row["op"], "is_limited": False},
            )
    for row in rows("han2021_fig1to5_raid.csv"):
        if row["io_path"] != "direct":
            continue
        level = row["raid_level"].removeprefix("raid")
        target = f"sim:p900*{row['devices']},raid={level},chunk=512KiB"
        limits = ["", f",parity={PARITY[level]}"] if row["op"] == "write" and level in PARITY else [""]
        for limit in limits:
            yield Point(
                where=f"RAID {level} of {row['devices']}, {row['op']}{', host limited' if limit else ''}",
                published=float(row["bandwidth_gb_s"]),
                simulated=han_bandwidth(engine, target + limit, row["op"], "sequential"),
                of={"level": level, "kind": row["op"], "is_limited": bool(limit)},
            )


def han_bandwidth(engine: Path, target: str, operation: str, pattern: str) -> float:
    """GB/s of 64 threads, each with a part of its own, 512 KiB at a time.

    The parts have a quarter of the paper's size: in place, it decides nothing.
    """
    load = Load(
        block_bytes=512 << 10,
        queue_depth=1,
        jobs=THREADS,
        read_fraction=1.0 if operation == "read" else 0.0,
        access=pattern,
        span_bytes=THREADS << 30,
        split=True,
    )
    return measure(engine, target, load, seconds=0.5, ramp_seconds=0.2).bandwidth / 1e9


def han_report(found: list[Point]) -> list[str]:
    """Errors by kind of array, and every point."""
    limited = [point for point in found if point.of["is_limited"]]
    summaries = grouped([point for point in found if point not in limited], HAN_GROUPS)
    summaries.append(summary("writes of RAID 5, 6 with the host's limit", limited))
    return [table(HEAD, summaries, align="---"), listed(found, "GB/s", ".2f")]


# Jo et al. 2024 -------------------------------------------------------------------------------------------------------

JO_MODELS = {
    "DC SSD (PM963)": "pm963",
    "EP SSD (PM1725a)": "pm1725a",
    "Optane SSD (P4800X)": "p4800x",
    "Z-SSD (SZ985)": "sz985",
}
OPERATIONS = 4_000_000
"""Twelve samples beyond five nines even of the writes of a 70/30 mix."""
SUPERBLOCKS = 24
JO_GROUPS: Groups = [
    ("rates and typical latencies", lambda point: "99.999" not in point.of["metric"]),
    ("five nines, one kind of I/O", lambda point: re.search(r"^(?!.*mix70).*99\.999", point.of["metric"]) is not None),
    ("five nines, 70/30 mix", lambda point: re.search(r"mix70.*99\.999", point.of["metric"]) is not None),
    ("**all**", lambda _: True),
]


def jo(engine: Path) -> Iterator[Point]:
    """Every row of Table 1 that a simulation can answer."""
    for device, name in JO_MODELS.items():
        with tempfile.TemporaryDirectory() as scratch:
            drive = SteadyDrive(engine, name, Path(scratch))
            for row in rows("jo2024_table1_devices.csv"):
                if row["device"] == device and (simulated := drive.value(row["metric"])) is not None:
                    # Of `800000 (x4) / 1800000 (x8)` the first, of `12-20` the middle.
                    low, _, high = row["value"].split(" ")[0].partition("-")
                    yield Point(
                        where=f"{name}, {row['metric']}",
                        published=(float(low) + float(high or low)) / 2,
                        simulated=simulated,
                        of={"device": device, "metric": row["metric"]},
                    )


class SteadyDrive:
    """A drive that random writes have brought to its steady state, in two sizes, each true to something.

    A target's `capacity=` makes blocks smaller, which keeps every rate and shortens erasures: it is for rates. Where
    single erasures are looked for, blocks stay as they are, and there are fewer of them.
    """

    def __init__(self, engine: Path, name: str, directory: Path) -> None:
        self._engine, self._directory = engine, directory
        self._fast, self._with_own_blocks = f"sim:{name},capacity=16GB", few_blocks(name, directory)
        self._states: dict[str, Path] = {}
        self._tails: dict[tuple[int, float], dict[str, dict[str, float | None]]] = {}

    def value(self, metric: str) -> float | None:
        """In the unit of the row."""
        fractions = {"read": 1.0, "write": 0.0}
        match metric.split("_"):
            case ["typical", kind, "latency", "us"]:
                return self._latency(1, fractions[kind], kind, "p50")
            case [depth, ("read" | "write") as kind, "latency", "99.999", "us"]:
                return self._latency(int(depth[2:]), fractions[kind], kind, "p99_999")
            case [depth, "mix70", kind, "latency", "99.999", "us"]:
                return self._latency(int(depth[2:]), 0.7, kind, "p99_999")
            case ["max", kind, "iops", "4k"]:
                load = Load(block_bytes=4096, queue_depth=256, read_fraction=fractions.get(kind, 0.7))
                return self._steady(self._fast, load, 1_500_000).iops
            case ["sequential", kind, "gb", "s"]:
                load = Load(block_bytes=128 << 10, queue_depth=32, read_fraction=fractions[kind], access="sequential")
                # As specified: of a drive that was written in order.
                return measure(self._engine, self._fast, load, seconds=1, ramp_seconds=0.5).bandwidth / 1e9
        return None

    def _latency(self, queue_depth: int, read_fraction: float, kind: str, tail: str) -> float:
        """In microseconds; what was measured serves every row that asks for it."""
        key = (queue_depth, read_fraction)
        if key not in self._tails:
            load = Load(block_bytes=4096, queue_depth=queue_depth, read_fraction=read_fraction)
            self._tails[key] = self._steady(self._with_own_blocks, load, OPERATIONS).latency_ns
        value = self._tails[key][kind][tail]
        if value is None:
            raise BenchError(f"too few samples for {tail} of {kind}s at queue depth {queue_depth}")
        return value / 1000

    def _steady(self, target: str, load: Load, operations: int) -> Figures:
        """Of the drive after random writes of 1.5 times its capacity, each time from the same state."""
        model = open_target(target)
        assert isinstance(model, SimulatedDriveTarget)
        until = partial(measure, self._engine, target, seconds=1e5, interval_seconds=60)
        if model.model.translation.kind == "in_place":
            return until(load, operations=operations)
        if target not in self._states:
            kept = self._states[target] = self._directory / f"state-{len(self._states)}"
            writes = Load(block_bytes=4096, queue_depth=64, read_fraction=0.0)
            # Another seed than that of the measurement, which would else read pages in the order in which they lie.
            until(writes, operations=round(1.5 * model.free_bytes() / 4096), state=kept, seed=2)
        state = Path(shutil.copy(self._states[target], self._directory / "state-copy"))
        return until(load, operations=operations, state=state)


def few_blocks(name: str, directory: Path) -> str:
    """The target with a model of few blocks."""
    model = load_model(name, target=f"sim:{name}")
    capacity = (model.translation.block or 0) * model.media.dies * SUPERBLOCKS or model.capacity
    text = models()[name].read_text(encoding="utf-8")
    file = directory / f"{name}.toml"
    file.write_text(
        re.sub('^capacity = ".*"$', f'capacity = "{capacity}"', text, count=1, flags=re.M), encoding="utf-8"
    )
    return f"sim:{file}"


def jo_report(found: list[Point]) -> list[str]:
    """Errors of what is specified and of five nines, and every point."""
    cells = {
        (each.of["metric"], each.of["device"]): f"{each.published:,.4g} / {each.simulated:,.4g} ({each.error:+.0%})"
        for each in found
    }
    metrics = dict.fromkeys(each.of["metric"] for each in found)
    lines = [[metric, *(cells.get((metric, device), "-") for device in JO_MODELS)] for metric in metrics]
    head = ("published / simulated", *JO_MODELS)
    return [table(HEAD, grouped(found, JO_GROUPS), align="---"), table(head, lines, align="---")]


# Master et al. 2010 ---------------------------------------------------------------------------------------------------

CAPACITY, SHRUNK = 4 * 10**9, 40
"""A fortieth of 160 GB, which a fortieth of an hour degrades as an hour degrades the whole."""
HOUR_SECONDS = 3600 / SHRUNK
FILLS = (0.3, 0.5, 0.7, 0.9)
CARD, DRIVE = f"sim:iodrive,capacity={CAPACITY}", f"sim:x25m,capacity={CAPACITY}"


def master(engine: Path) -> Iterator[Point]:
    """The paper's values that concern these two, or the two groups of interfaces that they stand for."""

    def peak(target: str, read_fraction: float, threads: int = 0) -> float:
        """Bytes per second, 128 KiB in order; with `threads` I/Os per second of 4 KiB at random.

        The drive is fresh for writes, and was written once for reads.
        """
        shape: dict[str, Any] = {"block_bytes": 4096, "queue_depth": 1, "jobs": threads}
        if not threads:
            depth = 128 if target == CARD else 64
            shape = {"block_bytes": 128 << 10, "queue_depth": depth, "access": "sequential"}
        load = Load(**shape, read_fraction=read_fraction, layout="missing" if read_fraction else "never")
        found = measure(engine, target, load, seconds=1, ramp_seconds=0.5)
        return found.iops if threads else found.bandwidth

    def left(target: str, fills: Sequence[float], block_bytes: int, jobs: int) -> float:
        return median(degraded(engine, target, fill, block_bytes, jobs) for fill in fills)

    of_card, of_drive = partial(peak, CARD), partial(peak, DRIVE)
    values: list[tuple[str, float, Callable[[], float]]] = [
        ("ioDrive, random-write IOPS, 8 threads", 110_000, lambda: of_card(0.0, 8)),
        ("X25-M, random-read IOPS, 8 threads", 20_000, lambda: of_drive(1.0, 8)),
        ("ioDrive, peak write over peak read", 0.85, lambda: of_card(0.0) / of_card(1.0)),
        ("X25-M, peak write over peak read", 0.5, lambda: of_drive(0.0) / of_drive(1.0)),
        ("PCIe over SATA, peak read", 4, lambda: of_card(1.0) / of_drive(1.0)),
        ("PCIe over SATA, peak write", 6, lambda: of_card(0.0) / of_drive(0.0)),
        ("PCIe over SATA, random-read IOPS", 8, lambda: of_card(1.0, 64) / of_drive(1.0, 64)),
        ("PCIe over SATA, random-write IOPS", 80, lambda: of_card(0.0, 64) / of_drive(0.0, 64)),
        ("ioDrive 90 % full, bandwidth of its peak", 0.15, lambda: left(CARD, [0.9], 128 << 10, 128) / of_card(0.0)),
        ("ioDrive 90 % full, IOPS of its peak", 0.5, lambda: left(CARD, [0.9], 4096, 16) / 4096 / of_card(0.0, 16)),
        ("X25-M at any fill, IOPS of its peak", 0.2, lambda: left(DRIVE, FILLS, 4096, 16) / 4096 / of_drive(0.0, 16)),
        ("X25-M at any fill, bandwidth of its peak", 0.075, lambda: left(DRIVE, FILLS, 128 << 10, 64) / of_drive(0.0)),
    ]
    for where, published, simulated in values:
        yield Point(where=where, published=published, simulated=simulated())


def degraded(engine: Path, target: str, fill: float, block_bytes: int, jobs: int) -> float:
    """Bytes per second in the last sixth of an hour of random writes in a file that fills so much: when it is steady.

    The file is written in order first, as `dd` did. The SATA drive has been used before, as the study's other tests use
    it, and never trimmed (no TRIM in 2010): written in order, then for an hour at random, half of it in large blocks
    and half in small ones.
    """
    span, large = round(fill * CAPACITY), Load(block_bytes=128 << 10, queue_depth=32, read_fraction=0.0)
    with tempfile.TemporaryDirectory() as scratch:
        on = partial(measure, engine, target, state=Path(scratch) / "state")
        if target == DRIVE:
            for use in (replace(large, access="sequential"), large, replace(large, block_bytes=4096)):
                on(use, seconds=HOUR_SECONDS / 2)
        in_order = replace(large, access="sequential", span_bytes=span)
        on(in_order, seconds=HOUR_SECONDS, operations=span // large.block_bytes)
        load = Load(block_bytes=block_bytes, queue_depth=1, jobs=jobs, read_fraction=0.0, span_bytes=span)
        settled = 5 / 6 * HOUR_SECONDS
        return on(load, seconds=HOUR_SECONDS - settled, ramp_seconds=settled).bandwidth


def master_report(found: list[Point]) -> list[str]:
    """Errors, and every point."""
    return [table(HEAD, [summary("**all**", found)], align="---"), listed(found, "figure", ",.3g")]


PAPERS: dict[str, tuple[Callable[[Path], Iterator[Point]], Callable[[list[Point]], list[str]]]] = {
    "davidovic2019": (davidovic, davidovic_report),
    "han2021": (han, han_report),
    "jo2024": (jo, jo_report),
    "master2010": (master, master_report),
}


def main() -> None:
    given = options(__doc__, papers=",".join(PAPERS), output="")
    engine, kept = find_engine(), []
    for name in given.papers.split(","):
        points, report = PAPERS[name]
        found = list(points(engine))
        print(f"### {name}", *report(found), sep="\n\n", end="\n\n", flush=True)
        kept += [(name, each.where, each.published, f"{each.simulated:.5g}", f"{each.error:.4f}") for each in found]
    if given.output:
        with Path(given.output).open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerows([("paper", "where", "published", "simulated", "relative_error"), *kept])


if __name__ == "__main__":
    main()
