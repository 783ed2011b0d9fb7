"""Shared memory of a killed PostgreSQL: System V segments and the files `PostgreSQL.NUMBER` in `/dev/shm`.

PostgreSQL removes both when it stops, or when it starts again on the same data directory; a server that was killed and
never starts again leaves them. The first bytes of its System V segment (`PGShmemHeader`) contain the device and inode
number of its data directory, by which PostgreSQL itself recognizes it, and the number of the file that lists all others
(`dsm_control_header`). Two servers cannot have the same data directory, so no segment of another server is removed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SEGMENTS = Path("/proc/sysvipc/shm")
FILES = Path("/dev/shm")

POLL_S = 0.02
DETACH_S = 10.0

_HEADER = struct.Struct("@iiNNI4xPQQ")
"""Magic number, creator, total size, offset of free space, control file, index, device, inode (`PGShmemHeader`)."""
_HEADER_MAGIC = 679834894
_CONTROL = struct.Struct("=III")
"""Magic number, number of items in use, number of all items (`dsm_control_header`)."""
_CONTROL_MAGIC = 0x9A503D32
_ITEMS_AT = 16
_MOST_CONTROL_BYTES = 64 << 20
_KEYS_TRIED = 16
"""PostgreSQL takes the inode number as key, and the next ones if segments of others have it."""

_SHM_RDONLY = 0o10000
_IPC_RMID = 0


@dataclass(frozen=True, kw_only=True)
class _Segment:
    """A line of `/proc/sysvipc/shm`."""

    key: int
    number: int
    bytes: int
    creator: int
    attached: int
    uid: int


def identity_of(data: Path) -> str:
    """Device and inode number of a data directory, as the journal records it; empty if it does not exist."""
    try:
        found = data.stat(follow_symlinks=False)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def remove(data: Path, *, recorded: str, creator: int) -> None:
    """Remove the shared memory of the killed server of a data directory; `OSError` if a process still uses it.

    If the directory is gone, its recorded identity counts for segments of the recorded process only: another directory
    may have the inode number by now.
    """
    deadline = time.monotonic() + DETACH_S
    present = identity_of(data)
    identity = present or recorded
    if not identity:
        return
    device, inode = map(int, identity.split(":"))
    for segment in _segments():
        if segment.creator != creator and not (present and _has_key_of(segment, inode)):
            continue  # Not attached at all: its server may be starting, and would take it for one in use.
        while _is_of_server(segment, device, inode, creator) and _attached(segment):
            if time.monotonic() > deadline:
                raise OSError(errno.EBUSY, f"shared memory segment {segment.number} is still in use")
            time.sleep(POLL_S)
        if _is_of_server(segment, device, inode, creator):
            _remove_files(_header(segment), segment.uid)
            _remove_segment(segment)


def _segments() -> list[_Segment]:
    try:
        lines = SEGMENTS.read_text().splitlines()[1:]
    except OSError:
        return []  # A kernel without System V shared memory.
    found = []
    for line in lines:
        key, number, _, size, creator, _, attached, uid = map(int, line.split()[:8])
        found.append(_Segment(key=key, number=number, bytes=size, creator=creator, attached=attached, uid=uid))
    return found


def _attached(segment: _Segment) -> int:
    """How many times it is attached now."""
    return next((each.attached for each in _segments() if each.number == segment.number), 0)


def _has_key_of(segment: _Segment, inode: int) -> bool:
    """Whether its key is one that PostgreSQL 13 and newer choose for a data directory."""
    return (segment.key - inode) % (1 << 32) < _KEYS_TRIED


def _is_of_server(segment: _Segment, device: int, inode: int, creator: int) -> bool:
    """Whether a segment belongs to the server of this data directory."""
    header = _header(segment)
    if header and not any(header):  # Killed after it created the segment and before it wrote into it.
        return segment.creator == creator and _has_key_of(segment, inode)
    return bool(header) and (header[0], *header[-2:]) == (_HEADER_MAGIC, device, inode)


def _header(segment: _Segment) -> tuple[int, ...]:
    """The first fields of a segment; none if it is too small, gone, or not readable for this user."""
    if segment.bytes < _HEADER.size:
        return ()
    libc = _libc()
    address = libc.shmat(segment.number, None, _SHM_RDONLY)
    if address is None or address == ctypes.c_void_p(-1).value:
        return ()
    try:
        return _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    finally:
        libc.shmdt(ctypes.c_void_p(address))


def _remove_files(header: tuple[int, ...], uid: int) -> None:
    """Remove the files that the control file lists, and then that file."""
    control = header[4] if header else 0
    if not control:
        return
    try:
        directory = os.open(FILES, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for number in (*_listed(directory, control, uid), control):
            _unlink(directory, number, uid)
    finally:
        os.close(directory)


def _listed(directory: int, control: int, uid: int) -> list[int]:
    """Numbers of the files that a control file lists. Its items have another size in each version of the server."""
    try:
        opened = os.open(_name(control), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return []
    with os.fdopen(opened, "rb") as file:
        found = os.fstat(opened)
        if not _is_file_of(found, uid) or found.st_size > _MOST_CONTROL_BYTES:
            return []
        content = file.read(_MOST_CONTROL_BYTES)
    if len(content) < _ITEMS_AT:
        return []
    magic, used, items = _CONTROL.unpack_from(content)
    if magic != _CONTROL_MAGIC or items == 0 or used > items:
        return []
    size = (len(content) - _ITEMS_AT) // items
    if size < 2 * struct.calcsize("I"):
        return []
    return [struct.unpack_from("=I", content, _ITEMS_AT + index * size)[0] for index in range(used)]


def _unlink(directory: int, number: int, uid: int) -> None:
    with suppress(FileNotFoundError):
        if _is_file_of(os.stat(_name(number), dir_fd=directory, follow_symlinks=False), uid):
            os.unlink(_name(number), dir_fd=directory)


def _is_file_of(found: os.stat_result, uid: int) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == uid


def _name(number: int) -> str:
    return f"PostgreSQL.{number}"


def _remove_segment(segment: _Segment) -> None:
    if _libc().shmctl(segment.number, _IPC_RMID, None) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.EIDRM):  # It is gone.
            raise OSError(number, f"shared memory segment {segment.number}: {os.strerror(number)}")


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    libc.shmdt.argtypes = [ctypes.c_void_p]
    libc.shmctl.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    return libc
