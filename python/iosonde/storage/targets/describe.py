"""Description of a target for the record: the file system, and every block device under it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.mounts import Mount, mount_of, unescape


def stack_of(path: Path) -> list[str]:
    """Every block device under `path`, which exists: the top one first, as `major:minor`."""
    lowest, mount = _layers(path)[-1]
    device = lowest.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if Path("/sys/dev/block", number).exists():
        return block_stack.stack_under(number)
    # btrfs and bcachefs have anonymous numbers; what was mounted names a device, if anything does.
    return _under_source(mount) if mount else []


def describe_path(path: Path, *, writes_to_page_cache: bool | None = None) -> dict[str, Any]:
    """File system, mount and block devices under `path`, which exists."""
    found = {"direct_writes": "page cache"} if writes_to_page_cache else {}
    return {
        "file_system": _file_system(path) | found,
        "devices": [block_stack.describe(device) for device in stack_of(path)],
    }


def _file_system(path: Path) -> dict[str, Any]:
    space = os.statvfs(path)
    facts = {
        "size_bytes": space.f_blocks * space.f_frsize,
        "free_bytes": space.f_bavail * space.f_frsize,
        "block_bytes": space.f_bsize,
    }
    return {**_mounted([mount for _, mount in _layers(path) if mount]), **facts}


def _mounted(mounts: list[Mount]) -> dict[str, Any]:
    """A file system and those `below` it."""
    if not mounts:
        return {}
    top, *lower = mounts
    facts = {"kind": top.kind, "mount_point": top.point, "source": top.source, "options": top.options}
    return {**facts, **({"below": _mounted(lower)} if lower else {})}


def _layers(path: Path) -> list[tuple[Path, Mount | None]]:
    """`path` with its mount, then the directories in which overlays and FUSE daemons keep its files, top first."""
    found = [(path, mount_of(path))]
    while (mount := found[-1][1]) and (lower := _lower_directory(mount)):
        layer = lower, mount_of(lower)
        if layer[1] in [each for _, each in found]:  # Hidden by a mount over itself.
            break
        found.append(layer)
    return found


def _lower_directory(mount: Mount) -> Path | None:
    """Directory in which an overlay writes, or that a FUSE daemon names as its source; None where it is not visible.

    In a container the directories of an overlay are usually those of another mount namespace.
    """
    named = mount.source if mount.is_fuse else ""
    if mount.kind == "overlay":
        upper = [option for option in mount.options if option.startswith("upperdir=")]
        named = unescape(upper[0].partition("=")[2]) if upper else ""
    return Path(named) if named.startswith("/") and Path(named).is_dir() else None


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
                return [(members / name / "dev").read_text(encoding="utf-8").strip() for name in sorted(names)]
    number = source.stat().st_rdev
    return [f"{os.major(number)}:{os.minor(number)}"]
