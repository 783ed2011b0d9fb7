"""The device that was checked is the device that is written: the engine compares what it opened."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import stores
from engines import real_engine
from plans import null_spec

from iosonde.storage.targets.loop_devices import LoopDevice

BYTES = 4 << 20

pytestmark = pytest.mark.needs("loop devices", "engine")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[LoopDevice]]:
    with ExitStack() as attached:
        for name in ("named", "victim"):
            (tmp_path / name).write_bytes(bytes(BYTES))
        yield [attached.enter_context(closing(LoopDevice(tmp_path / name))) for name in ("named", "victim")]


def block_run(path: Path) -> dict[str, Any]:
    target = {"kind": "device", "path": str(path), "size_bytes": BYTES}
    spec = null_spec("test", target=target, backend={"kind": "sync"}, layout="always", duration_ns=None)
    spec["workload"]["streams"][0] |= {
        **{"queue_depth": 1, "access": {"kind": "sequential"}, "mix": {"read_fraction": 0.0, "trim_fraction": 0.0}},
        **{"block_sizes": [{"bytes": 65536, "weight": 1.0}], "limit_bytes": BYTES},
        "span": {"offset_bytes": 0, "bytes": BYTES, "sharing": "shared"},
    }
    return spec


def store_run(path: Path) -> dict[str, Any]:
    target = {"kind": "device", "path": str(path), "size_bytes": BYTES}
    return stores.spec("lmdb", target, stores.stream("reader", "read", choice=stores.EACH_ONCE, limit_operations=100))


RUNS = pytest.mark.parametrize("run", [block_run, store_run])


def carry_out(spec: dict[str, Any], *identities: str) -> dict[str, Any]:
    arguments = [argument for identity in identities for argument in ("--identity", identity)]
    done = subprocess.run(
        [real_engine(), *arguments], input=json.dumps(spec), capture_output=True, text=True, timeout=300, check=False
    )
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def identity(path: Path, device: LoopDevice) -> str:
    number = device.path.stat().st_rdev
    return f"{path}={os.major(number)}:{os.minor(number)}"


@RUNS
@pytest.mark.parametrize("kind", ["link", "node"])
def test_a_name_that_now_leads_to_another_device_is_refused(
    devices: list[LoopDevice], tmp_path: Path, run: Any, kind: str
) -> None:
    """As people name devices that keep their name when they change their place: `/dev/disk/by-id/...`."""
    named, victim = devices
    name = tmp_path / kind

    def lead_to(device: LoopDevice) -> None:
        name.unlink(missing_ok=True)
        if kind == "link":
            name.symlink_to(device.path)
        else:
            os.mknod(name, stat.S_IFBLK | 0o600, device.path.stat().st_rdev)

    lead_to(named)
    checked = identity(name, named)
    assert carry_out(run(name), checked)["event"] == "result"
    lead_to(victim)
    last = carry_out(run(name), checked)
    assert last["code"] == "wrong_target", last
    assert "is not the target that was checked: it is block device" in last["message"]
    assert victim.image.read_bytes() == bytes(BYTES)
