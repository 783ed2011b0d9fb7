"""Format and Sanitize reach the device that was checked: by descriptor and number, whatever its nodes are called.

No drive is at hand that may be erased, so loop devices take the place of namespaces: the kernel's edge (ioctl and the
names in sysfs) is a fake that keeps which device each command was sent to.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from loop_stacks import Loops

from iosonde.storage.block_layer.block_nodes import number_of, number_of_descriptor
from iosonde.storage.nvme import admin
from iosonde.storage.setups import purge

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]

FLUSH, NAMESPACE_NUMBER, ADMIN_COMMAND = 0x1261, 0x4E40, 0xC0484E41
FORMAT, SANITIZE, GET_LOG_PAGE, IDENTIFY = 0x80, 0x84, 0x02, 0x06


@dataclass
class Namespaces:
    """In place of ioctl(2): every device is namespace `numbers[major:minor]` of a drive of its own."""

    numbers: dict[str, int]
    erased: list[tuple[str, int, int]] = field(default_factory=list)
    """Device, opcode and namespace of each command that erases."""

    def ioctl(self, descriptor: int, request: int, command: bytearray | None = None) -> int:
        device = number_of_descriptor(descriptor)
        if request == NAMESPACE_NUMBER:
            return self.numbers[device]
        if request == FLUSH or command is None:
            return 0
        assert request == ADMIN_COMMAND
        opcode, namespace, address, cdw10 = command[0], *struct.unpack_from("<I", command, 4), *self._rest(command)
        if opcode in (FORMAT, SANITIZE):
            self.erased.append((device, opcode, namespace))
        elif opcode == IDENTIFY:
            ctypes.memmove(address, self._identify(device, cdw10), 4096)
        else:
            assert opcode == GET_LOG_PAGE
            ctypes.memmove(address, struct.pack("<HH", 0xFFFF, 1).ljust(512, b"\0"), 512)
        return 0

    def _rest(self, command: bytearray) -> tuple[int, int]:
        return struct.unpack_from("<Q", command, 24)[0], struct.unpack_from("<I", command, 40)[0]

    def _identify(self, device: str, what: int) -> bytes:
        page = bytearray(4096)
        if what == 0x01:
            struct.pack_into("<H", page, 256, 0b10)  # Format NVM is supported.
            struct.pack_into("<I", page, 328, 0b10)  # Block erase.
        elif what == 0x02:
            struct.pack_into("<I", page, 0, self.numbers[device])
        return bytes(page)


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    made.close()


@pytest.fixture
def devices(loops: Loops) -> tuple[Path, Path]:
    """The checked device and another one."""
    return loops.attach(loops.image("checked")), loops.attach(loops.image("other"))


@pytest.fixture
def namespaces(devices: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Namespaces:
    """The kernel calls both devices NVMe namespaces, number 1 and 2."""
    fake = Namespaces({number_of(device): number for number, device in enumerate(devices, start=1)})
    for number, namespace in fake.numbers.items():
        (tmp_path / f"nvme7n{namespace}").mkdir()
        (tmp_path / number).symlink_to(tmp_path / f"nvme7n{namespace}")
    monkeypatch.setattr(admin, "_SYS", tmp_path)
    monkeypatch.setattr("fcntl.ioctl", fake.ioctl)
    return fake


def erase(means: str, path: Path, identity: str) -> None:
    target = {"kind": "device", "path": str(path), "size_bytes": 1 << 20}
    purge.purge(target, means, identities={str(path): identity}, report=lambda _: None)


@pytest.mark.parametrize(("means", "opcode", "namespace"), [("format", FORMAT, 1), ("sanitize", SANITIZE, 0)])
@pytest.mark.parametrize("name", ["link", "node"])
def test_the_checked_device_is_erased_wherever_its_name_leads_now(
    namespaces: Namespaces,
    devices: tuple[Path, Path],
    tmp_path: Path,
    means: str,
    opcode: int,
    namespace: int,
    name: str,
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


@pytest.mark.parametrize("means", ["format", "sanitize"])
def test_a_device_that_is_no_namespace_gets_no_command(
    namespaces: Namespaces, devices: tuple[Path, Path], tmp_path: Path, means: str
) -> None:
    """A partition has the number of its namespace, and a node may have any name."""
    number = number_of(devices[0])
    (tmp_path / number).unlink()
    (tmp_path / "nvme7n1p1").mkdir()
    (tmp_path / number).symlink_to(tmp_path / "nvme7n1p1")
    with pytest.raises(OSError, match="`nvme7n1p1` is not an NVMe drive"):
        erase(means, tmp_path / "nvme7n1", number)
    assert namespaces.erased == []
