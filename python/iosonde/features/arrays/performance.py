"""Expected and measured throughput of arrays, from one device of the same study.

For each cell that is an array there is a cell with one device and the same load. It is compared with two values. The
*expected* throughput is the model of the level (`expected`), times the device. The *bound* is sharper: the work that
requests of this size bring to the members, shared out evenly among as many of them as this load can keep
busy, at the speed at which one device reads and writes; and no more than a link that all members share, or than memory
copies where everything passes through the page cache. If an array stays below its bound, member counters show why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd
from statistics import mean
from typing import Any

import numpy as np
import polars as pl

from iosonde.features.arrays.setup import DEFAULT_CHUNK, PARITIES, ArrayParameters, Kind, array_words
from iosonde.metrics.statistics import Estimate, Floats, ratio

SINGLE = "single"
FEWEST = {SINGLE: 1, "raid0": 1, "raid1": 2, "raid10": 2, "raid5": 3, "raid6": 4}
"""Level -> fewest devices that the model covers."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Multiples of one device."""

    capacity: float
    read: float
    write: float

    def mixed(self, read_fraction: float) -> float:
        """Of reads and writes together, if each took a device as long as the other."""
        return 1 / (read_fraction / self.read + (1 - read_fraction) / self.write)


def expected(level: str, devices: int, *, copies: int | None = None) -> Expected | None:
    """Return the expected multiples of a level of this number of devices; None for those that the model lacks.

    `copies` is how often a mirror holds each block where that is not on every device: btrfs's `raid1` keeps two,
    however many devices there are, and so is expected to do what RAID 10 does.
    """
    n = float(devices)
    if devices < FEWEST.get(level, devices + 1):
        return None
    if level == "raid1" and copies == 2:
        level = "raid10"
    capacity, read, write = {
        "raid0": (n, n, n),
        "raid1": (1.0, n, 1.0),
        "raid10": (n / 2, n, n / 2),
        "raid5": (n - 1, n - 1, (n - 1) / 4),
        "raid6": (n - 2, n - 2, (n - 2) / 6),
    }.get(level, (1.0, 1.0, 1.0))
    return Expected(capacity=capacity, read=read, write=write)


def level_words(level: str, devices: int | None = None) -> str:
    """Name a level as people do: `RAID 5`, `RAID 5 of 8`."""
    name = array_words(level)
    return name if devices is None or level == SINGLE else f"{name} of {devices}"


def level_name(row: Mapping[str, Any]) -> str:
    """Name the level of an array, its implementation if not md, and its state."""
    kind = "" if row["array_kind"] in ("", "md") else f" ({row['array_kind']})"
    state = f", {row['state']}" if row["state"] in ("degraded", "rebuilding") else ""
    return f"{level_words(row['array'])}{kind}{state}"


_POSITIONS = 4096
"""Positions in a stripe that are averaged over, at most."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Member I/O of a request, averaged over its position in the stripe."""

    read_bytes: float
    """For each byte of the request."""
    write_bytes: float
    members: float
    """Members that are busy with it at the same time."""

    @property
    def bytes(self) -> float:
        """Bytes of members for each byte of the request."""
        return self.read_bytes + self.write_bytes


def request(
    level: str, devices: int, chunk: int, block: int, *, writes: bool, merged: bool = False, copies: int | None = None
) -> Work:
    """Return the work of a request of `block` bytes at multiples of `block`.

    `merged` is for requests that reach the array one after the other and may be joined to whole stripes, by the page
    cache or by the array itself. `copies` as in `expected`. All sizes are bytes.
    """
    mirrors = {"raid1": copies or devices, "raid10": 2}.get(level, 1)
    parities = PARITIES.get(level, 0)
    columns = {"raid1": 1, "raid10": devices / 2}.get(level, devices - parities)
    if not writes or not parities:
        spread = min(_pieces(block, chunk) if columns > 1 else 1.0, columns)
        return Work(
            read_bytes=0 if writes else 1,
            write_bytes=mirrors if writes else 0,
            members=min(float(devices), spread * (mirrors if writes else 1)),
        )
    data = devices - parities
    if merged:
        return Work(read_bytes=0, write_bytes=devices / data, members=float(devices))
    return _parity_write(data, parities, chunk, block)


def _pieces(block: int, chunk: int) -> float:
    """Return how many chunks a request touches, on average over its position."""
    return mean((at % chunk + block + chunk - 1) // chunk for at in _offsets(block, chunk))


def _offsets(block: int, period: int) -> list[int]:
    """Return the positions, modulo a period, of requests at multiples of their size."""
    count = min(period // gcd(block, period), _POSITIONS)
    return [(number * block) % period for number in range(count)]


@lru_cache(maxsize=256)
def _parity_write(data: int, parities: int, chunk: int, block: int) -> Work:
    """Average over every position of a request in its stripe."""
    stripe = data * chunk
    offsets = _offsets(block, stripe)
    read_bytes = write_bytes = members = 0
    for offset in offsets:
        touched: set[int] = set()
        for begin, end in _in_stripes(offset, block, stripe):
            read, written = _stripe_write(begin, end, data, parities, chunk, touched)
            read_bytes, write_bytes = read_bytes + read, write_bytes + written
        members += len(touched)
    count = len(offsets)
    return Work(
        read_bytes=read_bytes / count / block,
        write_bytes=write_bytes / count / block,
        members=min(float(data + parities), members / count),
    )


def _in_stripes(offset: int, block: int, stripe: int) -> Iterator[tuple[int, int]]:
    """Divide a request at the borders of stripes."""
    at, end = offset, offset + block
    while at < end:
        until = min(end, (at // stripe + 1) * stripe)
        yield at % stripe, (until - 1) % stripe + 1
        at = until


def _stripe_write(begin: int, end: int, data: int, parities: int, chunk: int, touched: set[int]) -> tuple[int, int]:
    """Return bytes read and written for one stripe, written from `begin` to `end` of its data.

    The stripe is cut into rows of equal coverage, because each is decided on by itself. Members are counted by column:
    data from 0, parities after them; the busy ones are added to `touched`.
    """
    spans = {
        column: (max(begin, column * chunk) - column * chunk, min(end, (column + 1) * chunk) - column * chunk)
        for column in range(begin // chunk, (end - 1) // chunk + 1)
    }
    cuts = sorted({cut for span in spans.values() for cut in span})
    read_bytes = write_bytes = 0
    for low, high in pairwise(cuts):
        covered = [column for column, (first, last) in spans.items() if first <= low and high <= last]
        if not covered:
            continue
        rest = [column for column in range(data) if column not in covered]
        written = [*covered, *range(data, data + parities)]
        read = rest if len(rest) <= len(written) else written
        touched.update(read, written)
        read_bytes += len(read) * (high - low)
        write_bytes += len(written) * (high - low)
    return read_bytes, write_bytes


LAYOUT = ("devices", *ArrayParameters.model_fields)
"""Parameters that describe an array, and so are not matched with those of the single device."""
BOUND_WORDS = {
    "members": "the members' own speed",
    "parallelism": "members that this load keeps busy at once",
    "link": "the link that all members share",
    "pcie": "the PCIe link that members share",
    "memory": "copying through the page cache",
}


class Setting:
    """Parameters that determine the expected throughput of a case, a row of the view `cases`; sizes in bytes."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        kind: Kind = case.get("array_kind") or "md"
        block = case.get("block_size")
        self.array = str(case.get("array") or SINGLE)
        self.array_kind = kind
        self.state = str(case.get("array_state") or "")
        self.devices = int(case.get("devices") or 1)
        self.failed = int(case.get("failed_members") or 0)
        self.chunk = DEFAULT_CHUNK[kind] if kind == "btrfs" else int(case.get("chunk") or DEFAULT_CHUNK[kind])
        self.block = int(block) if isinstance(block, int | float) else None
        self.read_fraction = float(1 if case.get("read_fraction") is None else case["read_fraction"])
        self.sequential = case.get("access") == "sequential"
        self.buffered = case.get("io_mode") == "buffered"
        self.concurrency = int(case.get("jobs") or 1) * int(case.get("queue_depth") or 1)

    @property
    def is_single(self) -> bool:
        """True for a single device without an array, and for an array of one device."""
        return self.array == SINGLE or self.devices == 1

    @property
    def copies(self) -> int | None:
        """Copies of each block in a btrfs mirror, which has two on any number of devices; None for other arrays."""
        return 2 if self.array_kind == "btrfs" else None

    @property
    def expected(self) -> Expected | None:
        """The expected model of its level."""
        return expected(self.array, self.devices, copies=self.copies)

    def work(self, *, writes: bool) -> Work | None:
        """Member I/O of its requests; None if members are missing or block sizes are mixed."""
        if self.block is None or self.failed:
            return None
        merged = self.sequential or self.buffered
        return request(
            self.array, self.devices, self.chunk, self.block, writes=writes, merged=merged, copies=self.copies
        )


def array_performance(
    cells: pl.DataFrame,
    cases: pl.DataFrame,
    *,
    factors: Sequence[str],
    runs: pl.DataFrame | None = None,
    metric: str = "bandwidth",
) -> list[dict[str, Any]]:
    """Return the expected and the measured throughput of each array.

    `cells` hold the repeats of a rate (`cells.cells`), `cases` is the view of that name, `factors` are the cells'
    columns that must be the same for the one device (all but those of the layout), and `runs`, the view, has
    capacities and ceilings where the target reported them. `metric` is the rate: `bandwidth`, or I/Os per second.

    Keys of a row: those of `factors`; `array, array_kind, state, devices`; `measured, baseline` (medians), `multiple`
    (of the level), `expected`, `efficiency` with `low, high`, `overhead` (1 - efficiency), `speedup` (over one device)
    with its interval; `bound, bound_by` (see `BOUND_WORDS`), `of_bound`; `writes_only`; `needed_bytes` (of members,
    for each byte of the host), `members_in_use`; `capacity, expected_capacity` (bytes); `repeats,
    case_id, baseline_case_id`. A cell without a single device of the same load has no row.
    """
    settings = {row["case_id"]: Setting(row) for row in cases.iter_rows(named=True)}
    facts = _facts(runs, cases, per_io=metric != "bandwidth")
    singles: dict[tuple[Any, ...], tuple[str, Floats]] = {}
    for row in cells.iter_rows(named=True):
        if settings[row["case_id"]].is_single:
            singles.setdefault(_key(row, factors), (row["case_id"], np.asarray(row["values"], dtype=np.float64)))
    rows = []
    for row in cells.iter_rows(named=True):
        setting, single = settings[row["case_id"]], singles.get(_key(row, factors))
        if setting.is_single or single is None or (model := setting.expected) is None:
            continue
        other = _other_way(row, singles, factors, settings, setting)
        levels = {name: row[name] for name in factors}
        rows.append({**levels, **_row(row, setting, model, single, other, facts)})
    return rows


def _key(row: Mapping[str, Any], factors: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in factors)


def _row(
    row: Mapping[str, Any],
    setting: Setting,
    model: Expected,
    single: tuple[str, Floats],
    other: float | None,
    facts: Mapping[str, Mapping[str, float | None]],
) -> dict[str, Any]:
    values, (single_id, base) = np.asarray(row["values"], dtype=np.float64), single
    multiple = model.mixed(setting.read_fraction)
    speedup = ratio(values, base)
    efficiency = _divided(speedup, multiple)
    baseline, measured = float(np.median(base)), float(np.median(values))
    known = facts.get(row["case_id"], {})
    bound, bound_by, members = _bound(setting, baseline, other, known)
    work = setting.work(writes=setting.read_fraction < 0.5)
    one = facts.get(single_id, {}).get("target_bytes")
    return {
        "array": setting.array,
        "array_kind": setting.array_kind,
        "state": setting.state,
        "devices": setting.devices,
        "measured": measured,
        "baseline": baseline,
        "multiple": multiple,
        "expected": multiple * baseline,
        "efficiency": efficiency.value,
        "low": efficiency.low,
        "high": efficiency.high,
        "overhead": 1 - efficiency.value,
        "speedup": speedup.value,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "bound": bound,
        "bound_by": bound_by,
        "of_bound": None if bound is None else measured / bound,
        "writes_only": setting.read_fraction == 0,
        "needed_bytes": work.bytes if work and setting.read_fraction in (0, 1) else None,
        "members_in_use": members,
        "capacity": known.get("target_bytes"),
        "expected_capacity": None if one is None else model.capacity * one,
        "repeats": min(len(values), len(base)),
        "case_id": row["case_id"],
        "baseline_case_id": single_id,
    }


def _divided(estimate: Estimate, by: float) -> Estimate:
    low, high = (None if end is None else end / by for end in (estimate.low, estimate.high))
    return Estimate(estimate.value / by, low, high)


def _other_way(
    row: Mapping[str, Any],
    singles: Mapping[tuple[Any, ...], tuple[str, Floats]],
    factors: Sequence[str],
    settings: Mapping[str, Setting],
    setting: Setting,
) -> float | None:
    """Return how fast one device reads where this cell writes, all else being equal: parity is read before written.

    None where the study has no such cell, or the load is no write.
    """
    if setting.read_fraction != 0:
        return None
    for key, (case_id, values) in singles.items():
        differing = [name for name, level in zip(factors, key, strict=True) if level != row[name]]
        if len(differing) == 1 and settings[case_id].read_fraction == 1 and settings[case_id].block == setting.block:
            same_path = settings[case_id].buffered == setting.buffered
            if same_path and settings[case_id].sequential == setting.sequential:
                return float(np.median(values))
    return None


def _bound(
    setting: Setting, single: float, reading: float | None, known: Mapping[str, float | None]
) -> tuple[float | None, str | None, float | None]:
    """Return the bound, what sets it, and how many members are busy at it.

    `single` is what one device gives under this load and `reading` what it reads under it; where that is not known,
    reading is taken to be as fast.
    """
    if setting.read_fraction not in (0, 1):
        return None, None, None
    writes = setting.read_fraction == 0
    work = setting.work(writes=writes)
    if work is None:
        return None, None, None
    busy = float(setting.devices)
    if not setting.buffered:
        # In-flight I/O is limited to requests that wait for completion.
        busy = min(busy, setting.concurrency * work.members)
    write_speed, read_speed = (single, reading or single) if writes else (single, single)
    # A device may read and write at the same time, at full speed each: many links and some media do.
    seconds = max(work.read_bytes / read_speed, work.write_bytes / write_speed)
    bounds = {"members" if busy == setting.devices else "parallelism": busy / seconds}
    if link := known.get("link_bytes_per_second"):
        bounds["link"] = link / max(work.bytes, 1)
    if pcie := known.get("pcie_bytes_per_second"):  # It carries as much in either direction at the same time.
        bounds["pcie"] = pcie / max(work.read_bytes, work.write_bytes)
    if setting.buffered and (copying := known.get("memory_copy_bytes_per_second")):
        bounds["memory"] = copying
    by = min(bounds, key=lambda name: bounds[name])
    return bounds[by], by, busy


_FACTS = ("target_bytes", "link_bytes_per_second", "pcie_bytes_per_second", "memory_copy_bytes_per_second")


def _facts(runs: pl.DataFrame | None, cases: pl.DataFrame, *, per_io: bool) -> dict[str, dict[str, float | None]]:
    """Return the facts about the target of each case; ceilings in I/Os per second with `per_io`."""
    names = [name for name in _FACTS if runs is not None and name in runs.columns]
    if runs is None or not names:
        return {}
    medians = runs.group_by("case_id").agg(pl.col(name).cast(pl.Float64).median() for name in names)
    if per_io and "block_size" in cases.columns and cases.schema["block_size"].is_numeric():
        ceilings = [name for name in names if name != "target_bytes"]
        sizes = medians.join(cases.select("case_id", "block_size"), on="case_id")
        medians = sizes.with_columns(pl.col(name) / pl.col("block_size") for name in ceilings)
    return {row["case_id"]: {name: row[name] for name in names} for row in medians.iter_rows(named=True)}
