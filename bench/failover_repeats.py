"""Repeats outages under verified durable writes: `failover_repeats.py [--repeats 20] [--transport nfs|nvme-tcp]`.

Each repeat cuts the route to a server, and stops and starts a server: of NFS inside User Mode Linux, where both take
about 40 s, of NVMe/TCP inside the lab's machine. Prints outcomes, the unavailable time, sectors that
differ from acknowledged writes, and what remains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import polars as pl

sys.path.append(str(Path(__file__).parents[1] / "tests"))
sys.path.append(str(Path(__file__).parents[1] / "tests" / "lab"))

from engines import real_engine
from user_mode_linux import run_script

from iosonde.lab.image import image
from iosonde.lab.machine import Machine, Settings
from iosonde.lab.qemu import Drives
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet

LAB = Path(__file__).parents[1] / "tests" / "lab"
METRICS = ("outage_length_ns", "unavailable_ns", "outage_caught_up_ns", "verified_bytes", "wrong_sectors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--transport", choices=["nfs", "nvme-tcp"], default="nfs")
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="failover-"))
    (over_nfs if given.transport == "nfs" else over_nvme_tcp)(place, given.repeats)
    print((place / "left.json").read_text())
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


def over_nfs(place: Path, repeats: int) -> None:
    """Outages in User Mode Linux."""
    with tempfile.TemporaryDirectory() as packages:
        layer = Path(packages) / "packages"
        limit_s = 600 + 120 * repeats
        run_script("failover_guest.py", str(repeats), image=image(), place=place, packages=layer, limit_s=limit_s)


def over_nvme_tcp(place: Path, repeats: int) -> None:
    """Outages in the lab's machine, whose kernel has NVMe/TCP."""
    command = [sys.executable, "-B", str(LAB / "guest_nvme_tcp.py"), str(repeats)]
    environment = {"PYTHONPATH": str(LAB.parents[1] / "python"), "IOSONDE_ENGINE": str(real_engine())}
    settings = Settings(drives=Drives(count=8, unlimited=1, size_bytes=512 << 20))
    with Machine(command, image=image(), results=place, settings=settings, environment=environment) as machine:
        for _, data in machine.output():
            sys.stderr.write(data.decode(errors="replace"))
    assert machine.exit_code == 0


if __name__ == "__main__":
    main()
