"""NVMe's own means of giving up what a namespace holds: the command Format NVM, with a user data erase.

Spoken through the kernel's passthrough (`linux/nvme_ioctl.h`), so no tool is needed. A controller may say that a format
goes to all its namespaces (FNA); then it is offered only where there is a single one.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import struct
from pathlib import Path

_ADMIN_COMMAND = 0xC0484E41
_FLUSH_BUFFERS = 0x1261
_COMMAND = struct.Struct("=BBH II I QQ II 6I II")
"""`struct nvme_passthru_cmd`: opcode, flags, reserved, namespace, cdw2, cdw3, metadata, address, the lengths of both,
cdw10 to cdw15, time-out in milliseconds, result."""

_IDENTIFY, _FORMAT = 0x06, 0x80
_OF_NAMESPACE, _OF_CONTROLLER = 0, 1
_PAGE_BYTES = 4096
_USER_DATA_ERASE = 1 << 9
_IDENTIFY_MS = 5_000
_FORMAT_MS = 30 * 60 * 1000


def can_format(device: Path) -> bool:
    """Whether the device is a whole NVMe namespace that its controller formats, and nothing else with it."""
    if not re.fullmatch(r"nvme\d+n\d+", device.resolve().name):
        return False
    try:
        descriptor = os.open(device, os.O_RDONLY)
    except OSError:
        return False
    try:
        controller = _identify(descriptor, _OF_CONTROLLER, namespace=0)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    (commands,) = struct.unpack_from("<H", controller, 256)  # OACS
    (namespaces,) = struct.unpack_from("<I", controller, 516)  # NN
    goes_to_all = controller[524] & 0b11  # FNA: format, or secure erase, of all namespaces
    return bool(commands & 0b10) and (namespaces == 1 or not goes_to_all)


def format_namespace(device: Path) -> None:
    """Format it in the sector format that it has, with its user data erased; `OSError` if the controller refuses.

    All of the namespace is lost.
    """
    descriptor = os.open(device, os.O_RDONLY)
    try:
        number = _namespace(device)
        kept = _formatted_as(_identify(descriptor, _OF_NAMESPACE, namespace=number))
        _command(descriptor, _FORMAT, number, cdw10=kept | _USER_DATA_ERASE, wait_ms=_FORMAT_MS)
        fcntl.ioctl(descriptor, _FLUSH_BUFFERS)
    finally:
        os.close(descriptor)


def _formatted_as(namespace: bytes) -> int:
    """Sectors, metadata and protection as they are, in the places where the command wants them."""
    sectors, protection = namespace[26], namespace[29]  # FLBAS, DPS
    metadata = sectors & 0x1F | (sectors >> 5 & 0b11) << 12
    return metadata | (protection & 0b111) << 5 | (protection >> 3 & 1) << 8


def _namespace(device: Path) -> int:
    return int(Path("/sys/block", device.resolve().name, "nsid").read_text())


def _identify(descriptor: int, what: int, *, namespace: int) -> bytes:
    page = ctypes.create_string_buffer(_PAGE_BYTES)
    _command(descriptor, _IDENTIFY, namespace, cdw10=what, page=page, wait_ms=_IDENTIFY_MS)
    return page.raw


def _command(
    descriptor: int,
    opcode: int,
    namespace: int,
    *,
    cdw10: int,
    wait_ms: int,
    page: ctypes.Array[ctypes.c_char] | None = None,
) -> None:
    address, length = (ctypes.addressof(page), len(page)) if page is not None else (0, 0)
    command = _COMMAND.pack(opcode, 0, 0, namespace, 0, 0, 0, address, 0, length, cdw10, 0, 0, 0, 0, 0, wait_ms, 0)
    status = fcntl.ioctl(descriptor, _ADMIN_COMMAND, bytearray(command))
    if status:
        raise OSError(0, f"the drive answered its command {opcode:#04x} with status {status:#06x}")
