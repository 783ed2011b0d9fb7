"""Format and Sanitize as the kernel is handed them, and only for the device that was checked.

No drive is at hand that may be erased, so the kernel's edge (ioctl and the names in sysfs) is a fake. Loop devices take the
place of namespaces where descriptors and numbers decide, whatever the nodes are called.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from loop_stacks import Loops

from iosonde.storage.block_layer.block_nodes import number_of, number_of_descriptor
from iosonde.storage.nvme import admin, logs
from iosonde.storage.nvme.format import can_format
from iosonde.storage.nvme.sanitize import can_sanitize, sanitize
from iosonde.storage.setups import purge

COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
"""`struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`, 72 bytes."""
FLUSH, NAMESPACE_NUMBER, ADMIN_COMMAND = 0x1261, 0x4E40, 0xC0484E41
FORMAT, SANITIZE, GET_LOG_PAGE, IDENTIFY = 0x80, 0x84, 0x02, 0x06
CRYPTO, BLOCK, OVERWRITE = 1, 2, 4
NEVER, DONE, IN_PROGRESS, FAILED = 0, 1, 2, 3
FORMATS, MANAGES_NAMESPACES = 1 << 1, 1 << 3


@dataclass
class Kernel:
    """In place of ioctl(2): keeps commands, and answers as a drive would."""

    capabilities: int = BLOCK
    active: tuple[int, ...] = (1,)
    allocated: tuple[int, ...] | None = None
    """None for a drive that does not manage namespaces."""
    states: list[tuple[int, int]] = field(default_factory=list)
    """Status and progress of 65536, of one look after the other."""
    namespaces: dict[str, int] = field(default_factory=dict)
    """Number of the namespace of each device; none for a machine with one drive."""
    erased: list[tuple[str, int, int]] = field(default_factory=list)
    """Device, opcode and namespace of each command that erases."""
    sanitized: list[bytes] = field(default_factory=list)
    flushed: int = 0

    def ioctl(self, descriptor: int, request: int, command: bytearray | None = None) -> int:
        device = number_of_descriptor(descriptor) if self.namespaces else ""
        if request == NAMESPACE_NUMBER:
            return self.namespaces[device]
        if command is None:
            assert request == FLUSH
            self.flushed += 1
            return 0
        assert (request, len(command)) == (ADMIN_COMMAND, COMMAND.size)
        opcode, _, _, namespace, _, _, _, address, _, length, cdw10, *_ = COMMAND.unpack(command)
        if opcode in (FORMAT, SANITIZE):
            self.erased.append((device, opcode, namespace))
            self.sanitized.append(bytes(command))
            return 0
        page = self._page(opcode, namespace, cdw10, device)
        ctypes.memmove(address, page.ljust(length, b"\0"), length)
        return 0

    def _page(self, opcode: int, namespace: int, cdw10: int, device: str) -> bytes:
        if opcode == IDENTIFY:
            active = (self.namespaces[device],) if device else self.active
            assert namespace == 0 or device
            return {
                0x01: self._controller,
                0x02: lambda: _list(active),
                0x10: lambda: _list(self.allocated or ()),
            }.get(cdw10, bytes)()
        assert (opcode, cdw10) == (GET_LOG_PAGE, 0x81 | (512 // 4 - 1) << 16)
        status, progress = self.states.pop(0)
        return struct.pack("<HH", progress, status)

    def _controller(self) -> bytes:
        page = bytearray(4096)
        struct.pack_into("<H", page, 256, FORMATS if self.allocated is None else MANAGES_NAMESPACES)
        struct.pack_into("<I", page, 328, self.capabilities)
        return bytes(page)


def _list(numbers: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The kernel of a machine with one drive."""
    fake = Kernel()

    @contextmanager
    def opened(_name: str) -> Iterator[admin.Drive]:
        yield drive_of(-1)

    def drive_of(descriptor: int) -> admin.Drive:
        return admin.Drive(descriptor, namespace=1)

    monkeypatch.setattr(admin, "opened", opened)
    monkeypatch.setattr(admin, "drive_of", drive_of)
    monkeypatch.setattr("fcntl.ioctl", fake.ioctl)
    return fake


@pytest.mark.parametrize(
    ("capabilities", "action"), [(CRYPTO | BLOCK | OVERWRITE, 2), (BLOCK, 2), (CRYPTO, 4), (CRYPTO | OVERWRITE, 4)]
)
def test_blocks_are_erased_or_else_their_keys_by_one_command_to_no_namespace(
    kernel: Kernel, capabilities: int, action: int
) -> None:
    kernel.capabilities, kernel.states = capabilities, [(DONE, 0xFFFF)]
    sanitize(-1, lambda _: None)
    [command] = kernel.sanitized
    dword_10, timeout_ms = struct.pack("<I", action | 1 << 3), struct.pack("<I", 60_000)
    assert command == b"\x84" + bytes(39) + dword_10 + bytes(20) + timeout_ms + bytes(4)
    assert kernel.flushed == 1


def test_it_waits_for_the_end_and_reports_progress(kernel: Kernel) -> None:
    kernel.states = [(IN_PROGRESS, progress) for progress in (0, 3000, 7000, 33000, 33100)] + [(DONE, 0xFFFF)]
    reported: list[str] = []
    sanitize(-1, reported.append, poll_s=0)
    assert reported == ["sanitize: 10 % done", "sanitize: 50 % done"]
    assert kernel.states == []


def test_after_a_failed_sanitize_the_drive_leaves_failure_mode_and_the_error_reports_it(kernel: Kernel) -> None:
    kernel.states = [(IN_PROGRESS, 0), (FAILED, 100)]
    with pytest.raises(OSError, match="sanitize ended with the state `failed`"):
        sanitize(-1, lambda _: None, poll_s=0)
    actions = [COMMAND.unpack(command)[10] for command in kernel.sanitized]
    assert actions == [2 | 1 << 3, 1]


def test_a_drive_without_sanitize_gets_no_command(kernel: Kernel) -> None:
    kernel.capabilities = OVERWRITE
    with pytest.raises(OSError, match="neither block erase nor crypto erase"):
        sanitize(-1, lambda _: None)
    assert kernel.sanitized == []


def test_a_namespace_that_came_after_the_plan_is_not_lost(kernel: Kernel) -> None:
    kernel.active = (1, 2)
    with pytest.raises(OSError, match="other namespaces, which would be lost"):
        sanitize(-1, lambda _: None)
    assert kernel.sanitized == []


@pytest.mark.parametrize(
    ("active", "allocated", "offered"),
    [((1,), None, True), ((1, 2), None, False), ((2,), None, False), ((1,), (1,), True), ((1,), (1, 7), False)],
)
def test_sanitize_is_offered_only_if_no_other_namespace_is_lost(
    kernel: Kernel, active: tuple[int, ...], allocated: tuple[int, ...] | None, offered: bool
) -> None:
    kernel.active, kernel.allocated = active, allocated
    assert can_sanitize("nvme0n1") is offered
    kernel.capabilities = 0
    assert not can_sanitize("nvme0n1")


@pytest.mark.parametrize("name", ["loop0", "nvme0", "nvme0n1p1", "nvme99n99", "..", "nvme0n1/../../x", ""])
def test_a_device_that_is_no_namespace_is_neither_formatted_nor_sanitized(name: str) -> None:
    assert not can_sanitize(name)
    assert not can_format(name)


def test_states_that_no_specification_has_are_named() -> None:
    assert logs.sanitize(struct.pack("<HH", 0x8000, 0x105).ljust(512, b"\0")) == logs.Sanitize(
        state="of an unknown state", progress=0.5
    )


@pytest.fixture
def devices(loops: Loops) -> tuple[Path, Path]:
    """The checked device and another one."""
    return loops.attach(loops.image("checked")), loops.attach(loops.image("other"))


@pytest.fixture
def namespaces(devices: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The kernel calls both devices NVMe namespaces, number 1 and 2."""
    fake = Kernel(states=[(DONE, 0xFFFF)] * 2)
    fake.namespaces = {number_of(device): number for number, device in enumerate(devices, start=1)}
    for number, namespace in fake.namespaces.items():
        (tmp_path / f"nvme7n{namespace}").mkdir()
        (tmp_path / number).symlink_to(tmp_path / f"nvme7n{namespace}")
    monkeypatch.setattr(admin, "_SYS", tmp_path)
    monkeypatch.setattr("fcntl.ioctl", fake.ioctl)
    return fake


def erase(means: str, path: Path, identity: str) -> None:
    target = {"kind": "device", "path": str(path), "size_bytes": 1 << 20}
    purge.purge(target, means, identities={str(path): identity}, report=lambda _: None)


@pytest.mark.system
@pytest.mark.needs("loop devices")
@pytest.mark.parametrize(("means", "opcode", "namespace"), [("format", FORMAT, 1), ("sanitize", SANITIZE, 0)])
@pytest.mark.parametrize("name", ["link", "node"])
def test_the_checked_device_is_erased_wherever_its_name_leads_now(
    namespaces: Kernel, devices: tuple[Path, Path], tmp_path: Path, means: str, opcode: int, namespace: int, name: str
) -> None:
    """The name is that of the other namespace, and leads there; the number was recorded when the device was checked."""
    checked, other = devices
    path = tmp_path / "dev" / "nvme7n2"
    path.parent.mkdir()
    if name == "link":
        path.symlink_to(other)
    else:
        os.mknod(path, other.stat().st_mode, other.stat().st_rdev)
    erase(means, path, number_of(checked))
    assert namespaces.erased == [(number_of(checked), opcode, namespace)]


@pytest.mark.system
@pytest.mark.needs("loop devices")
@pytest.mark.parametrize("means", ["format", "sanitize"])
def test_a_device_that_is_no_namespace_gets_no_command(
    namespaces: Kernel, devices: tuple[Path, Path], tmp_path: Path, means: str
) -> None:
    """A partition has the number of its namespace, and a node may have any name."""
    number = number_of(devices[0])
    (tmp_path / number).unlink()
    (tmp_path / "nvme7n1p1").mkdir()
    (tmp_path / number).symlink_to(tmp_path / "nvme7n1p1")
    with pytest.raises(OSError, match="`nvme7n1p1` is not an NVMe drive"):
        erase(means, tmp_path / "nvme7n1", number)
    assert namespaces.erased == []
