"""Repeats outages of NFS under verified durable writes, inside User Mode Linux: `failover_repeats.py [--repeats 20]`.

Half of them cut the route to a server, the others stop and start a server. Prints outcomes, the unavailable time, and
sectors that differ from acknowledged writes. A repeat of both takes about 40 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "lab"))

from user_mode_linux import run_script

from iosonde.lab.image import image
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet

METRICS = ("outage_length_ns", "unavailable_ns", "outage_caught_up_ns", "verified_bytes", "wrong_sectors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    place = Path(tempfile.mkdtemp(prefix="failover-"))
    with tempfile.TemporaryDirectory() as packages:
        layer = Path(packages) / "packages"
        limit_s = 600 + 120 * repeats
        run_script("failover_guest.py", str(repeats), image=image(), place=place, packages=layer, limit_s=limit_s)
    for name in ("link", "own"):
        results = ResultSet.open(place / name)
        print(name, [(each.outcome, each.failure and each.failure.message) for each in results.records()])
        found = run_metrics(results).filter(pl.col("operation") == "all", pl.col("metric").is_in(METRICS))
        values = pl.col("value")
        print(
            found.group_by("metric")
            .agg(
                values.len().alias("runs"),
                values.min().alias("min"),
                values.median().alias("median"),
                values.max().alias("max"),
                values.sum().alias("sum"),
            )
            .sort("metric")
        )
    print(place)


if __name__ == "__main__":
    main()
