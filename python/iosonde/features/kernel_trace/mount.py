"""The directory of tracefs: where the system mounted it, or else a detached mount, which ends with this process."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of the system calls, which are the same on all architectures (kernel `include/uapi/asm-generic/unistd.h`)."""
_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1


class NoTracingError(Exception):
    """Kernel tracing is unavailable; the message is a clause with the reason."""


def directory() -> Path:
    """The directory of tracefs; `NoTracingError` if it cannot be read."""
    for place in PLACES:
        try:
            if (place / "trace_clock").exists():
                return place
        except PermissionError:
            raise NoTracingError(f"no permission to read `{place}`: tracepoints need root") from None
    if os.geteuid() != 0:
        raise NoTracingError("tracefs is not mounted, and only root may mount it")
    return _detached()


@cache
def _detached() -> Path:
    """Mount tracefs without a place in the file tree (fsopen(2), fsmount(2)): nothing remains of it to be removed."""
    opened = _call(_FSOPEN, ctypes.c_char_p(b"tracefs"), _CLOEXEC)
    try:
        _call(_FSCONFIG, opened, _FSCONFIG_CMD_CREATE, None, None, 0)
        mounted = _call(_FSMOUNT, opened, _CLOEXEC, 0)
    finally:
        os.close(opened)
    return Path(f"/proc/{os.getpid()}/fd/{mounted}")


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    returned = int(libc.syscall(ctypes.c_long(number), *arguments))
    if returned < 0:
        raise NoTracingError(f"tracefs cannot be mounted: {os.strerror(ctypes.get_errno())}")
    return returned
