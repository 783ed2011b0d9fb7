"""Studies of limits and requirements on real devices, which QEMU limits.

Other load on the machine may make the rate vary, so that nothing is decided; the records then have to show that load.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Iosonde

from iosonde.execution.session import execute
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.lab import Limits, throttled_devices
from iosonde.planning import expand, load
from iosonde.planning.procedure import conclusions
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

pytestmark = pytest.mark.usefixtures("host_devices")


def test_a_throttled_device_is_recognised(tmp_path: Path) -> None:
    """Nothing else may be concluded of it unless the machine was busy."""
    procedure = {"probe": "2s", "drain": "4s", "total": "60s", "largest": "16KiB"}
    settings = {"span": "16MiB"} | {f"procedure.{name}": value for name, value in procedure.items()}
    with throttled_devices(Limits(iops=400), size_bytes=64 << 20) as [device]:
        plan = expand(load("limits"), open_target(str(device.path)), profile="quick", settings=settings)
        results = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device.path),)))
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    found = conclusion.found
    assert found.change is None
    if found.verdict != "limited":
        assert (found.verdict, found.rules) == ("undecided", ())
        assert any(series.is_disturbed for _, series in conclusion.stages), found.reason
        return
    rule = found.rules[0]
    assert (rule.counts, rule.unit_bytes) == ("operations", None)
    assert rule.rate.value == pytest.approx(400, rel=0.03)


IOPS = 80
"""A write of 2,300 bytes and its fdatasync take 12.5 ms or more on such a device."""


def test_a_device_that_is_too_slow_for_etcd_fails(iosonde: Iosonde, tmp_path: Path) -> None:
    """Other load on the machine can only make the run undecided."""
    with throttled_devices(Limits(iops=IOPS), count=1, size_bytes=512 << 20) as [device]:
        target = ("--target", str(device.path), "--destroy", str(device.path))
        done = iosonde("qualify", "etcd", *target, "-o", tmp_path / "set", "--json", "-q")
    [found] = json.loads(done.stdout)
    [record] = ResultSet.open(tmp_path / "set").records()
    assert record.verdict
    by_name = {each["requirement"]["name"]: each for each in found["results"]}
    p99, rate = by_name["p99 of fdatasync"], by_name["writes/s"]
    assert p99["value"] > 10e6
    assert p99["margin"] < 0
    assert rate["value"] <= IOPS
    if record.verdict.kind != "device-limited" or "may have waited for a CPU" in p99["reason"]:
        assert (done.returncode, p99["outcome"]) == (3, "undecided")
    else:
        assert (done.returncode, p99["outcome"]) == (1, "fail")
