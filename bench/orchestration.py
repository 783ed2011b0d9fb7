"""Overhead of iosonde for each run, beyond the measured time.

    python bench/orchestration.py [--runs 50] [--duration-ms 200] [--target null:1MiB]

Carries out a study of equal short runs and prints, over its runs, the time from the start of one run to the start of
the next minus what was asked to be measured (ramp and duration), and where it goes: in the engine (start, open, drain,
end) or in Python (describe the target, write and sync the record).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from iosonde.execution import execute
from iosonde.plan import Case, Run
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.study.model import Part, Profile, Study


class Stopwatch:
    """Notes when each run starts, and how long its engine lived."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.engines_s: list[float] = []

    def run_started(self, run: Run, case: Case) -> None:
        """Note the start."""
        self.starts.append(time.monotonic())

    def event(self, run: Run, event: dict[str, Any]) -> None:
        """Events are not looked at."""

    def run_ended(self, run: Run, record: Record) -> None:
        """Note how long the engine lived."""
        assert record.outcome == "complete", record.failure
        self.engines_s.append(record.child["wall_ns"] / 1e9)

    def note(self, text: str) -> None:
        """Notes are not looked at."""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--runs", type=int, default=50)
    arguments.add_argument("--duration-ms", type=int, default=200)
    arguments.add_argument("--target", default="null:1MiB")
    chosen = arguments.parse_args()
    watch = Stopwatch()
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        plan = expand(study(chosen.runs, chosen.duration_ms), open_target(chosen.target))
        execute(plan, Path(scratch) / "set", observer=watch)
        end = time.monotonic()
    measured_s = chosen.duration_ms / 1e3
    # The first run may write the file.
    whole = [later - start for start, later in zip(watch.starts, [*watch.starts[1:], end], strict=True)][1:-1]
    engine = watch.engines_s[1:-1]
    show("added to a run", [each - measured_s for each in whole])
    show("  in the engine", [each - measured_s for each in engine])
    show("  in Python", [each - inside for each, inside in zip(whole, engine, strict=True)])


def study(runs: int, duration_ms: int) -> Study:
    return Study(
        name="orchestration",
        title="Equal short runs",
        question="What does a run cost beside its measurement?",
        repeats=runs,
        measurement={
            "span": "1MiB",
            "ramp": "0s",
            "duration": f"{duration_ms}ms",
            "interval": "100ms",
            "io_mode": "buffered",
        },
        parts=[Part()],
        profiles={"standard": Profile()},
    )


def show(name: str, seconds: list[float]) -> None:
    milliseconds = sorted(1e3 * each for each in seconds)
    p95 = milliseconds[int(0.95 * (len(milliseconds) - 1))]
    print(f"{name:16} median {statistics.median(milliseconds):6.1f} ms   95 % {p95:6.1f} ms   n {len(milliseconds)}")


if __name__ == "__main__":
    main()
