"""Checkpoints on a device of exactly known bandwidth."""

from __future__ import annotations

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

STUDY = study_text(
    "ai_checkpoint",
    'file_system = "ext4"\nscale = 2e-4\npause = "0s"\nrestores = 1\ncheckpoint_count = 2',
    'factors.mode = ["buffered", "direct", "background"]',
)
BANDWIDTH = 20_000_000


def test_no_checkpoint_and_no_restore_is_faster_than_a_throttled_device(tmp_path: Path) -> None:
    """A limit is a lower bound of the time, whatever else the machine does: 22.5 MB at 20 MB/s, and a burst of 0.1 s."""
    with throttled_devices(Limits(bandwidth=BANDWIDTH), size_bytes=256 << 20) as [device]:
        plan = expand(parse(STUDY), open_target(str(device.path)))
        results = execute(plan, tmp_path / "results", consent=Consent(destroy=(str(device.path),)))
    assert [record.failure for record in results.records()] == [None] * 3
    found = run_metrics(results).filter(pl.col("operation") == "all")
    for name in ("checkpoint_durable_seconds", "checkpoint_restore_seconds"):
        times = found.filter(pl.col("metric") == name)["value"]
        assert len(times) == 3
        assert min(times) >= 112_425_623_552 * 2e-4 / BANDWIDTH - 0.2
