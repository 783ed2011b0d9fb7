"""Loads of weights on devices of exactly known performance."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from study_texts import study_text

from iosonde.execution.session import execute
from iosonde.lab import Limits, throttled_devices
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

pytestmark = pytest.mark.usefixtures("host_devices")


@pytest.mark.parametrize(
    ("limits", "settings", "least_seconds"),
    [
        # 16.06 MB at 5 MB/s. A burst is what the limit allows in 0.1 s, and the last request, of up to 1,280 KiB, does not
        # wait for its own bytes.
        (Limits(bandwidth=5_000_000), {"scale": "1e-3"}, (16.06 - 0.5 - 1.31) / 5),
        # 1.6 MB are 392 pages at 100 a second, read one at a time; the burst is ten of them.
        (Limits(iops=100), {"scale": "1e-4"}, (392 - 10 - 1) / 100),
    ],
    ids=["bandwidth", "iops"],
)
def test_no_strategy_is_faster_than_a_throttled_device(
    tmp_path: Path, limits: Limits, settings: dict[str, str], least_seconds: float
) -> None:
    """A limit is a lower bound of the time, whatever else the machine does."""
    levels = ["mmap-random"] if limits.iops else ["mmap", "read", "direct"]
    study = study_text("ai_weights", 'file_system = "ext4"', f"factors.strategy = {json.dumps(levels)}")
    with throttled_devices(limits, size_bytes=256 << 20) as [device]:
        plan = expand(parse(study), open_target(str(device.path)), settings=settings)
        results = execute(plan, tmp_path / "results", consent=Consent(destroy=(str(device.path),)))
    assert [record.failure for record in results.records()] == [None] * len(levels)
    found = run_metrics(results).filter(pl.col("metric") == "weights_load_seconds", pl.col("operation") == "all")
    assert found.height == len(levels)
    assert found["value"].min() >= least_seconds
