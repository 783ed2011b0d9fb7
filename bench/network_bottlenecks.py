"""Share of injected bottlenecks of NFS that runs name right, in User Mode Linux on this machine (root).

    python bench/network_bottlenecks.py [--only "rate 4"] [--repeats 1] [--output DIRECTORY]

Conditions are those of `tests/lab/network_conditions.py`. Each is one run: what was injected, what the verdict names,
and its last reason. Without other load a repeat takes about ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from itertools import groupby
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / each) for each in ("tests", "tests/lab"))

from network_conditions import INJECTED, Condition, named
from user_mode_linux import run_script

from iosonde.lab.image import image
from iosonde.results import ResultSet
from iosonde.results.schema import Record


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="conditions whose name starts with this")
    options.add_argument("--repeats", type=int, default=1)
    options.add_argument("--output", type=Path)
    given = options.parse_args()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("-20")  # Its delays are those of client, network and server alike.
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(given.repeats):
            chosen = [each for each in INJECTED if each.name.startswith(given.only)]
            for _, group in groupby(chosen, key=lambda each: each.bottleneck):
                conditions = list(group)
                place = (given.output or Path(scratch)) / f"{repeat}-{conditions[0].name}".replace(" ", "-")
                tally.update(measure(conditions, place.absolute(), Path(scratch)))
    print(", ".join(f"{tally[each]} {each}" for each in ("right", "not separable", "wrong")))


def measure(conditions: list[Condition], place: Path, scratch: Path) -> list[str]:
    """Run conditions in one start of the machine; print what each run names, and return how right that is."""
    place.mkdir(parents=True)
    packages = Path(tempfile.mkdtemp(dir=scratch)) / "packages"
    names = [each.name for each in conditions]
    run_script("network_guest.py", *names, image=image(), place=place, packages=packages)
    return [judged(each, place / each.name.replace(" ", "-")) for each in conditions]


def judged(condition: Condition, result_set: Path) -> str:
    [record] = ResultSet.open(result_set).records()
    found = named(record)
    right = found == condition.bottleneck or (found == "server" and condition.bottleneck.startswith("server"))
    answer = "right" if right else found if found == "not separable" else "wrong"
    print(f"{answer:14} {condition.name:24} {found:14} {reason(record)}", flush=True)
    return answer


def reason(record: Record) -> str:
    return record.verdict.because[-1] if record.verdict else ""


if __name__ == "__main__":
    main()
