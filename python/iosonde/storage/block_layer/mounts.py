"""Mounted file systems, from `/proc/self/mountinfo` (proc(5))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import TargetError

TABLE = Path("/proc/self/mountinfo")

MOUNT_PROCFS = "mount it with `mount -t proc proc /proc`, or start the container with it"
"""Hint where `/proc` is missing."""
_CLONE_FS, _CLONE_NEWNS, _UMOUNT_NOFOLLOW = 0x200, 0x20000, 8
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One mounted file system."""

    device: str
    """`major:minor`; of btrfs and others an anonymous number without a block device."""
    root: str
    """The directory of the file system that is mounted (bind mounts, subvolumes)."""
    point: str
    kind: str
    """File-system type, such as `ext4`."""
    source: str
    """Source of the mount, such as `/dev/nvme0n1p2`."""
    options: list[str]
    """Options of the mount, then those of the file system."""

    @property
    def is_fuse(self) -> bool:
        """Return True if a process serves it (fuse(4)), such as `fuseblk` or `fuse.sshfs`."""
        return self.kind.partition(".")[0] in ("fuse", "fuseblk")


def mounts() -> list[Mount]:
    """All mounts that this process sees, in the order in which they were mounted; `TargetError` without `/proc`.

    Without them nobody knows what a device is in use for.
    """
    try:
        return mounts_in(TABLE)
    except FileNotFoundError:
        raise TargetError(f"iosonde requires procfs: `{TABLE}` does not exist", hint=MOUNT_PROCFS) from None


def mounts_in(table: Path) -> list[Mount]:
    """All mounts of the namespace whose `mountinfo` that is."""
    return [_parse(line) for line in table.read_text(errors="surrogateescape", encoding="utf-8").splitlines()]


def mount_of(path: Path) -> Mount | None:
    """The mount of `path`, which exists."""
    real = path.resolve()
    device = real.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    around = [mount for mount in mounts() if real.is_relative_to(mount.point)]
    # Later mounts hide earlier ones at the same point. A btrfs subvolume has a device number that no mount has.
    around.sort(key=lambda mount: (mount.device == number, len(Path(mount.point).parts)))
    longest = [mount for mount in around if len(mount.point) == len(around[-1].point)] if around else []
    return longest[-1] if longest else None


def namespaces(proc: Path = Path("/proc")) -> Iterator[tuple[Path, list[Mount]]]:
    """A process of each visible mount namespace, this process first, and the mounts of the namespace."""
    seen: set[str] = set()
    for process in [proc / "self", *sorted(proc.glob("[0-9]*"))]:
        table = process / "mountinfo"
        try:
            namespace = str((process / "ns/mnt").readlink())
        except OSError:
            namespace = str(table)
        if namespace not in seen:
            with contextlib.suppress(OSError):  # The process has exited, or belongs to another user.
                yield process, mounts_in(table)
                seen.add(namespace)


def mounted_elsewhere(number: str, source: str) -> dict[int, str]:
    """Mount points of a device (`major:minor`) in other mount namespaces, by a process of each, as far as readable.

    A namespace created while a file system was mounted keeps its copy of that mount (mount_namespaces(7)). btrfs has a
    device number of its own there: its mounts are found by their `source`.
    """
    found: dict[int, str] = {}
    for process, mounts_there in namespaces():
        points = [mount.point for mount in mounts_there if number == mount.device or source == mount.source]
        if points and process.name != "self":
            found[int(process.name)] = points[-1]
    return found


def unmount_copy(pid: int, point: str) -> None:
    """Unmount what is mounted there in the mount namespace of a process, unless it is in use in that namespace.

    A thread enters the namespace and ends: the working directory and root, which setns(2) changes, are its own then. No
    program of that namespace runs. `point` is a path from the root of the process, which may be another one than that
    of its namespace.
    """

    def unmount() -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            namespace = stack.enter_context(Path(f"/proc/{pid}/ns/mnt").open("rb"))
            root = os.open(f"/proc/{pid}/root", os.O_PATH)
            stack.callback(os.close, root)
            if not _LIBC.unshare(_CLONE_FS) and not _LIBC.setns(namespace.fileno(), _CLONE_NEWNS):
                os.fchdir(root)
                os.chroot(".")
                _LIBC.umount2(os.fsencode(point), _UMOUNT_NOFOLLOW)

    thread = threading.Thread(target=unmount)
    thread.start()
    thread.join()


def _parse(line: str) -> Mount:
    before, _, after = line.partition(" - ")
    _, _, device, root, point, options, *_ = before.split(" ")
    kind, source, super_options = (*after.split(" "), "", "", "")[:3]
    merged = dict.fromkeys([*options.split(","), *super_options.split(",")])
    return Mount(
        device=device,
        root=unescape(root),
        point=unescape(point),
        kind=kind,
        source=unescape(source),
        options=[option for option in merged if option],
    )


def unescape(text: str) -> str:
    """Decode a path of `/proc`, where space, tab, newline and backslash are octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda matched: chr(int(matched[1], 8)), text)
