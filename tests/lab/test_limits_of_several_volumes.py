"""The study `shared-limits` on devices of the lab: nodes of one throttle group of QEMU, and of one group each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from second_device import exported

from iosonde.execution import execute
from iosonde.features.rate_limits.sharing import Sharing
from iosonde.features.rate_limits.sharing_procedure import SharingConclusion
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20
IOPS = 300
SETTINGS = {"span": "16MiB", "procedure.probe": "2s", "procedure.drain": "4s"}

pytestmark = pytest.mark.usefixtures("host_devices")


@contextmanager
def beside(device: ThrottledDevice, name: str) -> Iterator[Path]:
    """A further device of the same daemon and throttle group."""
    image = device._seen_by_daemon(f"/mnt/{name}")
    image.write_bytes(b"")
    with image.open("r+b") as opened:
        opened.truncate(device.size_bytes)
    device._command(
        "blockdev-add",
        driver="throttle",
        **{"node-name": name, "throttle-group": "limits"},
        file={"driver": "file", "filename": f"/mnt/{name}"},
    )
    with exported(device, name) as path:
        yield path


def compared(directory: Path, *devices: Path) -> Sharing:
    names = tuple(map(str, devices))
    plan = expand(load("shared-limits"), open_target(",".join(names)), profile="quick", settings=SETTINGS)
    results = execute(plan, directory / "set", consent=Consent(destroy=names))
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, SharingConclusion)
    return conclusion.found


def test_devices_of_one_throttle_group_are_not_called_separate(tmp_path: Path) -> None:
    """Other load on the machine may make the rate vary, so that nothing is decided."""
    with (
        throttled_devices(Limits(iops=IOPS), size_bytes=64 * MIB) as [device],
        beside(device, "second") as second,
        beside(device, "third") as third,
    ):
        found = compared(tmp_path, device.path, second, third)
    assert found.verdict != "separate"
    if found.verdict == "shared":
        assert found.sum and found.sum.value == pytest.approx(IOPS, rel=0.03)
        assert not found.is_further_limit


def test_devices_of_two_throttle_groups_are_not_called_shared(tmp_path: Path) -> None:
    with ExitStack() as stack:
        devices = stack.enter_context(throttled_devices(Limits(iops=IOPS), count=2, size_bytes=64 * MIB))
        found = compared(tmp_path, *(each.path for each in devices))
    assert found.verdict != "shared"
    if found.verdict == "separate":
        assert found.sum and found.sum.value == pytest.approx(2 * IOPS, rel=0.06)
