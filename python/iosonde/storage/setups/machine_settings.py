"""The lock of a setting of the machine: one session changes it at a time, also among sessions with different journals.

Each setting has a file below `/run/iosonde`. The session that has changed the setting locks it (flock(2)), and writes
into it the value to restore, which a killed session leaves to the next one whatever journal that reads. `/run` is empty
after a reboot, which resets the settings too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from iosonde.errors import TargetError

DIRECTORY = Path("/run/iosonde")

_held: dict[Path, int] = {}
"""Descriptors of locked files by setting; the kernel unlocks them when this process ends."""


def take(path: Path, value: str, *, owner: str = "") -> str:
    """Lock a setting before it is changed -> the value to restore: `value`, or what a killed session has recorded.

    `owner` identifies the device that has the setting. `TargetError` if another session has changed it.
    """
    try:
        lock(path)
        recorded = os.pread(_held[path], 4096, 0).decode(errors="replace").split("\n")
        if len(recorded) == 2 and recorded[0] == owner:
            return recorded[1]
        os.ftruncate(_held[path], 0)
        os.pwrite(_held[path], f"{owner}\n{value}".encode(), 0)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise TargetError(
                f"`{path}` is in use by another iosonde", hint="wait until it exits, or leave the setting out"
            ) from error
        raise TargetError(
            f"cannot lock `{path}` below `{DIRECTORY}`: {error.strerror}",
            hint="settings of the machine require root; leave the setting out",
        ) from error
    return value


def lock(path: Path) -> None:
    """Lock a setting unless this process has it; `OSError` if another session has (EBUSY)."""
    if path in _held:
        return
    DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(DIRECTORY / "-".join(path.parts[1:]), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise OSError(errno.EBUSY, "it is in use by another iosonde") from None
        raise
    _held[path] = descriptor


def release(path: Path) -> None:
    """Unlock a setting that has its former value."""
    descriptor = _held.pop(path, None)
    if descriptor is not None:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)
