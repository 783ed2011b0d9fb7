"""A control group around an engine in which the kernel counts its I/O per block device, of version 1 or 2.

Version 1 (`blkio.throttle.io_service_bytes`) attributes an I/O to the process that submits it: reads, direct writes,
and pages that a process writes back itself (fsync(2)), but not what the kernel writes back in the background. Version 2
(`io.stat`) attributes that too, on ext4, XFS and btrfs. Neither attributes a file system's journal (kernel
`Documentation/admin-guide/cgroup-v1/blkio-controller.rst`, `cgroup-v2.rst`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iosonde.storage.block_layer import cgroup_limits
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal

Bytes = tuple[int, int]
"""Bytes read and bytes written."""


class UnavailableError(Exception):
    """I/O cannot be attributed to the engine; `reason` explains it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class IoGroup:
    """A control group of the engine's own, from `create` to `remove`."""

    def __init__(self, path: Path, version: int) -> None:
        self._path = path
        self.version = version

    @classmethod
    def create(cls, devices: Sequence[str]) -> IoGroup:
        """Create a group that counts I/O on these devices (`major:minor`); `UnavailableError` where it cannot."""
        if any(cgroup_limits.limits(device) for device in devices):
            # Limits of version 1 are not inherited: a group of its own would lift them.
            raise UnavailableError("a control group limits I/O on the device, and the engine stays in it")
        parent, version = hierarchy()
        path = parent / f"iosonde-{secrets.token_hex(4)}"
        group = cls(path, version)
        journal.created(path, journal.CONTROL_GROUP)
        try:
            if version == 2:
                _enable(parent)
            path.mkdir()
            journal.identify(path)
            if version == 1:
                _count(path, [whole_disk(device) for device in devices])
        except OSError as error:
            group.remove()
            raise UnavailableError(f"control group `{path}`: {error.strerror}") from error
        return group

    def add(self, pid: int) -> None:
        """Move a process into the group."""
        (self._path / "cgroup.procs").write_text(str(pid), encoding="utf-8")

    def bytes(self) -> dict[str, Bytes]:
        """Return the bytes that the group has read and written, by disk."""
        return counted(self._path, self.version)

    def remove(self) -> None:
        """Remove the group, which is empty."""
        with suppress(FileNotFoundError):
            self._path.rmdir()
        journal.removed(self._path)


def hierarchy() -> tuple[Path, int]:
    """The directory that counts I/O and accepts new groups, and the version of control groups."""
    for mount in mounts():
        directory = Path(mount.point)
        is_version_1 = mount.kind == "cgroup" and "blkio" in mount.options
        is_version_2 = mount.kind == "cgroup2" and "io" in _words(directory / "cgroup.controllers")
        if not (is_version_1 or is_version_2):
            continue
        if not os.access(directory, os.W_OK):
            raise UnavailableError(f"no permission to create control groups in `{directory}`")
        return directory, 1 if is_version_1 else 2
    raise UnavailableError("no control group hierarchy with an I/O controller is mounted")


def group_of(pid: int) -> Path | None:
    """The directory of a process's group of version 2."""
    mounted = next((Path(mount.point) for mount in mounts() if mount.kind == "cgroup2"), None)
    for line in _lines(Path(f"/proc/{pid}/cgroup")):
        if mounted and line.startswith("0::"):
            return mounted / line[3:].lstrip("/")
    return None


def counted(group: Path, version: int) -> dict[str, Bytes]:
    """Bytes that a group has read and written, by disk."""
    if version == 2:
        return parse_version_2((group / "io.stat").read_text(encoding="utf-8"))
    return parse_version_1((group / "blkio.throttle.io_service_bytes").read_text(encoding="utf-8"))


def parse_version_1(text: str) -> dict[str, Bytes]:
    """Lines of `MAJOR:MINOR Read|Write|... N`."""
    found: dict[str, list[int]] = {}
    for words in map(str.split, text.splitlines()):
        if len(words) == 3 and words[1] in ("Read", "Write"):
            found.setdefault(words[0], [0, 0])[words[1] == "Write"] = int(words[2])
    return {device: (read, written) for device, (read, written) in found.items()}


def parse_version_2(text: str) -> dict[str, Bytes]:
    """Lines of `MAJOR:MINOR rbytes=N wbytes=N ...`; one without numbers is a device without I/O."""
    found = {}
    for line in text.splitlines():
        device, *pairs = line.split() or [""]
        counts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if {"rbytes", "wbytes"} <= counts.keys():
            found[device] = (int(counts["rbytes"]), int(counts["wbytes"]))
    return found


def whole_disk(device: str) -> str:
    """The disk of a partition; control groups count by disk."""
    directory = Path(f"/sys/dev/block/{device}")
    if not (directory / "partition").exists():
        return device
    return (directory.resolve().parent / "dev").read_text(encoding="utf-8").strip()


def _count(group: Path, disks: Sequence[str]) -> None:
    """Make the kernel count: since Linux 6.10 it does only on disks for which a limit was ever written; 0 is none."""
    for disk in dict.fromkeys(disks):
        (group / "blkio.throttle.read_bps_device").write_text(f"{disk} 0", encoding="utf-8")


def _enable(parent: Path) -> None:
    """Enable counting in groups of `parent`, with memory so that background writeback is attributed."""
    control = parent / "cgroup.subtree_control"
    enabled = _words(control)
    if "io" not in enabled:
        control.write_text("+io", encoding="utf-8")
    if "memory" in _words(parent / "cgroup.controllers") and "memory" not in enabled:
        with suppress(OSError):
            control.write_text("+memory", encoding="utf-8")


def _words(file: Path) -> list[str]:
    return " ".join(_lines(file)).split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
