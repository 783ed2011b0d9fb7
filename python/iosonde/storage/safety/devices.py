"""Every block device of this machine: its properties, its uses, and whether it may be written (`guard.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.safety import consent, guard
from iosonde.tools import ask, find


@dataclass(frozen=True, kw_only=True)
class DevicePart:
    """The uses of a disk or of one of its partitions."""

    name: str
    size_bytes: int
    mounted_at: list[str] = field(default_factory=list)
    is_swap: bool = False
    holders: list[str] = field(default_factory=list)
    """Devices built on it: dm, md, bcache."""
    signature: str = ""
    """Signature found by blkid, such as `ext4`; empty also if blkid is missing or cannot read."""

    @property
    def uses(self) -> list[str]:
        """Clauses about its uses."""
        clauses = [f"is mounted at `{point}`" for point in self.mounted_at]
        clauses += ["is swap"] if self.is_swap else []
        clauses += [f"is part of `{holder}`" for holder in self.holders]
        return clauses or ([f"contains {self.signature}"] if self.signature else [])


@dataclass(frozen=True, kw_only=True)
class Device:
    """A block device that is not a partition."""

    name: str
    facts: dict[str, Any]
    """As `block_stack.describe` has them."""
    model: str
    serial: str
    parts: list[DevicePart]
    """The device itself, then its partitions."""
    refusals: list[str]
    """Reasons that forbid writing to it; empty if writes are allowed."""
    contents: str
    """Its contents that would be lost, for a reader."""
    problem: str = ""
    """Error that prevented the check; then it is unknown if it may be written."""

    @property
    def directory(self) -> str | None:
        """A mounted directory on it, where files may be measured instead."""
        return next((point for part in self.parts for point in part.mounted_at), None)


def devices() -> list[Device]:
    """All block devices, by name."""
    kernel = Kernel()
    return [_device(number, kernel) for number in block_stack.all_devices()]


def _device(number: str, kernel: Kernel) -> Device:
    problem = ""
    try:
        findings = guard.examine(number, kernel=kernel)
    except TargetError as error:
        problem = str(error.what)
        findings = guard.examine(number, kernel=kernel, read_contents=False)
    return Device(
        refusals=findings.refusals,
        contents=consent.contents(findings),
        problem=problem,
        name=block_stack.name_of(number),
        facts=block_stack.describe(number),
        model=block_stack.model(number),
        serial=block_stack.serial(number),
        parts=[_part(each, kernel) for each in (number, *block_stack.partitions(number))],
    )


def _part(number: str, kernel: Kernel) -> DevicePart:
    name = block_stack.name_of(number)
    return DevicePart(
        name=name,
        size_bytes=block_stack.size_bytes(number),
        mounted_at=list(dict.fromkeys(mount.point for mount in kernel.mounted.get(number, []))),
        is_swap=number in kernel.swaps,
        holders=block_stack.holders(number),
        signature=_signature(name),
    )


def _signature(name: str) -> str:
    tool = find("blkid")
    if tool is None:
        return ""
    answer = ask(tool, "--probe", "--output", "export", f"/dev/{name}")
    if answer is None:
        return ""
    found = dict(line.partition("=")[::2] for line in answer.stdout.splitlines())
    return found.get("TYPE") or (f"a {found['PTTYPE']} partition table" if "PTTYPE" in found else "")
