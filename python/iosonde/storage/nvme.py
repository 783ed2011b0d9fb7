"""NVMe drives, spoken to by admin commands through the kernel's passthrough, so that no tool is needed.

Wear and media counters come from log pages, and two commands erase: Format NVM a namespace, Sanitize a drive. Commands
and structures are those of the NVM Express Base Specification as `linux/nvme_ioctl.h` and libnvme's `nvme/types.h`
declare them; SMART / Health Information Extended (C0h) is that of the OCP Datacenter NVMe SSD Specification, section
4.8.6, as nvme-cli's `plugins/ocp/ocp-smart-extended-log.h` declares it. All counters are little endian.

Of the logs that count what reaches the media a drive has one or none. Which one is found out once for each drive,
because a request for an unsupported log adds an entry to the drive's error log.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from iosonde.storage.block_layer import block_nodes

DATA_UNIT_BYTES = 512_000
"""SMART counts in thousands of 512 bytes, rounded up."""

_NAMESPACE_NUMBER = 0x4E40
_ADMIN_COMMAND = 0xC0484E41
_COMMAND = struct.Struct("=BBH II I QQ II 6I II")
"""`struct nvme_passthru_cmd`: opcode, flags, reserved, namespace, cdw2, cdw3, metadata, address, the lengths of both,
cdw10 to cdw15, time-out in milliseconds, result."""
_FLUSH_BUFFERS = 0x1261
"""BLKFLSBUF (`linux/fs.h`): what is cached of a device that was erased behind the kernel's back is of no use."""

_GET_LOG_PAGE, _IDENTIFY, _FORMAT, _SANITIZE = 0x02, 0x06, 0x80, 0x84
_OF_NAMESPACE, _OF_CONTROLLER, _ACTIVE_NAMESPACES, _ALLOCATED_NAMESPACES = 0x00, 0x01, 0x02, 0x10
_ALL_NAMESPACES = 0xFFFFFFFF
_IDENTIFY_BYTES = 4096
_ANSWER_MS = 5_000

_STATUS = 0x7FF
"""Of a status field its code and type; the bits above are `more` and `do not retry`."""
_NOT_THERE = {0x001, 0x002, 0x109}
"""Invalid opcode, invalid field, invalid log page: how controllers answer for what they do not have."""

_USER_DATA_ERASE = 1 << 9
_FORMAT_MS = 30 * 60 * 1000

_EXIT_FAILURE_MODE, _BLOCK_ERASE, _CRYPTO_ERASE = 1, 2, 4
_ALLOW_EXIT = 1 << 3
"""AUSE: should it fail, the drive can return to operation without another sanitize."""
_CAN_CRYPTO_ERASE, _CAN_BLOCK_ERASE = 1 << 0, 1 << 1
_MANAGES_NAMESPACES = 1 << 3
_ACCEPT_MS = 60_000
_LONGEST_S = 24 * 3600
_SANITIZE_STATES = ("never begun", "done", "in progress", "failed", "done", *["of an unknown state"] * 3)
"""By SSTAT; the second `done` deallocated nothing."""

_HEALTH, _SANITIZE_STATUS = 0x02, 0x81
_PAGE_BYTES, _FDP_STATISTICS_BYTES = 512, 64
_HEALTH_FIELDS = {
    "temperature_celsius": (1, 2),
    "available_spare_percent": (3, 1),
    "percentage_used": (5, 1),
    "critical_warning": (0, 1),
    "data_units_read": (32, 16),
    "data_units_written": (48, 16),
    "power_on_hours": (128, 16),
    "media_errors": (160, 16),
}
"""Offset and size; the temperature in kelvin, the use of the endurance in percent, also beyond 100."""
_GIGABYTE = 10**9
_ZERO_CELSIUS_KELVIN = 273
_OCP_GUID = bytes.fromhex("c5af1028eabff2a49c4f6f7cc914d5af")
"""AFD514C97C6F4F9CA4F2BFEA2810AFC5h, in the order of its bytes in the page."""


class StatusError(OSError):
    """The controller carried a command out, and not with success."""

    def __init__(self, opcode: int, status: int) -> None:
        super().__init__(0, f"the drive answered its command {opcode:#04x} with status {status:#06x}")
        self.status = status & _STATUS


class LogError(OSError):
    """A page with another content than its number implies."""


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
    with block_nodes.opened((block_nodes.SYS / "block" / name / "dev").read_text(encoding="utf-8").strip()) as found:
        yield drive_of(found)


def drive_of(descriptor: int) -> Drive:
    """The drive of an open namespace, identified by its device number; `OSError` if it is none.

    The namespace number is the kernel's answer for this descriptor: commands such as Format NVM reach the namespace of
    that number, whatever is open.
    """
    _check_name(block_nodes.sys_path(block_nodes.number_of_descriptor(descriptor)).name)
    return Drive(descriptor, fcntl.ioctl(descriptor, _NAMESPACE_NUMBER))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"nvme\d+n\d+", name):
        raise OSError(0, f"`{name}` is not an NVMe drive")


def can_format(name: str) -> bool:
    """Return True if a device is a whole NVMe namespace that can be formatted without any other.

    A controller may report that a format applies to all its namespaces (FNA).
    """
    try:
        with opened(name) as drive:
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
    drive = drive_of(descriptor)
    namespace = drive.identify_namespace()
    sectors, protection = namespace[26], namespace[29]  # FLBAS, DPS
    kept = sectors & 0x1F | (sectors >> 5 & 0b11) << 12 | (protection & 0b111) << 5 | (protection >> 3 & 1) << 8
    drive.command(_FORMAT, drive.namespace, cdw10=kept | _USER_DATA_ERASE, wait_ms=_FORMAT_MS)
    fcntl.ioctl(descriptor, _FLUSH_BUFFERS)


def can_sanitize(name: str) -> bool:
    """Return True if the device of this name is the only namespace of a drive that supports block or crypto erase."""
    try:
        with opened(name) as drive:
            controller = drive.identify_controller()
            return _action(controller) is not None and _is_alone(drive, controller)
    except OSError:
        return False


def sanitize(descriptor: int, report: Callable[[str], None], *, poll_s: float = 1.0) -> None:
    """Sanitize the drive of an open namespace and wait for the end; `OSError` if that fails. All of it is lost.

    `report` receives progress in steps of ten percent.
    """
    drive = drive_of(descriptor)
    controller = drive.identify_controller()
    action = _action(controller)
    if action is None:
        raise OSError(0, "the drive has neither block erase nor crypto erase")
    if not _is_alone(drive, controller):  # Checked for the plan as well, which may be long ago.
        raise OSError(0, "the drive has other namespaces, which would be lost")
    drive.command(_SANITIZE, 0, cdw10=action | _ALLOW_EXIT, wait_ms=_ACCEPT_MS)
    _await_end(drive, report, poll_s)
    fcntl.ioctl(descriptor, _FLUSH_BUFFERS)


def _await_end(drive: Drive, report: Callable[[str], None], poll_s: float) -> None:
    deadline, reported = time.monotonic() + _LONGEST_S, 0
    while True:
        progress, status = struct.unpack_from("<HH", drive.log_page(_SANITIZE_STATUS, _PAGE_BYTES))  # SPROG, SSTAT
        state = _SANITIZE_STATES[status & 0b111]
        if state != "in progress":
            break
        if time.monotonic() > deadline:
            raise OSError(0, f"sanitize did not finish within {_LONGEST_S // 3600} hours")
        if (tenths := 10 * progress // 65536) > reported:
            reported = tenths
            report(f"sanitize: {10 * tenths} % done")
        time.sleep(poll_s)
    if state != "done":
        with suppress(OSError):
            drive.command(_SANITIZE, 0, cdw10=_EXIT_FAILURE_MODE, wait_ms=_ACCEPT_MS)
        raise OSError(0, f"sanitize ended with the state `{state}`")


def _action(controller: bytes) -> int | None:
    """Block erase before crypto erase, since it leaves the media erased, as new."""
    (capabilities,) = struct.unpack_from("<I", controller, 328)  # SANICAP
    if capabilities & _CAN_BLOCK_ERASE:
        return _BLOCK_ERASE
    return _CRYPTO_ERASE if capabilities & _CAN_CRYPTO_ERASE else None


def _is_alone(drive: Drive, controller: bytes) -> bool:
    """Return True if no other namespace is active, or allocated and not attached: it would be lost."""
    (commands,) = struct.unpack_from("<H", controller, 256)  # OACS
    own = [drive.namespace]
    return drive.namespaces() == own and (not commands & _MANAGES_NAMESPACES or drive.namespaces(allocated=True) == own)


@dataclass(frozen=True)
class _Log:
    """A log page that counts what reaches the media: for the host, for collection, and for the drive's own records."""

    name: str
    identifier: int
    size_bytes: int
    read: Callable[[bytes], dict[str, int | None]]
    """Bytes written and read (None where the log has only writes), and the unit that it counts in."""
    is_of_group: bool
    """True if it is kept for each endurance group."""


def now(name: str) -> dict[str, Any]:
    """Counters of the drive of that name, such as `nvme0n1`: its health, and `media` with the name of its log.

    What it does not report is missing, and `not_reported` has the reason if there is no `media`.
    """
    try:
        with opened(name) as drive:
            found = health(drive.log_page(_HEALTH, _PAGE_BYTES))
            if name not in _found:
                _found[name] = _search(name, drive)
            log = _found[name]
            if isinstance(log, str):
                return {**found, "not_reported": log}
            return {**found, "media": {"log": log.name, **_media(drive, log)}}
    except OSError as error:
        return {"not_reported": _reason(name, error)}


_found: dict[str, _Log | str] = {}
"""By the name of a drive: the log that it has, or why there is none."""


def _search(name: str, drive: Drive) -> _Log | str:
    """The first log that the drive has, or why it has none."""
    group = _group(drive)
    reason = f"`{name}` has no log page with media writes (OCP's C0h, 22h, 09h)"
    for log in _LOGS:
        if log.is_of_group and not group:
            continue
        try:
            _media(drive, log)
        except LogError as error:
            reason = _reason(name, error)
        except StatusError as error:
            if error.status not in _NOT_THERE:
                raise
        else:
            return log
    return reason


def _media(drive: Drive, log: _Log) -> dict[str, int | None]:
    group = _group(drive) if log.is_of_group else 0
    return log.read(drive.log_page(log.identifier, log.size_bytes, specific=group))


def _group(drive: Drive) -> int:
    """The endurance group of the namespace (ENDGID), 0 without one."""
    (group,) = struct.unpack_from("<H", drive.identify_namespace(), 102)
    return int(group)


def _reason(name: str, error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"`{name}` does not allow this user to read its log pages"
    text = error.strerror or str(error)
    return text if f"`{name}`" in text else f"`{name}`: {text}"


def health(page: bytes) -> dict[str, int]:
    """SMART / Health Information, 02h, which every drive reports."""
    found = {name: _counter(page, at, size) for name, (at, size) in _HEALTH_FIELDS.items()}
    return {**found, "temperature_celsius": found["temperature_celsius"] - _ZERO_CELSIUS_KELVIN}


def extended(page: bytes) -> dict[str, int | None]:
    """SMART / Health Information Extended, C0h.

    The number is the vendor's to use, so the page must carry OCP's GUID: an older one of Microsoft's counts in other
    units in the same place. "Physical Media Units" (SMART-1 and 2) are bytes, of user and system areas alike.
    """
    if page[496:512] != _OCP_GUID:
        raise LogError("its log page C0h is vendor-specific, not OCP's")
    return {"written_bytes": _counter(page, 0), "read_bytes": _counter(page, 16), "step_bytes": 1}


def data_placement(page: bytes) -> dict[str, int | None]:
    """FDP Statistics, 22h: bytes written to the media of an endurance group, host and controller alike."""
    return {"written_bytes": _counter(page, 16), "read_bytes": None, "step_bytes": 1}


def endurance_group(page: bytes) -> dict[str, int | None]:
    """Endurance Group Information, 09h: media units written, in units of 10^9 bytes; 0 if not reported."""
    written = _counter(page, 80)
    if not written:
        raise LogError("its log page 09h leaves out what is written to the media")
    return {"written_bytes": written * _GIGABYTE, "read_bytes": None, "step_bytes": _GIGABYTE}


_LOGS = (
    _Log("ocp", 0xC0, _PAGE_BYTES, extended, is_of_group=False),
    _Log("fdp", 0x22, _FDP_STATISTICS_BYTES, data_placement, is_of_group=True),
    _Log("endurance_group", 0x09, _PAGE_BYTES, endurance_group, is_of_group=True),
)
"""From the finest to the coarsest."""


def _counter(page: bytes, at: int, size: int = 16) -> int:
    return int.from_bytes(page[at : at + size], "little")
