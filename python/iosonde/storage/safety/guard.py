"""Write guard of block devices: everything that uses a device, and everything on it that must not be lost.

All of it is read at every call, from the kernel and the device itself, and nothing is written. A device is refused

- when a file system or swap area on it, or on any device that shares data with it (`kernel.py`), is in use in any
  visible mount namespace;
- when an array, volume, cache or another loop device consists of any of its data;
- when it is a member of an array or pool that is not assembled;
- when the kernel reports that it is claimed exclusively, or that a device below it is.

Devices are compared by number and files by inode, never by path.

A device that the target names is written only if the command has `--destroy DEVICE` as well, and one with contents only
if it also repeats the device's serial number, or its size in bytes if it has none (`--confirm`).

A device that is accepted is claimed (`O_EXCL`), so that no program mounts or assembles it. The kernel grants a claim to
one open file. It is released while another program needs it (mkfs, a mount, an array). An engine inherits the
descriptor instead of claiming again, so the claim lasts as long as either process.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from iosonde.base.text_files import expanded
from iosonde.base.tools import ask, find
from iosonde.errors import TargetError, os_errors
from iosonde.storage import pcie
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import LoopStatus, number_of, open_device, opened, read, sys_path
from iosonde.storage.block_layer.block_stack import disk_of, name_of, partitions
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.block_layer.signatures import Signature, signatures
from iosonde.units import format_bytes, parse_size


class Claims:
    """Block devices that this process holds exclusively."""

    def __init__(self) -> None:
        self.descriptors: dict[str, int] = {}
        """Of all claimed devices by number, for an engine to inherit."""
        self.is_shared = False
        """True if another process of the same study holds the claims, so that this one only opens the devices."""

    def take(self, number: str, name: str) -> None:
        """Claim a device unless it is claimed already; `TargetError` if another program holds it."""
        if number in self.descriptors:
            return
        try:
            self.descriptors[number] = open_device(number, os.O_RDWR | (0 if self.is_shared else os.O_EXCL))
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise TargetError(
                    f"`{name}` is claimed exclusively by a mount, an array or another program",
                    hint="`iosonde devices` shows its users; nothing was written to it",
                ) from None
            has_vanished = error.errno in (errno.ENXIO, errno.ENODEV, errno.ENOENT)
            hint = "it was removed since it was checked" if has_vanished else "run iosonde as root"
            raise TargetError(f"cannot open `{name}`: {error.strerror}", hint=hint) from error

    def release(self, number: str) -> None:
        """Let another program claim it."""
        descriptor = self.descriptors.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)

    def release_all(self) -> None:
        """Let other programs claim all of them."""
        for number in list(self.descriptors):
            self.release(number)

    @contextmanager
    def held(self, devices: Mapping[str, str]) -> Iterator[None]:
        """Claim devices, given as names by number, and release all claims at the end."""
        try:
            for number, name in devices.items():
                self.take(number, name)
            yield
        finally:
            self.release_all()


class InUseError(TargetError):
    """A device that must not be written, whatever the user consents to."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Reasons against writing a device, and its contents."""

    number: str
    mounted_at: list[str] = field(default_factory=list)
    """Mount point of a file system that is directly on it."""
    refusals: list[str] = field(default_factory=list)
    """Clauses, each by itself a reason never to write it."""
    signatures: list[Signature] = field(default_factory=list)
    """Its contents, which the user may agree to lose."""

    @property
    def contents(self) -> str:
        """The contents for a reader; empty if none."""
        return ", ".join(dict.fromkeys(f"{each.text} on `{each.device}`" for each in self.signatures))


_shares_claims: ContextVar[bool] = ContextVar("shares_claims", default=False)


@contextmanager
def shared_claims() -> Iterator[None]:
    """Within it another process of the same study has claimed the devices of the target, or is going to (`--hosts`)."""
    token = _shares_claims.set(True)
    try:
        yield
    finally:
        _shares_claims.reset(token)


def shares_claims() -> bool:
    """Return True within `shared_claims`."""
    return _shares_claims.get()


def examine(
    number: str, *, kernel: Kernel | None = None, read_contents: bool = True, is_claimed_by_us: bool = False
) -> Findings:
    """Examine a device for anything that forbids writing it; `TargetError` if it cannot be read."""
    kernel = kernel or Kernel()
    refusals = [*uses(number, kernel), *_state(number)]
    # A device in use need not be read, and some cannot be.
    found: list[Signature] = []
    if read_contents and not refusals:
        found = [found for each in (number, *partitions(number)) for found in signatures(each, name_of(each))]
        refusals += [
            f"`{each.device}` is a member of an array or pool ({each.text})" for each in found if each.is_member
        ]
        if not refusals and not is_claimed_by_us and not shares_claims():
            refusals += _claims(number, kernel)
    points = [mount.point for each in (number, *partitions(number)) for mount in kernel.mounted.get(each, [])]
    return Findings(
        number=number,
        mounted_at=list(dict.fromkeys(points)),
        refusals=list(dict.fromkeys(refusals)),
        signatures=found,
    )


def uses(number: str, kernel: Kernel) -> Iterator[str]:
    """Every use of the device's data that the kernel reports."""
    yield from _used(number, "", kernel)
    others = [each for each in kernel.numbers if each != number and kernel.overlap(number, each)]
    for other in others:
        yield from _unreported(number, other, kernel)
    for other in others:
        yield from _stacked(number, other, kernel)
    for other in others:
        yield from _used(other, _relation(number, other, kernel), kernel)
    for extent in kernel.extents(number):
        if extent.base in kernel.swap_files:
            yield f"the file below `{name_of(number)}` is active swap (`{kernel.swap_files[extent.base]}`)"
    for loop in kernel.loops.values():
        if loop.is_disconnected:
            continue
        if loop.problem:
            yield from _unknown_file(loop, number, kernel)
        elif loop.backing_file and kernel.overlap(number, loop.file_system) and loop.number != number:
            yield f"`{name_of(loop.number)}` is backed by a file in the file system on `{name_of(loop.file_system)}`"


def _unknown_file(loop: LoopStatus, number: str, kernel: Kernel) -> Iterator[str]:
    """A loop device whose backing file may be in this device.

    The file is in a mounted file system that contains its path, which refuses the devices below it anyway. A file
    system that is mounted nowhere any more still claims its device.
    """
    devices = kernel.devices_under(loop.path)
    if devices is not None and not any(kernel.overlap(number, each) for each in devices):
        return
    name = name_of(loop.number)
    yield (
        f"the backing file of `{name}` cannot be determined ({loop.problem}) and may be on `{name_of(number)}`: "
        f"detach it with `losetup --detach /dev/{name}`"
    )


def underlying(number: str, kernel: Kernel) -> list[str]:
    """Block devices below it that are reached through loop devices only, so that no driver has claimed them."""
    members = {member for each in kernel.members.values() for member in each}
    below = {extent.base for extent in kernel.extents(number)} - members
    return sorted(below & {loop.backing_device for loop in kernel.loops.values()})


def is_claimed(number: str) -> bool:
    """Return True if the kernel refuses an exclusive open: the device, or a part of it, is claimed."""
    try:
        with opened(number, os.O_RDONLY | os.O_EXCL):
            return False
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise


def _used(number: str, relation: str, kernel: Kernel) -> Iterator[str]:
    name = f"`{name_of(number)}`{relation}"
    points = dict.fromkeys(mount.point for mount in kernel.mounted.get(number, []))
    for point in points:
        yield f"{name} is mounted at `{point}`"
    if number in kernel.btrfs_members and not points:
        yield f"{name} is a member of the mounted btrfs {kernel.btrfs_members[number]}"
    if number in kernel.swaps:
        yield f"{name} is active swap"


def _unreported(number: str, other: str, kernel: Kernel) -> Iterator[str]:
    """Volumes that are side by side on one member, and may share any of it as far as the kernel reports."""
    if kernel.is_below(other, number) or _is_above(other, number, kernel):
        return
    for each in sorted(kernel.unreported_between(number, other)):
        yield (
            f"`{name_of(other)}` has a member in common with `{name_of(number)}`, and the kernel does not "
            f"report which part of it `{name_of(each)}` uses (`dmsetup table`, which needs root)"
        )


def _stacked(number: str, other: str, kernel: Kernel) -> Iterator[str]:
    """A device that consists of the same data but is not below this one."""
    if kernel.is_below(other, number):
        return
    name, loop = name_of(other), kernel.loops.get(other)
    members = [each for each in kernel.members.get(other, []) if kernel.overlap(number, each)]
    nearest = [each for each in members if each in partitions(number) or kernel.is_below(each, number)]
    for member in nearest:
        yield f"`{name_of(member)}` is part of `{name}`"
    if loop and loop.backing_device:
        yield f"`{name}` is attached to `{name_of(loop.backing_device)}`"
    elif loop:
        below = [extent.base for extent in kernel.extents(number)]
        same = (each for each in below if each in kernel.loops and kernel.loops[each].backing_file == loop.backing_file)
        yield f"`{name}` is attached to the same file as `{name_of(next(same, number))}`"
    elif members and not nearest and not _is_above(other, number, kernel):
        yield f"`{name}` shares data with `{name_of(number)}`"


def _is_above(other: str, number: str, kernel: Kernel) -> bool:
    return any(kernel.is_below(each, other) for each in (number, *partitions(number)))


def _relation(number: str, other: str, kernel: Kernel) -> str:
    """Return how another device shares data with this one; nothing for a disk and its partitions."""
    if disk_of(other) == number or disk_of(number) == other:
        return ""
    name = name_of(number)
    if kernel.is_below(other, number):
        return f", which is below `{name}`,"
    return f", stacked on `{name}`," if _is_above(other, number, kernel) else f", which shares data with `{name}`,"


def _claims(number: str, kernel: Kernel) -> Iterator[str]:
    for each in (number, *underlying(number, kernel)):
        with os_errors(f"cannot open `{name_of(each)}`", hint="run iosonde as root"):
            is_taken = is_claimed(each)
        if is_taken:
            yield f"`{name_of(each)}` is claimed exclusively by another program"


def _state(number: str) -> Iterator[str]:
    path = sys_path(number)
    if not path.exists():
        yield "the kernel has no such device"
    elif read(path / "size") in ("", "0"):
        yield f"`{path.name}` has no size"
    elif read(path / "ro") == "1":
        yield f"`{path.name}` is read-only"


@dataclass(frozen=True, kw_only=True)
class DevicePart:
    """A disk or one of its partitions."""

    name: str
    size_bytes: int
    uses: list[str]
    """Clauses about its uses; one about the signature that blkid finds if it has none."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A block device that is not a partition."""

    facts: dict[str, Any]
    """As `block_stack.describe` has them."""
    serial: str
    parts: list[DevicePart]
    """The device itself, then its partitions."""
    findings: Findings
    problem: str = ""
    """Error that prevented the check; then it is unknown if it may be written."""


def devices() -> list[Device]:
    """All block devices, by name."""
    kernel = Kernel()
    return [_device(number, kernel) for number in block_stack.all_devices()]


def _device(number: str, kernel: Kernel) -> Device:
    problem = ""
    try:
        findings = examine(number, kernel=kernel)
    except TargetError as error:
        problem = str(error.what)
        findings = examine(number, kernel=kernel, read_contents=False)
    return Device(
        facts=block_stack.describe(number),
        serial=block_stack.serial(number),
        parts=[part_of(each, kernel) for each in (number, *partitions(number))],
        findings=findings,
        problem=problem,
    )


def part_of(number: str, kernel: Kernel) -> DevicePart:
    """Return a disk or partition with its uses."""
    name = name_of(number)
    points = dict.fromkeys(mount.point for mount in kernel.mounted.get(number, []))
    uses = [f"is mounted at `{point}`" for point in points]
    uses += ["is swap"] if number in kernel.swaps else []
    uses += [f"is part of `{holder}`" for holder in block_stack.holders(number)]
    if not uses and (signature := _signature(name)):
        uses = [f"contains {signature}"]
    return DevicePart(name=name, size_bytes=block_stack.size_bytes(number), uses=uses)


def _signature(name: str) -> str:
    tool = find("blkid")
    answer = ask(tool, "--probe", "--output", "export", f"/dev/{name}") if tool else None
    found = dict(line.partition("=")[::2] for line in answer.stdout.splitlines()) if answer else {}
    return found.get("TYPE") or (f"a {found['PTTYPE']} partition table" if "PTTYPE" in found else "")


@dataclass(frozen=True, kw_only=True)
class Consent:
    """Options of the command line."""

    destroy: tuple[str, ...] = ()
    """Devices, by any of their names."""
    confirm: tuple[str, ...] = ()
    """Serial numbers, or sizes."""
    commands: str = ""
    """Hash of the study whose external commands may be started."""
    libraries: tuple[str, ...] = ()
    """Libraries of stores outside of the system's directories that a plan which exists already may load."""
    servers: tuple[str, ...] = ()
    """Addresses of servers of the user that a plan which exists already may connect to, with the user's passwords."""


NO_CONSENT = Consent()


class ConsentError(TargetError):
    """A device that must not be overwritten yet."""

    def __init__(self, what: str, *, where: str, options: Sequence[str]) -> None:
        super().__init__(what, where=where, hint=f"to overwrite it, add {' '.join(options)}")
        self.options = tuple(options)
        """Options of the command line that are missing."""


def together(errors: Sequence[ConsentError]) -> TargetError:
    """Return one error for all devices that are refused, with the missing options of all of them."""
    if len(errors) == 1:
        return errors[0]
    found = ConsentError(
        f"{len(errors)} devices would be overwritten",
        where="\n  ".join(f"{each.what}: {each.where}" for each in errors),
        options=[option for each in errors for option in each.options],
    )
    found.hint = found.hint.replace("overwrite it", "overwrite them")
    return found


def refuse_surplus(consent: Consent, targets: Sequence[str]) -> None:
    """`TargetError` for a device that may be overwritten and is not part of any target: one of both is a mistake."""
    names = [name for target in targets for name in (target, *target.split(","))]
    numbers = {number_of(expanded(name.strip()).absolute()) for name in names} - {""}
    for text in consent.destroy:
        if not re.fullmatch(pcie.ADDRESS, text) and number_of(expanded(text).absolute()) not in numbers:
            raise TargetError(
                f"`--destroy {text}` must name a device of the target",
                where=f"the target is {' and '.join(f'`{each}`' for each in targets)}",
                hint="remove the option, or name that device as a target",
            )


def missing(name: str, findings: Findings, consent: Consent) -> list[str]:
    """Options that are still missing before a device may be written."""
    number = findings.number
    named = [number_of(expanded(text).absolute()) for text in consent.destroy]
    words = [] if number in named else [f"--destroy {name}"]
    if findings.signatures and not _is_confirmed(number, consent):
        words.append(f"--confirm {block_stack.serial(number) or block_stack.size_bytes(number)}")
    return words


def refusal(name: str, findings: Findings, consent: Consent) -> ConsentError | None:
    """Return why a device must not be overwritten yet; None with sufficient consent."""
    options = missing(name, findings, consent)
    if not options:
        return None
    held = findings.contents
    size = format_bytes(block_stack.size_bytes(findings.number))
    loses = f"contains {held}, which would be lost" if held else f"would be overwritten ({size})"
    return ConsentError(f"`{name}` {loses}", where=_identity(findings.number), options=options)


def _is_confirmed(number: str, consent: Consent) -> bool:
    serial = block_stack.serial(number)
    if serial:
        return serial in consent.confirm
    for text in consent.confirm:
        with suppress(ValueError):
            if parse_size(text) == block_stack.size_bytes(number):
                return True
    return False


def _identity(number: str) -> str:
    model = block_stack.model(number) or "no model"
    serial = block_stack.serial(number)
    return f"{model}, {f'serial {serial}' if serial else 'no serial'}, {format_bytes(block_stack.size_bytes(number))}"
