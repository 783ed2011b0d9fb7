"""IOPS of the user-level NVMe driver relative to the kernel's, in the lab's machine behind an emulated IOMMU.

    python bench/user_driver_ratio.py [--seconds 5] [--repeats 5]

Needs root, QEMU, and the engine (`$IOSONDE_ENGINE`). 4 KiB random reads at queue depths 1 and 32, backends `uring` and
`nvme_user` in shuffled order: the median IOPS of each, and the median ratio over pairs of runs of the same repeat with
its 95 % confidence interval. Five repeats take about three minutes. Both CPUs must be idle otherwise: the driver's
polling takes one, QEMU's controller the other. The drive returns zeroes without reading (QEMU's `null-co`): media in
files would cost both drivers the same time in QEMU. Under emulation only the ratio means anything. Exits with 1 where
it is below 1.5.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from iosonde.metrics.statistics import ratio
from iosonde.metrics.wording import ratio_estimate_text
from iosonde.results import ResultSet

LEAST_RATIO = 1.5
STUDY = """
name = "ratio"
title = "User-level driver and kernel"
question = "?"
repeats = {repeats}

[measurement]
access = "random"
block_size = "4KiB"
span = "64MiB"
ramp = "1s"
duration = "{seconds}s"

[[parts]]
[parts.factors]
backend = ["uring", "nvme_user"]
queue_depth = [1, 32]

[profiles.standard]
"""


def main() -> int:
    """Print the table; whether both ratios suffice is the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(STUDY.format(seconds=options.seconds, repeats=options.repeats))
        return 0
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    iops = in_machine(["--seconds", str(options.seconds), "--repeats", str(options.repeats)])
    ratios = []
    print("| queue depth | uring | nvme_user | ratio |\n|---|---|---|---|")
    for depth in ("1", "32"):
        kernel, user = (iops[f"{backend} {depth}"] for backend in ("uring", "nvme_user"))
        repeats = sorted(kernel)
        gain = ratio([user[each] for each in repeats], [kernel[each] for each in repeats], paired=True)
        ratios.append(gain.value)
        medians = (statistics.median(each.values()) for each in (kernel, user))
        listed = [depth, *(f"{each:,.0f}" for each in medians), ratio_estimate_text(gain, unit="")]
        print("| " + " | ".join(listed) + " |")
    return 0 if min(ratios) >= LEAST_RATIO else 1


def in_machine(arguments: list[str]) -> dict[str, dict[int, float]]:
    """IOPS by backend and queue depth, and by repeat, from a guest that runs this script."""
    from iosonde.execution.engine import find_engine
    from iosonde.lab.image import image
    from iosonde.lab.machine import Machine, Settings
    from iosonde.lab.qemu import Drives

    here = Path(__file__).resolve()
    for code in (here.parents[1] / "python", here.parent):  # Emulated, compiling all modules takes a minute.
        compileall.compile_dir(code, quiet=2)
    settings = Settings(drives=Drives(count=0, unlimited=1, keep_data=False), iommu=True)
    environment = {"PYTHONPATH": str(here.parents[1] / "python"), "IOSONDE_ENGINE": str(find_engine())}
    if sys.pycache_prefix:
        environment["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-B", str(here), "--inside", *arguments]
        with Machine(
            command, image=image(), results=Path(folder), settings=settings, environment=environment
        ) as machine:
            output = b"".join(data for _, data in machine.output())
        path = Path(folder, "set")
        if not path.exists():
            raise SystemExit(output.decode(errors="replace"))
        return iops_of(ResultSet.open(path))


def iops_of(result_set: ResultSet) -> dict[str, dict[int, float]]:
    """IOPS by backend and queue depth, and by repeat."""
    found: dict[str, dict[int, float]] = {}
    rows = result_set.metrics.filter(pl.col("metric") == "iops", pl.col("operation") == "read")
    values = dict(zip(rows["run_id"], rows["value"], strict=True))
    for record in result_set.records():
        if record.run_id not in values:
            raise SystemExit(f"run {record.run_id} failed: {record.failure}")
        name = f"{record.parameters['backend']} {record.parameters['queue_depth']}"
        found.setdefault(name, {})[record.repeat] = values[record.run_id]
    return found


def measure(study: str) -> None:
    """Inside the guest."""
    from iosonde.execution import execute
    from iosonde.features.nvme_driver import handover
    from iosonde.planning import expand, parse
    from iosonde.storage import open_target
    from iosonde.storage.block_layer.block_nodes import number_of
    from iosonde.storage.safety.consent import Consent

    for module in ("vfio_iommu_type1", "vfio-pci"):
        subprocess.run(["modprobe", module], check=True)
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    drive = Path(os.environ["IOSONDE_LAB_DEVICES"]).resolve()
    controller = handover.controller_of(number_of(drive))
    consent = Consent(destroy=(str(drive), controller.address), confirm=(controller.serial,))
    execute(expand(parse(study), open_target(str(drive))), "set", consent=consent)


if __name__ == "__main__":
    sys.exit(main())
