"""File systems of a setup: created, mounted, unmounted.

No initialization remains for the background, where it would be measured too: ext4 writes its inode tables and journal
when it is created, not lazily after the first mount. It reserves no blocks for root, and has blocks of 4 KiB whatever
its size, as an external journal requires.

Object daemons of Ceph take devices raw (BlueStore). The setup mounts a small file system in memory, where the monitor,
the manager and the daemons keep what is not on their devices, so that the devices take the I/O of BlueStore alone. The
nodes of the devices are there too: a daemon runs under an unprivileged user, and nodes of iosonde's own belong to that
user without a change to those in `/dev`, which udev would undo. All of it vanishes with the mount.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from iosonde.base.tools import Process
from iosonde.errors import TargetError, os_errors
from iosonde.plan import Setup
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.mounts import mounted_elsewhere, mounts, unmount_copy
from iosonde.storage.safety import guard, journal, own_directory
from iosonde.storage.tools import call, require, require_root, state_of
from iosonde.units import MIB

EXT4 = ("-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0")

JOURNAL_DEVICE = ("-q", "-F", "-b", "4096", "-O", "journal_dev")

BUSY_S = 10.0

NETWORK = ("nfs", "nfs4")
ANSWER_S = 10.0
"""Time that the server of a mount has to answer before it is unmounted without it."""
_MNT_FORCE, _MNT_DETACH = 1, 2
_LIBC = ctypes.CDLL(None, use_errno=True)
"""umount(2) asks no server, other than umount(8)."""

DIRECT_UNIT = {"btrfs": 4096}
"""Alignment of direct I/O where it is not the device's: btrfs serves other I/O through the page cache."""


def check_possible(setup: Setup) -> None:
    """`TargetError` if this machine cannot create or mount the file system."""
    if setup.file_system == "none":
        return
    if setup.is_bluestore:
        require_root("give block devices to object daemons of Ceph")
        return
    if setup.file_system == "nfs":
        return  # It comes with a layer, which has its own requirements.
    require_root(f"create and mount a file system ({setup.file_system})")
    require(f"mkfs.{setup.file_system}", f"create a file system ({setup.file_system})")
    if not is_known_to_kernel(setup.file_system):
        raise TargetError(
            f"this kernel does not support {setup.file_system}",
            where="by the parameter `file_system`",
            hint="choose another with `--set file_system=...`, or use a kernel with it",
        )


def is_known_to_kernel(file_system: str) -> bool:
    """Return True if it is registered, or there is a module of it."""
    known: list[str] = []
    with contextlib.suppress(OSError):  # Without /proc the modules decide.
        known = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    return file_system in known or state_of(file_system) != "missing"


def make(device: Path, setup: Setup, journal_device: Path | None = None, *, own: str = "") -> list[dict[str, Any]]:
    """Create the file system on a device -> the commands, as `tools.call` returns them.

    Its UUID is `uuid_of(own, "data")`, by which cleanup recognizes it.
    """
    identity = uuid_of(own, "data")
    commands: list[tuple[str | Path, ...]] = []
    match setup.file_system:
        case "ext4" if setup.journal == "external":
            assert journal_device, "an external journal has a device"
            journal_identity = ("-U", uuid_of(own, "journal"))
            commands.append(("mke2fs", *JOURNAL_DEVICE, *journal_identity, journal_device))
            commands.append(("mkfs.ext4", *EXT4, "-U", identity, "-J", f"device={journal_device}", device))
        case "ext4":
            options = ("-O", "^has_journal") if setup.journal == "off" else ()
            commands.append(("mkfs.ext4", *EXT4, "-U", identity, *options, device))
        case "xfs":
            commands.append(("mkfs.xfs", "-q", "-f", "-m", f"uuid={identity}", device))
        case "btrfs":
            commands.append(("mkfs.btrfs", "-q", "-f", "-U", identity, device))
    return [call(*command) for command in commands]


def uuid_of(own: str, part: Literal["data", "journal"]) -> str:
    """The UUID of the file system, or of its external journal, of a study."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{own}/{part}"))


def mount(device: Path, point: Path, setup: Setup) -> dict[str, Any]:
    """Mount it, accessible only to this user; the root of a server's export stays as it is."""
    options = ["-o", setup.mount_options] if setup.mount_options else []
    step = call("mount", "-t", setup.file_system, *options, source_of(device), point)
    if setup.file_system != "nfs":
        point.chmod(0o700)
    return step


def source_of(device: Path) -> str:
    """Source of a mount as mount(8) takes it: `Path("SERVER:/")` does not keep the slash."""
    return f"{device}/" if str(device).endswith(":") else str(device)


@contextlib.contextmanager
def opened_on_mount(path: Path) -> Iterator[int]:
    """A descriptor of a directory at the root of a file system that iosonde mounted; it is created unless it exists.

    `TargetError` if that file system is no longer mounted there: what is below the mount point belongs to another one.
    """
    entry = journal.find(path.parent)
    with contextlib.ExitStack() as stack:
        with os_errors(f"cannot create `{path}`", hint="see the kernel log (`dmesg`)"):
            try:
                if entry is None or entry.identity is None:
                    raise own_directory.WrongDirectoryError
                root = stack.enter_context(own_directory.opened(path.parent, entry.identity))
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path.name, mode=0o700, dir_fd=root)
                directory = stack.enter_context(own_directory.opened(path))
                if os.fstat(root).st_dev != os.fstat(directory).st_dev:
                    raise own_directory.WrongDirectoryError
            except (own_directory.WrongDirectoryError, FileNotFoundError):
                raise TargetError(
                    f"the file system that iosonde mounted at `{path.parent}` is not mounted there any more",
                    hint="nothing was written there; find out what unmounted it, and continue with "
                    "`iosonde resume DIR`",
                ) from None
        yield directory


def unmount(point: Path) -> None:
    """Unmount everything mounted there; `TargetError` if it is in use."""
    while found := [mount for mount in mounts() if mount.point == str(point)]:
        if found[-1].kind not in NETWORK or answers(point):
            call("umount", point)
        # Without the server: calls that wait for it fail, and what it did not get yet is lost.
        elif _LIBC.umount2(os.fsencode(point), _MNT_FORCE | _MNT_DETACH):
            raise TargetError(f"cannot unmount `{point}`: {os.strerror(ctypes.get_errno())}")


def answers(point: Path) -> bool:
    """Return True if the server of a mount answers within `ANSWER_S`; the question is asked by a process that can be
    killed."""
    asking = Process(["stat", "--file-system", point], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if asking.exits_within(ANSWER_S):
        return True
    asking.kill()  # It may not end: the call that waits for the server is uninterruptible.
    return False


def abort_calls(point: Path) -> bool:
    """Let all calls that wait for the server of a mount fail with an I/O error; True if the kernel did so.

    It stays mounted while it is in use: the kernel aborts the calls first, then refuses (umount(2), `MNT_FORCE`).
    """
    return _LIBC.umount2(os.fsencode(point), _MNT_FORCE) == 0 or ctypes.get_errno() == errno.EBUSY


def undo(entry: journal.Entry) -> None:
    """Unmount, and remove the mount point.

    An engine whose parent was killed needs a moment to exit, and mkfs continues until it is done.
    """
    point, device = Path(entry.path), Path(entry.facts["device"])
    deadline = time.monotonic() + BUSY_S
    while problem := _problem(point, device):
        if time.monotonic() > deadline:
            raise OSError(problem)
        time.sleep(0.05)
    with contextlib.suppress(FileNotFoundError):
        point.rmdir()


def _problem(point: Path, device: Path) -> str:
    """Unmount -> what still prevents it; empty on success."""
    try:
        unmount(point)
    except TargetError as error:
        return error.what
    number = number_of(device)
    if not number or not guard.is_claimed(number):
        return ""
    held = mounted_elsewhere(number, str(device))
    for pid, place in held.items():
        if place == str(point):  # The copy of our mount that every namespace has which was created meanwhile.
            unmount_copy(pid, place)
    if held and not guard.is_claimed(number):
        return ""
    places = [f"`{place}` in the mount namespace of process {pid}" for pid, place in held.items()]
    return f"`{device}` is still {'mounted at ' + ' and '.join(places) if places else 'in use'}"


def room(setup: Setup, device_bytes: int) -> int:
    """Bytes for files on a new file system of that size, estimated from the overhead of mkfs on the low side."""
    match setup.file_system:
        case "ext4" | "nfs":
            tables = device_bytes // (16 if device_bytes < 512 * MIB else 64)
            held_back = min(device_bytes // 50, 16 * MIB)
            inside = _ext4_journal_bytes(device_bytes) if setup.journal == "on" else 0
            left = device_bytes - tables - held_back - inside - device_bytes // 100
        case "xfs":
            left = device_bytes - device_bytes // 40 - 96 * MIB
        case "btrfs":
            # Copy-on-write: new data is written elsewhere before old data is freed.
            left = (device_bytes - min(device_bytes * 13 // 100, 4 << 30) - 64 * MIB) * 3 // 4
        case "bluestore":  # The object daemons use all of their devices.
            left = setup.devices * device_bytes + CONTROL_BYTES
        case _:
            left = device_bytes
    return max(0, left // MIB * MIB)


def journal_bytes(device_bytes: int) -> int:
    """Size of a device for an external journal."""
    return 2 * _ext4_journal_bytes(device_bytes)


def _ext4_journal_bytes(device_bytes: int) -> int:
    """As mke2fs chooses it by the number of blocks."""
    steps = ((128, 4), (1 << 10, 16), (2 << 10, 32), (16 << 10, 64), (32 << 10, 128), (64 << 10, 256), (128 << 10, 512))
    return next((journal for below, journal in steps if device_bytes < below * MIB), 1024) * MIB


CONTROL_BYTES = 512 << 20
"""Room for the monitor's database and for messages."""

_LABEL = b"bluestore block device\n"
"""First bytes of a device of BlueStore; the identifier of its object daemon follows."""


def mount_nodes(point: Path, devices: Sequence[Path]) -> list[dict[str, Any]]:
    """Mount the file system in memory and create a node for each device -> the commands, for the record."""
    options = f"size={CONTROL_BYTES},mode=700,nosuid,noexec"
    step = call("mount", "-t", "tmpfs", "-o", options, "iosonde", point)
    for node, device in zip(osd_nodes(point, len(devices)), devices, strict=True):
        os.mknod(node, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    return [step]


def osd_nodes(point: Path, count: int) -> list[Path]:
    """The nodes of the devices, in the order of the object daemons."""
    return [point / f"osd-{number}" for number in range(count)]


def osd_numbers(point: Path, count: int) -> list[str]:
    """The devices that the nodes lead to, once they exist."""
    return [number for node in osd_nodes(point, count) if (number := number_of(node))]


def osd_identity(own: str, number: int) -> str:
    """The identifier of an object daemon of a study, by which cleanup recognizes its device."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"iosonde:{own}/osd.{number}"))


def has_osd_label(descriptor: int, own: str) -> bool:
    """Return True if an open device has the label of an object daemon of this study."""
    start = os.pread(descriptor, len(_LABEL) + 36, 0)
    known = {osd_identity(own, number).encode() for number in range(256)}
    return start.startswith(_LABEL) and start[len(_LABEL) :] in known
