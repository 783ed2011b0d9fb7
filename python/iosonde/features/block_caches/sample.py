"""One reading of a block cache: the counters of its driver and of the three block devices."""

from __future__ import annotations

from pathlib import Path

from iosonde.features.block_caches.block_cache import BlockCache
from iosonde.features.block_caches.layers import implementation
from iosonde.storage.block_layer.kernel import SECTOR_BYTES, read

SYS = Path("/sys")

_READ, _WRITTEN = 2, 6
"""Fields of `stat` (kernel `Documentation/block/stat.rst`)."""


def sample(built: BlockCache) -> dict[str, int]:
    """Counters since each device was created, and what is dirty and congested now."""
    found = dict(implementation(built.kind).counters(built))
    devices = {"": built.device, "backing_": built.backing, "cache_device_": built.cache}
    for prefix, device in devices.items():
        fields = read(SYS / "class/block" / device.name / "stat").split()
        if len(fields) > _WRITTEN:
            found[f"{prefix}read_bytes"] = int(fields[_READ]) * SECTOR_BYTES
            found[f"{prefix}write_bytes"] = int(fields[_WRITTEN]) * SECTOR_BYTES
    return found
