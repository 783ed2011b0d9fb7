"""A/A and A/B runs on real block devices of known rate, whose true ratio is known.

    python bench/ab_real.py [--runs 5] [--repeats 5] [--ratios 1.0 1.1]

Needs root, FUSE and loop devices: the devices are loop devices over a throttled image (`iosonde.lab.device`). For each
true ratio, so many A/B runs are carried out on two fresh devices. Printed as Markdown: the verdicts on the IOPS of
every case, and how often the interval of the ratio contains the true one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path

from iosonde.execution import execute
from iosonde.lab.device import throttled_devices
from iosonde.lab.limits import Limits
from iosonde.planning import Against, expand, parse
from iosonde.report import comparison
from iosonde.report.material import gather
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

IOPS = 2000
SIZE_BYTES = 64 << 20
STUDY = """
name = "ab-real"
title = "Random reads and writes"
question = "Which of two devices is faster?"
repeats = {repeats}

[measurement]
access = "random"
block_size = "4KiB"
span = "32MiB"
io_mode = "direct"
ramp = "200ms"
duration = "{duration}"
interval = "100ms"

[[parts]]
[parts.factors]
read_fraction = [0.0, 1.0]
queue_depth = [8, 32]

[profiles.standard]
"""


def verdicts(ratio: float, *, repeats: int, duration: str, seed: int) -> list[tuple[str, float, bool]]:
    """Carry out one A/B run: verdict and ratio of each case, and whether its interval contains the true ratio."""
    with (
        throttled_devices(Limits(iops=IOPS), size_bytes=SIZE_BYTES) as [first],
        throttled_devices(Limits(iops=round(IOPS * ratio)), size_bytes=SIZE_BYTES) as [second],
        tempfile.TemporaryDirectory() as directory,
    ):
        paths = str(first.path), str(second.path)
        plan = expand(
            parse(STUDY.format(repeats=repeats, duration=duration)),
            open_target(paths[0]),
            seed=seed,
            against=Against(target=open_target(paths[1])),
        )
        results = execute(plan, Path(directory, "results"), consent=Consent(destroy=paths))
        [material] = gather([results])
        rows = comparison.pairs(material, metrics=("iops",)).to_dicts()
    return [(row["verdict"], row["ratio"], (row["low"] or 0.0) <= ratio <= (row["high"] or 0.0)) for row in rows]


def row(ratio: float, runs: int, repeats: int, duration: str) -> str:
    """Return a row of the table."""
    found = [
        each for seed in range(1, runs + 1) for each in verdicts(ratio, repeats=repeats, duration=duration, seed=seed)
    ]
    counts = Counter(verdict for verdict, _, _ in found)
    ratios = sorted(measured for _, measured, _ in found)
    listed = ", ".join(f"{verdict} {count}" for verdict, count in counts.most_common())
    covered = sum(covers for _, _, covers in found)
    return f"| {ratio:g} | {len(found)} | {listed} | {ratios[0]:.3f}-{ratios[-1]:.3f} | {covered} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--duration", default="1s")
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 1.03, 1.1])
    options = parser.parse_args()
    columns = ("true ratio", "cases", "verdicts", "measured ratios", "interval contains the true ratio")
    print(f"| {' | '.join(columns)} |\n|---:|---:|---|---|---:|")
    for ratio in options.ratios:
        print(row(ratio, options.runs, options.repeats, options.duration), flush=True)


if __name__ == "__main__":
    main()
