"""The device that was checked is the device that is written: the engine compares what it opened."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stores
from engines import real_engine

from iosonde import protocol
from iosonde.storage.setups.loop_devices import LoopDevice

BYTES = 4 << 20

pytestmark = pytest.mark.needs("loop devices", "engine")


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[LoopDevice]]:
    """Two devices full of zeros."""
    attached = []
    try:
        for name in ("named", "victim"):
            image = tmp_path / name
            image.write_bytes(bytes(BYTES))
            attached.append(LoopDevice(image))
        yield attached
    finally:
        for device in attached:
            device.close()


def block_run(path: Path) -> dict[str, Any]:
    """Writes the whole device."""
    stream = {
        "name": "main",
        "jobs": 1,
        "queue_depth": 1,
        "access": {"kind": "sequential"},
        "mix": {"read_fraction": 0.0, "trim_fraction": 0.0},
        "block_sizes": [{"bytes": 65536, "weight": 1.0}],
        "span": {"offset_bytes": 0, "bytes": BYTES, "sharing": "shared"},
        "io_mode": "direct",
        "durability": {"kind": "none"},
        "arrival": {"kind": "closed"},
        "payload": {"kind": "random"},
        "limit_bytes": BYTES,
        "limit_operations": None,
    }
    workload = {
        "kind": "block",
        "target": {"kind": "device", "path": str(path), "size_bytes": BYTES},
        "backend": {"kind": "sync"},
        "layout": "always",
        "page_cache": "drop",
        "ramp": {"duration_ns": 0, "bytes": None},
        "duration_ns": None,
        "interval_ns": 100_000_000,
        "streams": [stream],
    }
    return {"protocol": protocol.VERSION, "run_id": "test", "seed": 1, "workload": workload}


def store_run(path: Path) -> dict[str, Any]:
    target = {"kind": "device", "path": str(path), "size_bytes": BYTES}
    return stores.spec("lmdb", target, stores.stream("reader", "read", choice=stores.EACH_ONCE, limit_operations=100))


RUNS = pytest.mark.parametrize("run", [block_run, store_run])


def carry_out(spec: dict[str, Any], *identities: str) -> dict[str, Any]:
    """The last event."""
    arguments = [argument for identity in identities for argument in ("--identity", identity)]
    done = subprocess.run(
        [real_engine(), *arguments], input=json.dumps(spec), capture_output=True, text=True, timeout=300, check=False
    )
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def identity(path: Path, device: LoopDevice) -> str:
    number = device.path.stat().st_rdev
    return f"{path}={os.major(number)}:{os.minor(number)}"


def is_untouched(device: LoopDevice) -> bool:
    return device.image.read_bytes() == bytes(BYTES)


@RUNS
def test_a_link_that_now_leads_to_another_device_is_refused(
    devices: list[LoopDevice], tmp_path: Path, run: Any
) -> None:
    named, victim = devices
    link = tmp_path / "link"
    link.symlink_to(victim.path)
    last = carry_out(run(link), identity(link, named))
    assert last["code"] == "wrong_target", last
    assert "is not the target that was checked: it is block device" in last["message"]
    assert is_untouched(victim)


@RUNS
def test_a_node_that_was_recreated_for_another_device_is_refused(
    devices: list[LoopDevice], tmp_path: Path, run: Any
) -> None:
    named, victim = devices
    node = tmp_path / "node"
    os.mknod(node, stat.S_IFBLK | 0o600, named.path.stat().st_rdev)
    checked = identity(node, named)
    assert carry_out(run(node), checked)["event"] == "result"
    node.unlink()
    os.mknod(node, stat.S_IFBLK | 0o600, victim.path.stat().st_rdev)
    last = carry_out(run(node), checked)
    assert last["code"] == "wrong_target", last
    assert "is not the target that was checked: it is block device" in last["message"]
    assert is_untouched(victim)


@pytest.mark.parametrize("has_identity", [False, True])
def test_a_device_may_be_named_by_a_link(devices: list[LoopDevice], tmp_path: Path, has_identity: bool) -> None:
    """As people name devices that keep their name when they change their place: `/dev/disk/by-id/...`."""
    link = tmp_path / "by-id"
    link.symlink_to(devices[0].path)
    identities = [identity(link, devices[0])] if has_identity else []
    assert carry_out(block_run(link), *identities)["event"] == "result"
    assert not is_untouched(devices[0])
