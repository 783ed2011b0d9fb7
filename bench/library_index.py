"""Time for indexing many result sets, and detection of changes planted in them.

    python bench/library_index.py [DIRECTORY] [--sessions 1000]

Fabricates result sets (`sessions.py`), unless DIRECTORY has some already, and prints wall and CPU time of `iosonde
library` and `iosonde history` with the size of their pages, and the changes that were found: on the first of four
drives every series falls by 5 % at half time, and nothing else changes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sessions import fabricate, nights


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.directory or Path(scratch) / "sets"
        if not root.exists():
            print(fabricate(root, nights(options.sessions, seed=1)), "result sets fabricated")
        for subcommand in ("library", "history"):
            page = Path(scratch) / f"{subcommand}.html"
            measure(subcommand, root, page)
        found = run_iosonde("history", str(root), "--json")
        changes = [
            (track["devices"][0]["model"], change["case_id"], change["metric"], round(100 * change["change"], 1))
            for track in json.loads(found)["tracks"]
            for change in track["changes"]
        ]
        print(f"{len(changes)} changes:", *changes, sep="\n  ")


def measure(subcommand: str, root: Path, page: Path) -> None:
    """Run a subcommand and print what it took."""
    before, begin = _cpu_seconds(), time.monotonic()
    run_iosonde(subcommand, str(root), "--output", str(page))
    wall, cpu = time.monotonic() - begin, _cpu_seconds() - before
    size = page.stat().st_size / 1e6
    print(
        f"{subcommand}: {wall:.1f} s, {cpu:.1f} s of CPU on {len(os.sched_getaffinity(0))} CPUs, page {size:.1f} MB, "
        f"load average {os.getloadavg()[0]:.1f}"
    )


def run_iosonde(*arguments: str) -> str:
    """Return what iosonde prints."""
    done = subprocess.run([sys.executable, "-m", "iosonde", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
