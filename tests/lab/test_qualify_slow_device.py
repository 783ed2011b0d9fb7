"""`iosonde qualify` on a device whose rate is limited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Iosonde

from iosonde.lab import Limits, throttled_devices
from iosonde.results import ResultSet

pytestmark = pytest.mark.usefixtures("host_devices")

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
    assert p99["value"] > 10e6 and p99["margin"] < 0 and rate["value"] <= IOPS
    if record.verdict.kind != "device-limited":
        assert (done.returncode, p99["outcome"]) == (2, "undecided")
        return
    assert (done.returncode, p99["outcome"], record.end_reason) == (1, "fail", "decided")
    assert "median flush" in p99["reason"]
