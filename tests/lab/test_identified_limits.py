"""The study `limits` against a real limiter: QEMU's throttle of a device of the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.execution import execute
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.lab import Limits, throttled_devices
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20
SETTINGS = {"span": "32MiB", "procedure.probe": "2s", "procedure.drain": "8s", "procedure.total": "90s"}

pytestmark = pytest.mark.usefixtures("host_devices")


@pytest.mark.parametrize(
    ("limits", "counts", "value"),
    [(Limits(iops=400), "operations", 400), (Limits(bandwidth=20_000_000), "bytes", 20_000_000)],
    ids=["iops", "bandwidth"],
)
def test_no_other_rule_is_named_for_a_throttled_device(
    limits: Limits, counts: str, value: float, tmp_path: Path
) -> None:
    """Other load on the machine may make the rate vary, so that nothing is named. No other rule may be."""
    with throttled_devices(limits, size_bytes=64 * MIB) as [device]:
        plan = expand(load("limits"), open_target(str(device.path)), profile="quick", settings=SETTINGS)
        results = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device.path),)))
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    found = conclusion.found
    if found.verdict != "limited":
        assert not found.rules
        return
    named = next(rule for rule in found.rules if rule.counts == counts)
    assert named.rate.value == pytest.approx(value, rel=0.03)
    assert named.unit_bytes is None
