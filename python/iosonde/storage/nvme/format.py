"""Purge of an NVMe namespace: the command Format NVM, with a user data erase.

A controller may report that a format applies to all its namespaces (FNA); it is offered only where there is a single
one.
"""

from __future__ import annotations

import fcntl
import struct

from iosonde.storage.nvme import admin

_FORMAT = 0x80
_USER_DATA_ERASE = 1 << 9
_FORMAT_MS = 30 * 60 * 1000


def can_format(name: str) -> bool:
    """Return True if a device is a whole NVMe namespace that can be formatted without any other."""
    try:
        with admin.opened(name) as drive:
            controller = drive.identify_controller()
    except OSError:
        return False
    (commands,) = struct.unpack_from("<H", controller, 256)  # OACS
    (namespaces,) = struct.unpack_from("<I", controller, 516)  # NN
    goes_to_all = controller[524] & 0b11  # FNA: format, or secure erase, of all namespaces
    return bool(commands & 0b10) and (namespaces == 1 or not goes_to_all)


def format_namespace(descriptor: int) -> None:
    """Format an open namespace with its present sector format and erase its user data; `OSError` if that fails.

    All of the namespace is lost.
    """
    drive = admin.drive_of(descriptor)
    kept = _formatted_as(drive.identify_namespace())
    drive.command(_FORMAT, drive.namespace, cdw10=kept | _USER_DATA_ERASE, wait_ms=_FORMAT_MS)
    fcntl.ioctl(descriptor, admin.FLUSH_BUFFERS)


def _formatted_as(namespace: bytes) -> int:
    """Sectors, metadata and protection as they are, in the fields of the command."""
    sectors, protection = namespace[26], namespace[29]  # FLBAS, DPS
    metadata = sectors & 0x1F | (sectors >> 5 & 0b11) << 12
    return metadata | (protection & 0b111) << 5 | (protection >> 3 & 1) << 8
