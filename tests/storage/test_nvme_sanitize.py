"""Sanitize as the kernel is handed it, command by command; no drive of the lab has it, so the kernel's edge is a fake."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from iosonde.storage.nvme import admin, logs
from iosonde.storage.nvme.format import can_format
from iosonde.storage.nvme.sanitize import can_sanitize, sanitize

COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
"""`struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`, 72 bytes."""
CRYPTO, BLOCK, OVERWRITE = 1, 2, 4
NEVER, DONE, IN_PROGRESS, FAILED = 0, 1, 2, 3
MANAGES_NAMESPACES = 1 << 3


@dataclass
class Kernel:
    """In place of ioctl(2): keeps commands, and answers as a drive would."""

    capabilities: int = BLOCK
    active: tuple[int, ...] = (1,)
    allocated: tuple[int, ...] | None = None
    """None for a drive that does not manage namespaces."""
    states: list[tuple[int, int]] = field(default_factory=list)
    """Status and progress of 65536, of one look after the other."""
    sanitized: list[bytes] = field(default_factory=list)
    flushed: int = 0

    def ioctl(self, _descriptor: int, request: int, command: bytearray | None = None) -> int:
        if command is None:
            assert request == 0x1261
            self.flushed += 1
            return 0
        assert (request, len(command)) == (0xC0484E41, 72)
        opcode, _, _, namespace, _, _, _, address, _, length, cdw10, *_ = COMMAND.unpack(command)
        if opcode == 0x84:
            self.sanitized.append(bytes(command))
            return 0
        page = self._page(opcode, namespace, cdw10)
        ctypes.memmove(address, page.ljust(length, b"\0"), length)
        return 0

    def _page(self, opcode: int, namespace: int, cdw10: int) -> bytes:
        if opcode == 0x06:
            assert namespace == 0
            return {
                0x01: self._controller,
                0x02: lambda: _list(self.active),
                0x10: lambda: _list(self.allocated or ()),
            }[cdw10]()
        assert (opcode, cdw10) == (0x02, 0x81 | (512 // 4 - 1) << 16)
        status, progress = self.states.pop(0)
        return struct.pack("<HH", progress, status)

    def _controller(self) -> bytes:
        page = bytearray(4096)
        struct.pack_into("<H", page, 256, 0 if self.allocated is None else MANAGES_NAMESPACES)
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
