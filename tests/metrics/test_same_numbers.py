"""The numbers of a seeded simulated result set stay the same: they are compared with those of an earlier version.

After an intended change: `python tests/metrics/test_same_numbers.py` writes the file again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.storage import open_target

FILE = Path(__file__).with_name("same_numbers.txt")

STUDY = """
name = "seeded"
title = "Seeded"
question = "?"
repeats = 2

[measurement]
span = "64MiB"
duration = "50ms"
interval = "100ms"
ramp = "10ms"

[[parts]]
factors.read_fraction = [0.0, 0.7, 1.0]
factors.queue_depth = [1, 16]

[profiles.standard]
"""


METRICS = (
    *("iops", "bandwidth", "count", "bytes", "errors", "seconds", "mean_in_flight", "littles_law_ratio"),
    *(f"completion_latency_ns_{name}" for name in ("mean", "min", "p50", "p99", "max")),
)
"""Metrics that depend on the simulated drive alone, and not on the machine."""


def numbers(directory: Path) -> list[str]:
    """These metrics, one line each."""
    results = execute(expand(parse(STUDY), open_target("sim:p900"), seed=7), directory)
    rows = run_metrics(results).filter(pl.col("metric").is_in(METRICS))
    chosen = rows.select("run_id", "case_id", "operation", "metric", "value")
    return sorted(f"{' '.join(map(str, row[:-1]))} {row[-1]:.12g}" for row in chosen.iter_rows())


@pytest.mark.engine
def test_the_numbers_of_a_seeded_simulated_study_are_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    expected = FILE.read_text().splitlines()
    assert len(expected) > 200
    assert numbers(tmp_path / "results") == expected


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        FILE.write_text("\n".join(numbers(Path(directory, "results"))) + "\n")
