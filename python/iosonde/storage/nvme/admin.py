"""Admin commands to the controller of an NVMe namespace (`linux/nvme_ioctl.h`; NVM Express Base Specification)."""

from __future__ import annotations

import ctypes
import fcntl
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.storage.block_layer import block_nodes

_SYS = Path("/sys/dev/block")
_NAMESPACE_NUMBER = 0x4E40
_ADMIN_COMMAND = 0xC0484E41
_COMMAND = struct.Struct("=BBH II I QQ II 6I II")
"""`struct nvme_passthru_cmd`: opcode, flags, reserved, namespace, cdw2, cdw3, metadata, address, the lengths of both,
cdw10 to cdw15, time-out in milliseconds, result."""

_GET_LOG_PAGE, _IDENTIFY = 0x02, 0x06
_OF_NAMESPACE, _OF_CONTROLLER, _ACTIVE_NAMESPACES, _ALLOCATED_NAMESPACES = 0x00, 0x01, 0x02, 0x10
_ALL_NAMESPACES = 0xFFFFFFFF
_IDENTIFY_BYTES = 4096
_ANSWER_MS = 5_000

FLUSH_BUFFERS = 0x1261
"""BLKFLSBUF (`linux/fs.h`): what is cached of a device that was erased behind the kernel's back is of no use."""

_STATUS = 0x7FF
"""Of a status field its code and type; the bits above are `more` and `do not retry`."""
NOT_THERE = {0x001, 0x002, 0x109}
"""Invalid opcode, invalid field, invalid log page: how controllers answer for what they do not have."""


class StatusError(OSError):
    """The controller carried a command out, and not with success."""

    def __init__(self, opcode: int, status: int) -> None:
        super().__init__(0, f"the drive answered its command {opcode:#04x} with status {status:#06x}")
        self.status = status & _STATUS


class Drive:
    """The controller behind an open namespace. Whatever it does not answer is an `OSError`."""

    def __init__(self, descriptor: int, namespace: int) -> None:
        self.descriptor = descriptor
        self.namespace = namespace

    def identify_controller(self) -> bytes:
        """4096 bytes: Identify Controller."""
        return self._identify(_OF_CONTROLLER, namespace=0)

    def identify_namespace(self) -> bytes:
        """4096 bytes: Identify Namespace of the namespace that is open."""
        return self._identify(_OF_NAMESPACE, namespace=self.namespace)

    def namespaces(self, *, allocated: bool = False) -> list[int]:
        """Numbers of the namespaces that are active for this controller, or of all that the drive has allocated."""
        what = _ALLOCATED_NAMESPACES if allocated else _ACTIVE_NAMESPACES
        numbers = struct.unpack("<1024I", self._identify(what, namespace=0))
        return [number for number in numbers if number]

    def log_page(self, identifier: int, size_bytes: int, *, specific: int = 0) -> bytes:
        """A log page from its first byte; `specific` is the endurance group of logs that are kept for each."""
        dwords = size_bytes // 4 - 1
        page = ctypes.create_string_buffer(size_bytes)
        self.command(
            _GET_LOG_PAGE,
            _ALL_NAMESPACES,
            cdw10=identifier | (dwords & 0xFFFF) << 16,
            cdw11=dwords >> 16 | specific << 16,
            page=page,
        )
        return page.raw

    def _identify(self, what: int, *, namespace: int) -> bytes:
        page = ctypes.create_string_buffer(_IDENTIFY_BYTES)
        self.command(_IDENTIFY, namespace, cdw10=what, page=page)
        return page.raw

    def command(
        self,
        opcode: int,
        namespace: int,
        *,
        cdw10: int,
        cdw11: int = 0,
        wait_ms: int = _ANSWER_MS,
        page: ctypes.Array[ctypes.c_char] | None = None,
    ) -> None:
        """Send a command and wait for its end; `page` is filled with what comes."""
        address, length = (ctypes.addressof(page), len(page)) if page is not None else (0, 0)
        fields = (cdw10, cdw11, 0, 0, 0, 0, wait_ms, 0)
        command = _COMMAND.pack(opcode, 0, 0, namespace, 0, 0, 0, address, 0, length, *fields)
        status = fcntl.ioctl(self.descriptor, _ADMIN_COMMAND, bytearray(command))
        if status:
            raise StatusError(opcode, status)


@contextmanager
def opened(name: str) -> Iterator[Drive]:
    """Open a whole NVMe namespace by the kernel's name; `OSError` if it is none, or cannot be opened."""
    _check_name(name)
    with block_nodes.opened(Path("/sys/block", name, "dev").read_text(encoding="utf-8").strip()) as descriptor:
        yield drive_of(descriptor)


def drive_of(descriptor: int) -> Drive:
    """The drive of an open namespace, identified by its device number; `OSError` if it is none.

    The namespace number is the kernel's answer for this descriptor: commands such as Format NVM reach the namespace of
    that number, whatever is open.
    """
    number = block_nodes.number_of_descriptor(descriptor)
    _check_name((_SYS / number).resolve().name)
    return Drive(descriptor, fcntl.ioctl(descriptor, _NAMESPACE_NUMBER))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"nvme\d+n\d+", name):
        raise OSError(0, f"`{name}` is not an NVMe drive")
