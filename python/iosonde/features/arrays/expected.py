"""Expected throughput of RAID levels: the model of Han et al. 2021, in multiples of one device.

    level   capacity   read   write
    raid0   N          N      N
    raid1   1          N      1
    raid10  N/2        N      N/2
    raid5   N-1        N-1    (N-1)/4
    raid6   N-2        N-2    (N-2)/6

A partial write of RAID 5 reads data and parity and writes both, hence the quarter; RAID 6 has a second parity. It is
the model that arrays are commonly sized by, without block size and chunk, which `stripes.py` adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iosonde.features.arrays.words import array_words

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
    match level:
        case "raid0":
            return Expected(capacity=n, read=n, write=n)
        case "raid1":
            return Expected(capacity=1, read=n, write=1)
        case "raid10":
            return Expected(capacity=n / 2, read=n, write=n / 2)
        case "raid5":
            return Expected(capacity=n - 1, read=n - 1, write=(n - 1) / 4)
        case "raid6":
            return Expected(capacity=n - 2, read=n - 2, write=(n - 2) / 6)
        case _:
            return Expected(capacity=1, read=1, write=1)


def level_words(level: str, devices: int | None = None) -> str:
    """Name a level as people do: `RAID 5`, `RAID 5 of 8`."""
    name = array_words(level)
    return name if devices is None or level == SINGLE else f"{name} of {devices}"


def level_name(row: Mapping[str, Any]) -> str:
    """Name the level of an array, its implementation if not md, and its state."""
    kind = "" if row["array_kind"] in ("", "md") else f" ({row['array_kind']})"
    state = f", {row['state']}" if row["state"] in ("degraded", "rebuilding") else ""
    return f"{level_words(row['array'])}{kind}{state}"
