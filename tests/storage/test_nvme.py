"""Log pages of NVMe drives, and Format and Sanitize as the kernel is handed them, only for the device that was checked.

No drive is at hand that may be erased, so the kernel's edge (ioctl and the names in sysfs) is a fake. Loop devices take the
place of namespaces where descriptors and numbers decide, whatever the nodes are called.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from log_pages import FakeDrive, data_placement, endurance_group, extended, health
from loop_stacks import Loops

from iosonde.storage import nvme
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.block_layer.block_nodes import number_of, number_of_descriptor
from iosonde.storage.nvme import Drive, can_format, can_sanitize, sanitize
from iosonde.storage.targets import workspace

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
            numbers = {0x02: active, 0x10: self.allocated or ()}.get(cdw10, ())
            return self._controller() if cdw10 == 0x01 else struct.pack(f"<{len(numbers)}I", *numbers)
        assert (opcode, cdw10) == (GET_LOG_PAGE, 0x81 | (512 // 4 - 1) << 16)
        status, progress = self.states.pop(0)
        return struct.pack("<HH", progress, status)

    def _controller(self) -> bytes:
        page = bytearray(4096)
        struct.pack_into("<H", page, 256, FORMATS if self.allocated is None else MANAGES_NAMESPACES)
        struct.pack_into("<I", page, 328, self.capabilities)
        return bytes(page)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The kernel of a machine with one drive."""
    fake, drive = Kernel(), nvme.Drive(-1, namespace=1)
    monkeypatch.setattr(nvme, "opened", lambda _: nullcontext(drive))
    monkeypatch.setattr(nvme, "drive_of", lambda _: drive)
    monkeypatch.setattr("fcntl.ioctl", fake.ioctl)
    return fake


@pytest.mark.parametrize(("capabilities", "action"), [(CRYPTO | BLOCK | OVERWRITE, 2), (CRYPTO | OVERWRITE, 4)])
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


@pytest.mark.parametrize(
    ("drive", "reason"),
    [
        ({"capabilities": OVERWRITE}, "neither block erase nor crypto erase"),
        ({"active": (1, 2)}, "other namespaces, which would be lost"),  # One came after the plan.
    ],
)
def test_a_drive_that_must_not_be_sanitized_gets_no_command(kernel: Kernel, drive: dict[str, Any], reason: str) -> None:
    for name, value in drive.items():
        setattr(kernel, name, value)
    with pytest.raises(OSError, match=reason):
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


@pytest.fixture
def devices(loops: Loops) -> tuple[Path, Path]:
    """The checked device and another one."""
    return loops.attach(loops.image("checked")), loops.attach(loops.image("other"))


@pytest.fixture
def namespaces(devices: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """The kernel calls both devices NVMe namespaces, number 1 and 2."""
    fake = Kernel(states=[(DONE, 0xFFFF)] * 2)
    fake.namespaces = {number_of(device): number for number, device in enumerate(devices, start=1)}
    (tmp_path / "dev/block").mkdir(parents=True)
    for number, namespace in fake.namespaces.items():
        (tmp_path / f"nvme7n{namespace}").mkdir()
        (tmp_path / "dev/block" / number).symlink_to(tmp_path / f"nvme7n{namespace}")
    monkeypatch.setattr(block_nodes, "SYS", tmp_path)
    monkeypatch.setattr("fcntl.ioctl", fake.ioctl)
    return fake


def erase(means: str, path: Path, identity: str) -> None:
    target = {"kind": "device", "path": str(path), "size_bytes": 1 << 20}
    workspace.purge(target, means, identities={str(path): identity}, report=lambda _: None)


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
    (tmp_path / "dev/block" / number).unlink()
    (tmp_path / "nvme7n1p1").mkdir()
    (tmp_path / "dev/block" / number).symlink_to(tmp_path / "nvme7n1p1")
    with pytest.raises(OSError, match="`nvme7n1p1` is not an NVMe drive"):
        erase(means, tmp_path / "nvme7n1", number)
    assert namespaces.erased == []


Ask = Callable[[FakeDrive], dict[str, Any]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Read counters from a fake drive in place of a real one."""
    monkeypatch.setattr(nvme, "_found", {})

    def answer(drive: FakeDrive) -> dict[str, Any]:
        monkeypatch.setattr(nvme, "opened", drive.opened)
        return nvme.now("nvme0n1")

    return answer


def test_a_drive_with_the_extended_log_reports_everything(ask: Ask) -> None:
    reported = ask(FakeDrive({0x02: health(units_written=9), 0xC0: extended(written=7, read=5)}.get))
    assert reported["data_units_written"] == 9
    assert reported["media"] == {"log": "ocp", "written_bytes": 7, "read_bytes": 5, "step_bytes": 1}
    assert "not_reported" not in reported


def test_without_it_the_logs_of_the_endurance_group_are_read_by_its_number(ask: Ask) -> None:
    drive = FakeDrive({0x02: health(), 0x22: data_placement(host=1, media=2)}.get, group=3)
    assert ask(drive)["media"]["log"] == "fdp"
    assert (0x22, 3) in drive.asked
    pages = {0x02: health(), 0x09: endurance_group(media=2)}
    nvme._found.clear()
    assert ask(FakeDrive(pages.get, group=3))["media"]["written_bytes"] == 2 * 10**9
    nvme._found.clear()
    assert "media" not in ask(FakeDrive(pages.get, group=0)), "it is in no group"


def test_a_missing_log_is_requested_once(ask: Ask) -> None:
    """Each time would be an entry in the drive's error log, which some watch."""
    drive = FakeDrive({0x02: health(used=4)}.get)
    first, second = ask(drive), ask(drive)
    assert first == second
    assert first["percentage_used"] == 4
    assert first["not_reported"] == "`nvme0n1` has no log page with media writes (OCP's C0h, 22h, 09h)"
    assert [identifier for identifier, _ in drive.asked] == [0x02, 0xC0, 0x02]


def test_devices_that_are_no_nvme_drive_or_cannot_be_opened_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvme.now("loop0") == {"not_reported": "`loop0` is not an NVMe drive"}
    assert nvme.now("nvme0n1p1") == {"not_reported": "`nvme0n1p1` is not an NVMe drive"}

    @contextmanager
    def refused(_device: Path) -> Iterator[Drive]:
        raise PermissionError(errno.EACCES, "Permission denied")
        yield

    monkeypatch.setattr(nvme, "opened", refused)
    assert nvme.now("nvme0n1") == {"not_reported": "`nvme0n1` does not allow this user to read its log pages"}


def test_a_drive_that_fails_is_no_drive_without_the_log(ask: Ask) -> None:
    class Failing(FakeDrive):
        def log_page(self, identifier: int, size_bytes: int, *, specific: int = 0) -> bytes:
            if identifier == 0xC0:
                raise nvme.StatusError(0x02, 0x4006)  # Internal error.
            return super().log_page(identifier, size_bytes, specific=specific)

    reported = ask(Failing({0x02: health()}.get))
    assert reported == {"not_reported": "`nvme0n1`: the drive answered its command 0x02 with status 0x4006"}
    assert nvme._found == {}, "next time it may answer"


def test_health_is_parsed_at_its_offsets() -> None:
    page = health(kelvin=300, spare=98, used=3, units_read=7, units_written=1 << 70, hours=8760, media_errors=2)
    found = {"temperature_celsius": 27, "available_spare_percent": 98, "percentage_used": 3, "critical_warning": 0}
    counted = {"data_units_read": 7, "data_units_written": 1 << 70, "power_on_hours": 8760, "media_errors": 2}
    assert nvme.health(page) == {**found, **counted}


def test_media_counters_are_in_bytes_and_in_gigabytes() -> None:
    media = {"written_bytes": 609_651_339_018_240, "read_bytes": 567_611_790_770_176, "step_bytes": 1}
    assert nvme.extended(extended(written=609_651_339_018_240, read=567_611_790_770_176)) == media
    assert nvme.data_placement(data_placement(host=5, media=9))["written_bytes"] == 9
    counted = nvme.endurance_group(endurance_group(media=12))
    assert (counted["written_bytes"], counted["step_bytes"]) == (12 * 10**9, 10**9)
    with pytest.raises(nvme.LogError, match="leaves out"):
        nvme.endurance_group(endurance_group(media=0))


def test_a_vendor_specific_page_c0h_is_not_read_as_the_extended_log(ask: Ask) -> None:
    """The last GUID is OCP's in reverse byte order, which no drive should have."""
    for guid in (bytes(16), bytes(range(16)), bytes.fromhex("afd514c97c6f4f9ca4f2bfea2810afc5")):
        page = extended(written=1, read=1, guid=guid)
        reported = ask(FakeDrive({0x02: health(), 0xC0: page}.get))
        assert reported["not_reported"] == "`nvme0n1`: its log page C0h is vendor-specific, not OCP's"
        nvme._found.clear()
