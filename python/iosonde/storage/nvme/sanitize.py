"""NVMe's strongest purge: the command Sanitize, which erases all media of a drive.

It goes to all namespaces of a drive, so it is offered only where the drive has no other. Fields: NVM Express Base
Specification, Sanitize command (84h), Sanitize Status log page (81h) and SANICAP, as libnvme's `nvme/types.h` has them.
"""

from __future__ import annotations

import fcntl
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from iosonde.storage.nvme import admin, logs

_SANITIZE = 0x84
_EXIT_FAILURE_MODE, _BLOCK_ERASE, _CRYPTO_ERASE = 1, 2, 4
_ALLOW_EXIT = 1 << 3
"""AUSE: should it fail, the drive can return to operation without another sanitize."""

_CAN_CRYPTO_ERASE, _CAN_BLOCK_ERASE = 1 << 0, 1 << 1
_MANAGES_NAMESPACES = 1 << 3
_STATUS_LOG = 0x81
_ACCEPT_MS = 60_000
_LONGEST_S = 24 * 3600


def can_sanitize(name: str) -> bool:
    """Return True if the device of this name is the only namespace of a drive that supports block or crypto erase."""
    try:
        with admin.opened(name) as drive:
            controller = drive.identify_controller()
            return _action(controller) is not None and _is_alone(drive, controller)
    except OSError:
        return False


def sanitize(descriptor: int, report: Callable[[str], None], *, poll_s: float = 1.0) -> None:
    """Sanitize the drive of an open namespace and wait for the end; `OSError` if that fails. All of it is lost.

    `report` receives progress in steps of ten percent.
    """
    drive = admin.drive_of(descriptor)
    controller = drive.identify_controller()
    action = _action(controller)
    if action is None:
        raise OSError(0, "the drive has neither block erase nor crypto erase")
    if not _is_alone(drive, controller):  # Checked for the plan as well, which may be long ago.
        raise OSError(0, "the drive has other namespaces, which would be lost")
    drive.command(_SANITIZE, 0, cdw10=action | _ALLOW_EXIT, wait_ms=_ACCEPT_MS)
    _await_end(drive, report, poll_s)
    fcntl.ioctl(descriptor, admin.FLUSH_BUFFERS)


def _await_end(drive: admin.Drive, report: Callable[[str], None], poll_s: float) -> None:
    deadline, reported = time.monotonic() + _LONGEST_S, 0
    while (status := _status(drive)).state == "in progress":
        if time.monotonic() > deadline:
            raise OSError(0, f"sanitize did not finish within {_LONGEST_S // 3600} hours")
        if (tenths := int(10 * status.progress)) > reported:
            reported = tenths
            report(f"sanitize: {10 * tenths} % done")
        time.sleep(poll_s)
    if status.state != "done":
        with suppress(OSError):
            drive.command(_SANITIZE, 0, cdw10=_EXIT_FAILURE_MODE, wait_ms=_ACCEPT_MS)
        raise OSError(0, f"sanitize ended with the state `{status.state}`")


def _status(drive: admin.Drive) -> logs.Sanitize:
    try:
        return logs.sanitize(drive.log_page(_STATUS_LOG, logs.PAGE_BYTES))
    except logs.LogError as error:
        raise OSError(0, str(error)) from error


def _action(controller: bytes) -> int | None:
    """Block erase before crypto erase, since it leaves the media erased, as new."""
    (capabilities,) = struct.unpack_from("<I", controller, 328)  # SANICAP
    if capabilities & _CAN_BLOCK_ERASE:
        return _BLOCK_ERASE
    return _CRYPTO_ERASE if capabilities & _CAN_CRYPTO_ERASE else None


def _is_alone(drive: admin.Drive, controller: bytes) -> bool:
    """Return True if no other namespace is active, or allocated and not attached: it would be lost."""
    (commands,) = struct.unpack_from("<H", controller, 256)  # OACS
    own = [drive.namespace]
    return drive.namespaces() == own and (not commands & _MANAGES_NAMESPACES or drive.namespaces(allocated=True) == own)
