"""The study `limits` against a real limiter: QEMU's throttle of a device of the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.execution import Observer, execute
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.plan import Run
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.results.schema import Record
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
    assert found.limiter is None or found.limiter.style != "batched", "QEMU passes I/Os one by one"


class ChangeAfter(Observer):
    """Changes the limits of a device after a stage of the study."""

    def __init__(self, stage: str, device: ThrottledDevice, limits: Limits) -> None:
        self.stage, self.device, self.limits = stage, device, limits

    def run_ended(self, run: Run, record: Record) -> None:
        if str(run.levels["stage"]).endswith(self.stage):
            self.device.change(self.limits)


@pytest.mark.parametrize("stage", ["drain-3", "depth"])
def test_a_limit_that_is_lowered_during_the_study_is_a_change(stage: str, tmp_path: Path) -> None:
    """Half the rate after the drain looks as if larger blocks counted twice."""
    with throttled_devices(Limits(iops=400), size_bytes=64 * MIB) as [device]:
        plan = expand(load("limits"), open_target(str(device.path)), profile="quick", settings=SETTINGS)
        consent = Consent(destroy=(str(device.path),))
        results = execute(
            plan, tmp_path / "set", consent=consent, observer=ChangeAfter(stage, device, Limits(iops=200))
        )
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    found = conclusion.found
    for rule in found.rules:
        assert (rule.counts, rule.unit_bytes) == ("operations", None)
        assert rule.rate.value == pytest.approx(400, rel=0.03), "not the average"
    if found.change:
        assert found.change.before == pytest.approx(400, rel=0.03)
        assert found.change.after == pytest.approx(200, rel=0.03)
    else:  # The machine was too busy for a constant rate.
        assert found.verdict != "limited"
