"""Result sets of engines that called the ramp `warmup` are read as `ramp`."""

from __future__ import annotations

from pathlib import Path

from samples import Samples, result_set


def test_warmup_of_older_records_is_the_ramp(tmp_path: Path) -> None:
    older = result_set(tmp_path / "older", [[Samples(phase="warmup", completion_ns=[1]), Samples(completion_ns=[2])]])
    for table in ("histograms", "intervals"):
        phases = older.sql(f"SELECT DISTINCT phase FROM {table}")["phase"].to_list()
        assert set(phases) <= {"ramp", "measure"}, table
    assert older.sql("SELECT count(*) AS n FROM histograms WHERE phase = 'ramp'")["n"].item() > 0
