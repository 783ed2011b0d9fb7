"""Error rates of the fleet report, on computed fleets.

    python bench/fleet_error_rates.py [--fleets 100] [--drives 100]

Prints how many names fleets of equal drives give in all; and for fleets with one drive that is slower at p99 and one
with another firmware, how often both are named, and how many other drives are. Then the same for stalls of 50 ms, which
every drive has with a probability, and one drive more often.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from fleet_samples import fleet
from shared import options

from iosonde.collections.fleet.drives import fleets


def main() -> None:
    """Print one row for each kind of fleet."""
    given = options(__doc__, fleets=100, drives=100)
    print("p99 of one drive | it was named | firmware named | others named in all")
    for slower in (1.0, 1.05, 1.07, 1.10, 1.12, 1.20):
        print(row(slower, given.fleets, given.drives), flush=True)
    print("stalls of each drive | more of one | it was named | others named in all")
    for usual in (0.0, 1.0, 10.0):
        for more in (0, 3, 6, 12, 24):
            print(stalls_row(usual, more, given.fleets, given.drives), flush=True)


def row(slower: float, count: int, drives: int) -> str:
    """Return the counts over fleets whose drive 31 has `slower` times the p99 latency."""
    slow, named, firmware, others = f"slot-{drives // 3}", 0, 0, 0
    for seed in range(count):
        changes = {} if slower == 1 else {drives // 3: slower}
        odd = {} if slower == 1 else {drives // 2: "1.1"}
        [found] = fleets(fleet(drives, seed=1000 + seed, slower=changes, firmware=odd))
        of_drives = {each.drive.summary.path for each in found.named if each.drive}
        named += bool(changes) and slow in of_drives
        firmware += any(group.firmware == "1.1" for _, group in found.firmware_pairs)
        others += len(of_drives - {slow} if changes else of_drives)
    if slower == 1:
        return f"{'equal':>16} | {'-':>12} | {'-':>14} | {others:>4}"
    return f"{100 * (slower - 1):>14.0f} % | {named:>12} | {firmware:>14} | {others:>4}"


def stalls_row(usual: float, more: int, count: int, drives: int) -> str:
    """Return the counts over fleets of which one drive has `more` stalls than expected of the others."""
    odd, named, others = f"slot-{drives // 3}", 0, 0
    for seed in range(count):
        [found] = fleets(fleet(drives, seed=5000 + seed, stalls=usual, more_stalls={drives // 3: more}))
        of_drives = {each.drive.summary.path for each in found.named if each.drive and each.stalls}
        named += bool(more) and odd in of_drives
        others += len(of_drives - {odd} if more else of_drives)
    return f"{usual:>20.0f} | {more:>11} | {named if more else '-':>12} | {others:>4}"


if __name__ == "__main__":
    main()
