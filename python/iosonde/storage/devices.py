"""Every block device of this machine: what it is, what stands on it, and whether it may be written (`guard.py`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage import block_stack, consent, guard
from iosonde.storage.mounts import mounts


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What stands on a disk or on one of its partitions."""

    name: str
    size_bytes: int
    mounted_at: list[str] = field(default_factory=list)
    is_swap: bool = False
    holders: list[str] = field(default_factory=list)
    """Devices built on it: dm, md, bcache."""
    signature: str = ""
    """What blkid finds on it, such as `ext4`; empty also where blkid is missing or may not read."""

    @property
    def uses(self) -> list[str]:
        """Clauses that say what it is used for."""
        clauses = [f"is mounted at `{point}`" for point in self.mounted_at]
        clauses += ["is swap"] if self.is_swap else []
        clauses += [f"is part of `{holder}`" for holder in self.holders]
        return clauses or ([f"carries {self.signature}"] if self.signature else [])


@dataclass(frozen=True, kw_only=True)
class Device:
    """A block device that is not a partition."""

    name: str
    facts: dict[str, Any]
    """As `block_stack.describe` has them."""
    model: str
    serial: str
    standing: list[Standing]
    """The device itself, then its partitions."""
    refusals: list[str]
    """Why it must not be written; none if it may be."""
    holdings: str
    """What it holds that would be lost, for a reader."""
    problem: str = ""
    """Why it cannot be told whether it may be written."""

    @property
    def directory(self) -> str | None:
        """A mounted directory on it, where files may be measured instead."""
        return next((point for part in self.standing for point in part.mounted_at), None)


def devices() -> list[Device]:
    """All block devices, by name."""
    mounted = _mount_points()
    swaps = _swaps()
    kernel = guard.Kernel()
    return [_device(number, mounted, swaps, kernel) for number in block_stack.all_devices()]


def _device(number: str, mounted: dict[str, list[str]], swaps: set[str], kernel: guard.Kernel) -> Device:
    node, problem = Path("/dev", block_stack.name_of(number)), ""
    try:
        findings = guard.look_at(number, kernel=kernel, node=node)
    except (OSError, TargetError) as error:
        problem = str(error.what if isinstance(error, TargetError) else error.strerror)
        findings = guard.look_at(number, kernel=kernel)
    return Device(
        refusals=findings.refusals,
        holdings=consent.holdings(findings),
        problem=problem,
        name=block_stack.name_of(number),
        facts=block_stack.describe(number),
        model=block_stack.model(number),
        serial=block_stack.serial(number),
        standing=[_standing(each, mounted, swaps) for each in (number, *block_stack.partitions(number))],
    )


def _standing(number: str, mounted: dict[str, list[str]], swaps: set[str]) -> Standing:
    name = block_stack.name_of(number)
    return Standing(
        name=name,
        size_bytes=block_stack.size_bytes(number),
        mounted_at=mounted.get(number, []),
        is_swap=number in swaps,
        holders=block_stack.holders(number),
        signature=_signature(name),
    )


def _mount_points() -> dict[str, list[str]]:
    """Mount points by device number; of btrfs, whose mounts have no device, by what was mounted."""
    found: dict[str, list[str]] = {}
    for mount in mounts():
        number = mount.device if Path("/sys/dev/block", mount.device).exists() else _number(mount.source)
        if number and mount.point not in found.setdefault(number, []):
            found[number].append(mount.point)
    return found


def _swaps() -> set[str]:
    try:
        lines = Path("/proc/swaps").read_text().splitlines()[1:]
    except OSError:
        return set()
    return {number for line in lines if (number := _number(line.split()[0]))}


def _number(path: str) -> str:
    try:
        if not path.startswith("/") or not Path(path).is_block_device():
            return ""
        number = Path(path).stat().st_rdev
    except OSError:
        return ""
    return f"{os.major(number)}:{os.minor(number)}"


def _signature(name: str) -> str:
    tool = shutil.which("blkid") or shutil.which("blkid", path="/usr/sbin:/sbin")
    if tool is None:
        return ""
    asked = [tool, "--probe", "--output", "export", f"/dev/{name}"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = dict(line.partition("=")[::2] for line in answer.stdout.splitlines())
    return found.get("TYPE") or (f"a {found['PTTYPE']} partition table" if "PTTYPE" in found else "")
