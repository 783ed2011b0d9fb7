"""Time of a fleet of simulated drives: plan, two runs of 200 ms of virtual time for each drive, and report.

python bench/fleet_scale.py [--targets 500] [--parallel 1]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fleet_samples import STUDY


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        study, file, directory = (Path(scratch) / name for name in ("tiny.toml", "fleet.toml", "results"))
        study.write_text(STUDY)
        tables = (f'[[targets]]\nname = "slot-{slot}"\ntarget = "sim:p900"\n' for slot in range(options.targets))
        file.write_text("".join(tables))
        fleet = ("fleet", str(study), "--targets", str(file))
        measure("plan", options.targets, *fleet, "--plan")
        measure("all", options.targets, *fleet, "--parallel", str(options.parallel), "--output", str(directory))
        measure("report", options.targets, "report", str(directory))


def measure(name: str, targets: int, *command: str) -> None:
    """Run iosonde and print time, CPU time and the largest resident memory of any process so far."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "iosonde", *command], capture_output=True, check=False)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{name:7} {wall:6.1f} s, {cpu:6.1f} s of CPU, {cpu / targets:.3f} s of CPU for each of {targets} targets, "
        f"at most {after.ru_maxrss / 1024:.0f} MiB, load average {os.getloadavg()[0]:.1f}",
        done.stderr.decode()[-300:] if done.returncode else "",
        flush=True,
    )


if __name__ == "__main__":
    main()
