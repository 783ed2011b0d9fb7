"""A further device of a lab device's daemon, for what one throttled image does not do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.lab import ThrottledDevice
from iosonde.storage.setups.loop_devices import LoopDevice


@contextmanager
def exported(device: ThrottledDevice, node: str) -> Iterator[Path]:
    """A block device of a node of the daemon."""
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
