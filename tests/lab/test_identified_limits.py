"""Studies of limits and requirements on real devices, which QEMU limits or fills from an origin on their first reads.

Other load on the machine may make the rate vary, so that nothing is decided; the records then have to show that load.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde

from iosonde.execution import execute
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent
from iosonde.storage.setups.loop_devices import LoopDevice

MIB = 1 << 20

pytestmark = pytest.mark.usefixtures("host_devices")


def concluded(study: str, directory: Path, *devices: Path, span: str = "16MiB", **settings: str) -> Any:
    names = tuple(map(str, devices))
    given = {"span": span} | {f"procedure.{name}": value for name, value in settings.items()}
    plan = expand(load(study), open_target(",".join(names)), profile="quick", settings=given)
    [(_, conclusion)] = conclusions(execute(plan, directory / "set", consent=Consent(destroy=names)))
    return conclusion


def test_a_throttled_device_is_recognised(tmp_path: Path) -> None:
    """Nothing else may be concluded of it unless the machine was busy."""
    with throttled_devices(Limits(iops=400), size_bytes=64 * MIB) as [device]:
        conclusion = concluded("limits", tmp_path, device.path, probe="2s", drain="4s", total="60s", largest="16KiB")
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


@contextmanager
def exported(device: ThrottledDevice, node: str) -> Iterator[Path]:
    """A further block device of the daemon of a lab device."""
    point = f"/mnt/iosonde-lab-{node}"
    file = device._seen_by_daemon(point)
    file.write_bytes(b"")
    export = {"type": "fuse", "id": node, "mountpoint": point, "writable": True}
    device._command("block-export-add", **export, **{"node-name": node})
    # As `ThrottledDevice` does for the first one: with two writes in flight, the daemon corrupts data.
    connection = os.minor(file.stat().st_dev)
    device._seen_by_daemon(f"/sys/fs/fuse/connections/{connection}/max_background").write_text("1")
    loop = LoopDevice(file, sector_bytes=512)
    try:
        yield loop.path
    finally:
        loop.close()


@contextmanager
def beside(device: ThrottledDevice) -> Iterator[Path]:
    """A further device of the same throttle group."""
    image = device._seen_by_daemon("/mnt/second")
    image.write_bytes(b"")
    os.truncate(image, device.size_bytes)
    names = {"node-name": "second", "throttle-group": "limits"}
    file = {"driver": "file", "filename": "/mnt/second"}
    device._command("blockdev-add", driver="throttle", file=file, **names)
    with exported(device, "second") as path:
        yield path


def test_devices_of_one_throttle_group_are_not_called_separate(tmp_path: Path) -> None:
    with throttled_devices(Limits(iops=300), size_bytes=64 * MIB) as [device], beside(device) as second:
        conclusion = concluded("shared-limits", tmp_path, device.path, second, probe="2s", drain="4s")
    assert isinstance(conclusion, SharingConclusion)
    found = conclusion.found
    assert found.verdict != "separate"
    if found.verdict == "shared":
        assert found.sum
        assert found.sum.value == pytest.approx(300, rel=0.03)
        assert not found.is_further_limit


DELAY_S = 0.01


@contextmanager
def loaded_on_first_read(device: ThrottledDevice, socket: Path) -> Iterator[Path]:
    """A device that copies each block on its first read from an origin over NBD, of which each read takes 10 ms."""
    size, image = str(device.size_bytes), device._seen_by_daemon("/mnt/overlay")
    origin_of = ["--unix", str(socket), "--filter=delay", "memory", size, f"rdelay={1000 * DELAY_S:.0f}ms"]
    with subprocess.Popen(["nbdkit", "--foreground", "--exit-with-parent", *origin_of]) as origin:
        try:
            while not socket.exists():
                assert origin.poll() is None, "nbdkit did not start"
                time.sleep(0.01)
            subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, size], check=True)
            server = {"type": "unix", "path": str(socket)}
            device._command("blockdev-add", driver="nbd", server=server, **{"node-name": "origin", "read-only": True})
            overlay = {"driver": "qcow2", "file": {"driver": "file", "filename": "/mnt/overlay"}, "backing": "origin"}
            device._command("blockdev-add", driver="copy-on-read", file=overlay, **{"node-name": "second"})
            with exported(device, "second") as path:
                yield path
        finally:
            origin.kill()


@pytest.mark.needs("nbdkit", "qemu-img")
def test_the_first_read_of_each_region_is_compared_with_later_ones(tmp_path: Path) -> None:
    """The check of the device for contents may have read one region already, or a part of it."""
    with (
        throttled_devices(Limits(), size_bytes=64 * MIB) as [device],
        loaded_on_first_read(device, tmp_path / "origin.socket") as path,
    ):
        conclusion = concluded("limits", tmp_path, path, span="32MiB", probe="2s", drain="4s", total="60s")
    touched = conclusion.found.first_touch
    assert touched
    assert len(touched.regions) == 3
    assert sum(each.latencies_s[0] > DELAY_S for each in touched.regions) >= 2
    if touched.verdict == "none":  # Later reads varied as much.
        assert touched.bound_s > DELAY_S
        assert any(series.is_disturbed for _, series in conclusion.stages)


IOPS = 80
"""A write of 2,300 bytes and its fdatasync take 12.5 ms or more on such a device."""


def test_a_device_that_is_too_slow_for_etcd_fails(iosonde: Iosonde, tmp_path: Path) -> None:
    """Other load on the machine can only make the run undecided."""
    with throttled_devices(Limits(iops=IOPS), count=1, size_bytes=512 * MIB) as [device]:
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
    if record.verdict.kind != "device-limited":
        assert (done.returncode, p99["outcome"]) == (2, "undecided")
    else:
        assert (done.returncode, p99["outcome"], record.end_reason) == (1, "fail", "decided")
