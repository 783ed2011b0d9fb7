"""Share of runs on drives without rate limits that have the signature of one: simulated drives of every model and load.

    python bench/limit_alarms.py [--runs 200] [--first 0] [--output FILE.csv]

Loads and drives are drawn at random by their number: shipped models, and TLC with SLC cache, at queue depths 1 to 64,
from fresh or full, reads, writes and mixes. Needs the engine and no storage.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from simulated import Load as Asked
from simulated import run, spec_of

from iosonde.execution.engine import find_engine
from iosonde.features.rate_limits.signature import Load, signature
from iosonde.features.simulated_drives.model import load_model, models

SLC = '\n[translation.slc]\nsize = "{size}"\nprogram_time = "{time}"\n'


def main() -> None:
    """Print the alarms."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=200)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(given.first, given.first + given.runs):
            target, asked, seconds = drawn(seed, Path(directory))
            spec = spec_of(target, asked, seconds=seconds, seed=seed)
            spec["workload"]["interval_ns"] = round(seconds / 60 * 1e9)
            load = load_of(run(find_engine(), spec), asked)
            found = {virtual: signature(load, is_virtual=virtual) for virtual in (False, True)}
            rows.append({
                "seed": seed, "target": target, "load": asked, "iops": sum(load.operations) / sum(load.seconds),
                "alarm": found[False] is not None, "alarm_if_virtual": found[True] is not None,
            })  # fmt: skip
            if found[True]:
                print(rows[-1], found[True], file=sys.stderr)
    print(
        f"{sum(row['alarm'] for row in rows)} alarms in {len(rows)} runs; "
        f"{sum(row['alarm_if_virtual'] for row in rows)} if the devices were known to be virtual"
    )
    if given.output:
        with given.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def drawn(seed: int, directory: Path) -> tuple[str, Asked, float]:
    """A drive without limits, a load on it, and its length in seconds."""
    draw = random.Random(seed)
    plain = [name for name in models() if not load_model(name, target=name).limit]
    target = f"sim:{draw.choice(plain)},capacity={draw.choice(['1GiB', '2GiB'])}"
    if draw.random() < 0.25:
        text = models()[draw.choice(["pm963", "pm1725a"])].read_text(encoding="utf-8")
        size, time = draw.choice(["100GB", "400GB"]), draw.choice(["200us", "400us"])
        path = directory / f"slc-{seed}.toml"
        path.write_text(text.replace("\n[buffer]", SLC.format(size=size, time=time) + "\n[buffer]"), encoding="utf-8")
        target = f"sim:{path},capacity=2GiB"
    block = draw.choice([4096, 4096, 4096, 16384, 65536, 131072])
    asked = Asked(
        block_bytes=block,
        queue_depth=draw.choice([1, 4, 16, 32, 64]),
        read_fraction=draw.choice([1.0, 1.0, 0.7, 0.0, 0.0]),
        access=draw.choice(["random", "random", "sequential"]),
        layout=draw.choice(["missing", "missing", "never"]),
    )
    return target, asked, draw.choice([6.0, 12.0])


def load_of(events: list[dict[str, Any]], asked: Asked) -> Load:
    """Operations of the run over time."""
    measured = [event for event in events if event["event"] == "interval" and event["phase"] == "measure"]
    of_bins = [[each for stream in event["streams"] for each in stream["operations"]] for event in measured]
    least = [
        each["completion_latency"]["min_ns"] for bins in of_bins for each in bins if each["completion_latency"]["count"]
    ]
    return Load(
        seconds=[(event["end_ns"] - event["begin_ns"]) / 1e9 for event in measured],
        operations=[sum(each["completion_latency"]["count"] for each in bins) for bins in of_bins],
        bytes=sum(each["bytes"] for bins in of_bins for each in bins),
        lowest_latency_s=min(least, default=0) / 1e9,
        queue_depth=asked.queue_depth * asked.jobs,
    )


if __name__ == "__main__":
    main()
