"""The numbers of a seeded simulated result set stay the same: they are compared with those of an earlier version.

After an intended change: `python tests/metrics/test_same_numbers.py` writes the file again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from engines import real_engine
from polars.testing import assert_frame_equal
from recordings import SEEDED, measured, recorded

from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet

FILE = Path(__file__).with_name("same_numbers.txt")

METRICS = (
    *("iops", "bandwidth", "count", "bytes", "errors", "seconds", "mean_in_flight", "littles_law_ratio"),
    *(f"completion_latency_ns_{name}" for name in ("mean", "min", "p50", "p99", "max")),
)
"""Metrics that depend on the simulated drive alone, and not on the machine."""


def numbers(results: ResultSet) -> list[str]:
    """These metrics, one line each."""
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
    assert numbers(measured(SEEDED, "sim:p900", tmp_path / "results", seed=7)) == expected


def test_metrics_of_a_run_have_the_same_digits_alone_and_among_others(tmp_path: Path) -> None:
    """Procedures decide by runs one by one while they are measured, and by all of them when a result set is read."""
    results = recorded("seeded", tmp_path / "set")
    order, some = ("run_id", "stream", "operation", "metric"), [each.run_id for each in results.records()][::3]
    alone = pl.concat([run_metrics(results.only([run_id])) for run_id in some])
    among = run_metrics(results).filter(pl.col("run_id").is_in(some))
    assert_frame_equal(among.sort(order), alone.sort(order), check_exact=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        FILE.write_text("\n".join(numbers(measured(SEEDED, "sim:p900", Path(directory, "results"), seed=7))) + "\n")
