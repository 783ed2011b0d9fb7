"""A device of known speed whose backing is not visible is device-limited, not served from a cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.lab import Limits, throttled_devices
from iosonde.planning import expand
from iosonde.storage import open_target
from iosonde.storage.consent import Consent
from iosonde.study.model import Study

pytestmark = pytest.mark.usefixtures("host_devices")


def test_a_throttled_lab_device_is_device_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    study = Study.model_validate(
        {
            "name": "one",
            "title": "One case",
            "question": "What limits it?",
            "repeats": 1,
            "measurement": {
                "span": "96MiB",
                "layout": "never",
                "queue_depth": 4,
                "ramp": "0s",
                "duration": "2s",
                "interval": "500ms",
            },
            "parts": [{"name": "main"}],
            "profiles": {"standard": {}},
        }
    )
    with throttled_devices(Limits(iops=500), size_bytes=128 << 20) as [device]:
        target = str(device.path)
        consent = Consent(destroy=(target,))
        (record,) = execute(expand(study, open_target(target)), tmp_path / "set", consent=consent).records()
    assert record.verdict, record.failure
    disturbed = {"cpu_contention", "steal_time", "core_saturated", "late_counters", "engine_stalled"}
    codes = {warning.code for warning in record.warnings}
    assert not codes & {"cache_below", "cache_unknown", "reads_from_memory"}
    assert record.verdict.evidence["below_cache_share"] is None
    assert record.verdict.kind == "device-limited" or codes & disturbed, (record.verdict, codes)
