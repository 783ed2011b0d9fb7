"""The study `limits` against a real limiter: QEMU's throttle of a device of the lab.

Other load on the machine may make the rate vary, so that nothing is decided; the records then have to show that load.
"""

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


class Quiet(Observer):
    """Reports nothing."""


def identified(
    device: ThrottledDevice, directory: Path, observer: Observer | None = None, **settings: str
) -> LimitsConclusion:
    given = SETTINGS | {f"procedure.{name}": value for name, value in settings.items()}
    plan = expand(load("limits"), open_target(str(device.path)), profile="quick", settings=given)
    consent = Consent(destroy=(str(device.path),))
    results = execute(plan, directory / "set", consent=consent, observer=observer or Quiet())
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    return conclusion


def is_decided(conclusion: LimitsConclusion) -> bool:
    """True if a rule was named; nothing else may be concluded of a limited device unless the machine was busy."""
    found = conclusion.found
    assert found.change is None
    if found.verdict == "limited":
        return True
    assert found.verdict == "undecided" and not found.rules, found.reason
    assert any(series.is_disturbed for _, series in conclusion.stages), found.reason
    return False


@pytest.mark.parametrize(
    ("limits", "counts", "value"),
    [(Limits(iops=400), "operations", 400), (Limits(bandwidth=20_000_000), "bytes", 20_000_000)],
    ids=["iops", "bandwidth"],
)
def test_a_throttled_device_is_recognised(limits: Limits, counts: str, value: float, tmp_path: Path) -> None:
    with throttled_devices(limits, size_bytes=64 * MIB) as [device]:
        conclusion = identified(device, tmp_path)
    if is_decided(conclusion):
        named = next(rule for rule in conclusion.found.rules if rule.counts == counts)
        assert named.rate.value == pytest.approx(value, rel=0.03)
        assert named.unit_bytes is None
        limiter = conclusion.found.limiter
        assert limiter is None or limiter.style != "batched", "QEMU passes I/Os one by one"


def test_burst_credits_of_a_throttled_device_are_recognised(tmp_path: Path) -> None:
    """900 IOPS for 3 s from 1,800 credits, which come back in 6 s; also between stages, which start late on a busy machine."""
    burst = {"iops-total": 300, "iops-total-max": 900, "iops-total-max-length": 2}
    with throttled_devices(Limits(iops=300), size_bytes=64 * MIB) as [device]:
        device._command("qom-set", path="/objects/limits", property="limits", value=burst)
        conclusion = identified(device, tmp_path, drain="10s", rest="10s", total="150s", largest="64KiB")
    if is_decided(conclusion):
        [rule] = conclusion.found.rules
        assert (rule.counts, rule.unit_bytes) == ("operations", None)
        assert rule.rate.value == pytest.approx(300, rel=0.03)
        if rule.bucket and rule.bucket.is_confirmed:
            assert rule.bucket.value == pytest.approx(1800, rel=0.05)
        if rule.refill:
            assert rule.refill.value == pytest.approx(300, rel=0.05)


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
        conclusion = identified(device, tmp_path, ChangeAfter(stage, device, Limits(iops=200)))
    found = conclusion.found
    for rule in found.rules:
        assert (rule.counts, rule.unit_bytes) == ("operations", None)
        assert rule.rate.value == pytest.approx(400, rel=0.03), "not the average"
    if found.change:
        assert found.change.before == pytest.approx(400, rel=0.03)
        assert found.change.after == pytest.approx(200, rel=0.03)
    else:  # The machine was too busy for a constant rate.
        assert found.verdict != "limited" or any(series.is_disturbed for _, series in conclusion.stages)
