"""What a target is, for the record: the file system, and every block device under it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.mounts import Mount, mount_of


def stack_of(path: Path) -> list[str]:
    """Every block device under `path`, which exists: the top one first, as `major:minor`."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if Path("/sys/dev/block", number).exists():
        return block_stack.stack_under(number)
    mount = mount_of(path)
    # btrfs, bcachefs and overlays have anonymous numbers; what was mounted names a device, if anything does.
    return _under_source(mount) if mount else []


def describe_path(path: Path) -> dict[str, Any]:
    """File system, mount and block devices under `path`, which exists."""
    mount = mount_of(path)
    return {
        "file_system": _file_system(path, mount),
        "devices": [block_stack.describe(device) for device in stack_of(path)],
    }


def _file_system(path: Path, mount: Mount | None) -> dict[str, Any]:
    space = os.statvfs(path)
    facts = {
        "size_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "block_bytes": space.f_bsize,
    }
    if mount is None:
        return facts
    return {
        "kind": mount.kind,
        "mount_point": mount.point,
        "source": mount.source,
        "options": mount.options,
        **facts,
    }


def _under_source(mount: Mount) -> list[str]:
    found = [block_stack.stack_under(number) for number in _members(mount)]
    return list(dict.fromkeys(device for stack in found for device in stack))


def _members(mount: Mount) -> list[str]:
    source = Path(mount.source)
    if not source.is_block_device():
        return []
    if mount.kind == "btrfs":
        # A file system over several devices lists them all; the mount names only one.
        mine = source.resolve().name
        for members in Path("/sys/fs/btrfs").glob("*/devices"):
            names = [member.name for member in members.iterdir()]
            if mine in names:
                return [(members / name / "dev").read_text().strip() for name in sorted(names)]
    number = source.stat().st_rdev
    return [f"{os.major(number)}:{os.minor(number)}"]
