"""First-touch penalty of a volume that loads its blocks from a slow origin when they are read first, as of a snapshot.

An overlay of QEMU (qcow2) copies each block on its first read from an origin over NBD, of which each read takes 10 ms.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from second_device import exported

from iosonde.execution import execute
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.planning import expand, load
from iosonde.procedure.observations import conclusions
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20
DELAY_S = 0.01
SETTINGS = {"span": "32MiB", "procedure.probe": "2s", "procedure.drain": "4s", "procedure.total": "60s"}

pytestmark = [pytest.mark.usefixtures("host_devices"), pytest.mark.needs("nbdkit", "qemu-img")]


@contextmanager
def loaded_on_first_read(device: ThrottledDevice, socket: Path) -> Iterator[Path]:
    """A second device of the daemon, of the same size, without any block of its own yet."""
    size, image = str(device.size_bytes), device._seen_by_daemon("/mnt/overlay")
    delay = f"rdelay={1000 * DELAY_S:.0f}ms"
    command = [
        "nbdkit",
        "--foreground",
        "--exit-with-parent",
        "--unix",
        socket,
        "--filter=delay",
        "memory",
        size,
        delay,
    ]
    with subprocess.Popen(command) as origin:
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


def test_the_first_read_of_each_region_is_compared_with_later_ones(tmp_path: Path) -> None:
    """The check of the device for contents may have read one region already, or a part of it."""
    with (
        throttled_devices(Limits(), size_bytes=64 * MIB) as [device],
        loaded_on_first_read(device, tmp_path / "origin.socket") as path,
    ):
        plan = expand(load("limits"), open_target(str(path)), profile="quick", settings=SETTINGS)
        results = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(path),)))
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, LimitsConclusion)
    touched = conclusion.found.first_touch
    assert touched and len(touched.regions) == 3
    assert sum(each.latencies_s[0] > DELAY_S for each in touched.regions) >= 2
    if touched.verdict == "none":  # Later reads varied as much.
        assert touched.bound_s > DELAY_S
        assert any(series.is_disturbed for _, series in conclusion.stages)
        return
    assert touched.verdict in ("penalty", "undecided"), touched.reason
    for each in touched.regions:
        if each.latencies_s[0] > DELAY_S:  # Most of its blocks had not been read.
            assert each.high_s > DELAY_S or not each.is_slower
