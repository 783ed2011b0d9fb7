"""Block devices that the user named: one that is measured raw, or several under a setup.

Their names are resolved once, when the target is opened. From then on a device is its number: what was examined is what
is claimed, written and wiped, wherever a name leads later. They pass the guard (`guard.py`) when the target is
opened and again when a session starts, which also needs the user's consent. From then to its end each is claimed.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from iosonde.base.text_files import expanded
from iosonde.errors import TargetError, os_errors
from iosonde.plan import Destroys, Purge, Setup
from iosonde.storage import pcie
from iosonde.storage.block_layer import block_stack, signatures
from iosonde.storage.block_layer.block_nodes import check_name, node_of, number_of, sys_path
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.nvme import can_format, can_sanitize
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.guard import Claims, Consent, underlying
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.setups import file_systems
from iosonde.storage.targets import target
from iosonde.storage.targets.setup_target import DeviceProvider, Provided, SetupTarget
from iosonde.storage.targets.target import SIDE_BY_SIDE, Files, IoMode, Target
from iosonde.units import format_bytes

RETURN_S = 10.0
"""Time that udev may take to create the links of a device that was returned to its driver."""


def open_devices(names: list[str]) -> DeviceTarget:
    """The target that is these devices; `TargetError` for the first that must not be written."""
    devices = [expanded(name).absolute() for name in names]
    numbers = [number_of(device) for device in devices]
    for name, number in zip(names, numbers, strict=True):
        if not number:
            raise TargetError(
                f"`{name}` is not a block device",
                hint="targets separated by commas are block devices; `iosonde devices` lists them",
            )
    _check_different(names, numbers)
    target = DeviceTarget(
        devices=dict(zip(numbers, devices, strict=True)),
        incarnations={number: block_stack.incarnation(number) for number in numbers},
        hardware={number: _hardware(number) for number in numbers},
    )
    target.examine()
    return target


@dataclass(frozen=True, kw_only=True)
class DeviceTarget(Target, DeviceProvider):
    """Block devices. Without a setup there is one, and it is measured raw; a setup takes the first ones."""

    devices: Mapping[str, Path]
    """As the user named them, absolute, by the device that each name led to when the target was opened."""
    incarnations: dict[str, str]
    """`block_stack.incarnation` of each at that time, or since its return from the user-level driver."""
    hardware: Mapping[str, str]
    """`_hardware` of each at that time."""
    own: str = field(default_factory=lambda: f"iosonde-{secrets.token_hex(4)}")
    claims: Claims = field(default_factory=Claims, compare=False, repr=False)
    _returned: set[str] = field(default_factory=set, compare=False, repr=False)
    """Devices that were handed over to the user-level driver and returned."""
    _given: list[str] = field(default_factory=list, compare=False, repr=False)
    """Devices that a setup uses, which are not claimed meanwhile."""
    is_exclusive: ClassVar[bool] = True
    kind: Literal["device"] = "device"

    @property
    def name(self) -> str:  # type: ignore[override]
        """The devices with commas between them."""
        return ",".join(map(str, self.devices.values()))

    @property
    def numbers(self) -> list[str]:
        """The devices as `major:minor`, in the order of their names."""
        return list(self.devices)

    def examine(self) -> list[guard.Findings]:
        """Return the guard's findings about each; `TargetError` for one that must not be written."""
        found = []
        kernel = Kernel()
        for device, number in self.named():
            if not os.access(device, os.R_OK | os.W_OK):
                raise TargetError(f"you may not write to `{device}`", hint="run iosonde as root")
            findings = guard.examine(number, kernel=kernel)
            hint = "`iosonde devices` shows the users of each device; nothing was written"
            for point in findings.mounted_at[:1]:
                hint = f"name a directory on it, such as `{point}`, to measure files there"
            if findings.refusals:
                raise guard.InUseError(
                    f"`{device}` must not be written: {findings.refusals[0]}",
                    where="; ".join(findings.refusals[1:]),
                    hint=hint,
                )
            found.append(findings)
        return found

    def named(self) -> Iterator[tuple[Path, str]]:
        """Each name and its device; `TargetError` for a name that leads to another device by now."""
        for number, device in self.devices.items():
            check_name(device, number)
            self._check_same(number)
            yield device, number

    def take(self, number: str) -> None:
        """Claim a device again that was released; `TargetError` if another disk has its number by now."""
        self.claims.take(number, str(self.devices[number]))
        try:
            self._check_same(number)
        except TargetError:
            self.claims.release(number)
            raise

    def returned(self, number: str) -> None:
        """Claim a device again that was returned to the kernel's driver; `TargetError` if another has its name.

        The handover has compared serial numbers, but the kernel may give namespaces other names than before, since it
        looks for them asynchronously. A removed device stays unclaimed, and the next run fails.
        """
        device = self.devices[number]
        deadline = time.monotonic() + RETURN_S
        while not number_of(device):  # udev creates links such as /dev/disk/by-id after the kernel's node.
            if not sys_path(number).exists() or time.monotonic() > deadline:
                return
            time.sleep(0.05)
        check_name(device, number)
        self.claims.take(number, str(device))
        if _hardware(number) != self.hardware[number]:
            self.claims.release(number)
            raise _other_device(device)
        self.incarnations[number] = block_stack.incarnation(number)
        self._returned.add(number)

    def _check_same(self, number: str) -> None:
        if block_stack.incarnation(number) != self.incarnations[number]:
            raise _other_device(self.devices[number])

    def recheck(self) -> None:
        """`TargetError` if a claimed device came into use, or a name leads to another device by now.

        An exclusive claim does not prevent everything: a loop device can be attached to a claimed device and mounted.
        A device under a file system or an array of ours is not claimed, and in use by us.
        """
        kernel = Kernel()
        for device, number in self.named():
            if number in self.claims.descriptors:
                _check_unused(str(device), number, kernel)
                self._check_shared_claim(str(device), number)

    def _check_shared_claim(self, name: str, number: str) -> None:
        """`TargetError` if the process whose claim this one relies on has ended."""
        if self.claims.is_shared and not guard.is_claimed(number):
            raise TargetError(
                f"`{name}` is not claimed any more by the first host of this machine",
                hint="completed runs are kept; continue with `iosonde resume DIR --hosts HOSTS`",
            )

    @contextmanager
    def claimed(self, given: Consent, *, keep: bool = False) -> Iterator[None]:
        """Claim all of them, if the user's consent is sufficient and the guard still accepts them.

        At the end the edges of written devices are zeroed, unless they are to be kept.
        """
        names = {number: str(device) for device, number in self.named()}
        below = {each: f"/dev/{block_stack.name_of(each)}" for number in names for each in underlying(number, Kernel())}
        self.claims.is_shared = guard.shares_claims()
        with self.claims.held(names | below):
            # No other program can claim them any more. An open device keeps its number, so what is examined here is
            # what stays claimed.
            kernel = Kernel()
            refused = []
            for device, number in self.named():
                self._check_shared_claim(str(device), number)
                findings = guard.examine(number, kernel=kernel, is_claimed_by_us=True)
                if findings.refusals:
                    raise guard.InUseError(f"`{device}` must not be written: {findings.refusals[0]}")
                if error := guard.refusal(str(device), findings, given):
                    refused.append(error)
            if refused:
                raise guard.together(refused)
            before = {number: _written_sectors(number) for number in self.numbers}
            try:
                yield
            finally:
                # The kernel counts from zero after a handover, and does not see what the user-level driver writes.
                written = [
                    number
                    for number in self.numbers
                    if number in self._returned or _written_sectors(number) != before[number]
                ]
                self._wipe_unused({} if keep else {number: names[number] for number in written})

    def _wipe_unused(self, names: dict[str, str]) -> None:
        """Zero the edges of devices, but of none that has come into use or was replaced, which is an error."""
        problem = None
        for number, name in names.items():
            try:
                self.take(number)
                _check_unused(name, number, Kernel())
                self.wipe(number)
            except TargetError as error:
                problem = error
        if problem:
            raise problem

    def called(self, own: str) -> DeviceTarget:
        """The target with that name of its mount points and links."""
        return replace(self, own=own or self.own)

    def numbers_by_name(self) -> dict[str, str]:
        """The device that each name was resolved to."""
        return {str(device): number for number, device in self.devices.items()}

    def device_count(self) -> int:
        """Devices."""
        return len(self.devices)

    def notes(self) -> list[str]:
        """Notes for the user before a study starts."""
        found = []
        sizes = self._sizes()
        if len(set(sizes)) > 1:
            named = zip(self.devices.values(), sizes, strict=True)
            listed = ", ".join(f"`{each}` {format_bytes(size)}" for each, size in named)
            found.append(f"the devices differ in size ({listed}): in an array the smallest counts")
        for device, findings in zip(self.devices.values(), self.examine(), strict=True):
            held = findings.contents
            found += [f"`{device}` contains {held}"] if held else []
        disks = {number: block_stack.describe(number) for number in map(block_stack.disk_of, self.numbers)}
        return [*found, *(str(link) for link in pcie.shared_links(list(disks.values())) if link.is_narrow)]

    def asks(self) -> list[str]:
        """The device by name, and its serial number or size if it has contents."""
        looked = zip(self.devices.values(), self.examine(), strict=True)
        return [each for device, found in looked for each in guard.missing(str(device), found, guard.NO_CONSENT)]

    def with_setup(self, setup: Setup) -> Target:
        """The target with a setup on the first of them."""
        target.check_layers(setup)
        file_systems.check_possible(setup)
        return SetupTarget(provider=self, setup=setup, own=self.own)

    def check_on_hosts(self, setup: Setup | None) -> None:
        """All hosts measure one raw device: what is created on it belongs to one of them."""
        if len(self.devices) > 1:
            super().check_on_hosts(setup)
        if setup:
            raise TargetError(
                f"hosts share `{self.name}`, but only one of them can use it as {setup.text}",
                where="by the parameters of its setup",
                hint="create it on the machine that owns the device, export it to the hosts, and name the export "
                "`nfs:SERVER:/EXPORT`, or the connected device, as the target",
            )

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Its size, and what direct I/O can do."""
        self._raw.check(bytes_needed, block_sizes, io_mode)

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The device itself, or all of them."""
        if files == "per_device":
            path, *beside = map(str, self.devices.values())
            return {"kind": "device", "path": path, "beside": beside, "size_bytes": size_bytes}
        if len(self.devices) > 1:
            raise TargetError(
                f"the study measures one device, and the target is {len(self.devices)}",
                hint="name one, combine them in a setup (docs/arrays.md), or run `shared-limits` (docs/limits.md)",
            )
        if files == "per_job":
            self._raw.spec_target(files, size_bytes)
        return {"kind": "device", "path": self.name, "size_bytes": size_bytes}

    def side_by_side(self, size_bytes: int) -> Target:
        """The devices that the user named."""
        return self if len(self.devices) in SIDE_BY_SIDE else super().side_by_side(size_bytes)

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """The measured part of each device, and its edges, so that no signature remains."""
        return self._ranges(self.numbers, size_bytes)

    def free_bytes(self) -> int:
        """The smallest device, which is what counts in an array."""
        return min(self._sizes())

    def purges(self) -> list[Purge]:
        """A format, of one NVMe namespace, and a sanitize, if it has its drive for itself; discards, where every one
        takes them."""
        can = all(block_stack.describe(block_stack.disk_of(number)).get("discard_max_bytes") for number in self.numbers)
        found: list[Purge] = ["trim", "overwrite"] if can else ["overwrite"]
        if len(self.devices) > 1:
            return found
        name = block_stack.name_of(self.numbers[0])
        own: dict[Purge, bool] = {"format": can_format(name), "sanitize": can_sanitize(name)}
        return [*(means for means, is_offered in own.items() if is_offered), *found]

    def direct_unit(self) -> int:
        """The largest of their logical sectors."""
        return max(map(block_stack.logical_block_bytes, self.numbers))

    def block_devices(self) -> list[str]:
        """Each with what is under it."""
        return block_stack.watched(self._stack())

    def describe(self) -> dict[str, Any]:
        """The devices."""
        devices = [block_stack.describe(device) for device in self._stack()]
        return {"kind": self.kind, "name": self.name, "size_bytes": self.free_bytes(), "devices": devices}

    def _stack(self) -> list[str]:
        return block_stack.stack_under(*self.numbers)

    def wipe(self, number: str, *, measured: bool = True) -> None:
        """Zero the edges of a claimed device, mark it if it was measured; `TargetError` if it does not take that."""
        wipe = signatures.wipe_measured if measured else signatures.wipe_edges
        with os_errors(
            f"cannot zero the first and last MiB of `{self.devices[number]}`",
            where="signatures of what was measured may remain",
            hint="completed runs are kept; see the kernel log (`dmesg`)",
        ):
            wipe(self.claims.descriptors[number])

    @property
    def _raw(self) -> SetupTarget:
        return SetupTarget(provider=self, setup=Setup(), own=self.own)

    def _sizes(self) -> list[int]:
        return [block_stack.size_bytes(number) for number in self.numbers]

    def _ranges(self, numbers: Sequence[str], size_bytes: int | None) -> list[Destroys]:
        sizes = {number: block_stack.size_bytes(number) for number in numbers}
        return [_range(self.devices[number], size_bytes or size, size) for number, size in sizes.items()]

    def smallest_bytes(self, setup: Setup) -> int:
        """Of those that hold data; the further device of a layer may be smaller."""
        return min(self._sizes()[: setup.devices])

    def loses(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """The measured part of a raw device, or all of every device under a file system or array."""
        return self._ranges(self._used(setup), measured_bytes)

    def provide(self, setup: Setup) -> Provided:
        """Release the devices, so that an array or a file system can claim them."""
        used = self._used(setup)
        nodes = [node_of(number) for number in used]
        for number, node in zip(used, nodes, strict=True):
            facts = {"own": self.own, "device": str(node), "identity": _identity(number)}
            journal.created(_entry(number, self.own), "device", facts=facts)
            self.claims.release(number)
            self._given.append(number)
        sizes = zip(used, self._sizes(), strict=False)
        return Provided(
            devices=nodes[: setup.devices],
            journal_device=nodes[setup.devices] if setup.journal == "external" else None,
            further=nodes[len(nodes) - _further_devices(setup) :],
            facts=[{"device": str(self.devices[each]), "kind": "device", "size_bytes": size} for each, size in sizes],
        )

    def release(self) -> None:
        """Claim them again, and wipe what the setup wrote to them; `TargetError` where one was removed or replaced."""
        problem = None
        while self._given:
            number = self._given.pop()
            try:
                self.take(number)
                self.wipe(number)
            except TargetError as error:
                problem = error
            else:
                journal.removed(_entry(number, self.own))
        if problem:
            raise problem

    def _used(self, setup: Setup) -> list[str]:
        count = setup.devices + (setup.journal == "external") + _further_devices(setup)
        if count > len(self.devices):
            raise TargetError(
                f"{setup.text} needs {count} devices, and the target has {len(self.devices)}",
                hint="name them in this order: those of the setup, the external journal, those of the layers over it",
            )
        return self.numbers[:count]


def _further_devices(setup: Setup) -> int:
    return sum(len(part.further_bytes(0)) for part in setup.layers)


def undo(entry: journal.Entry) -> None:
    """After a kill: wipe a device under a setup, if it is still that device, unused, and has our file system.

    Ours is the file system, or the label of an object daemon, whose UUID follows from the name of the setup; anything
    else is left as it is.
    """
    own = str(entry.facts["own"])
    device = Path(entry.facts["device"])
    number = number_of(device)
    if not number or _identity(number) != entry.facts["identity"]:
        return
    if guard.is_claimed(number):
        raise OSError(errno.EBUSY, f"`{device}` is still in use")
    ours = {file_systems.uuid_of(own, "data"), file_systems.uuid_of(own, "journal")}
    claims = Claims()
    with claims.held({number: str(device)}):
        if not any(guard.uses(number, Kernel())) and file_systems.has_osd_label(claims.descriptors[number], own):
            signatures.wipe_measured(claims.descriptors[number])  # The guard refuses members of any Ceph cluster.
            return
        findings = guard.examine(number, is_claimed_by_us=True)
        found = {each.uuid for each in findings.signatures}
        if not findings.refusals and found and found <= ours:
            signatures.wipe_measured(claims.descriptors[number])


def _check_unused(name: str, number: str, kernel: Kernel) -> None:
    found = list(guard.uses(number, kernel))
    if found:
        raise TargetError(
            f"`{name}` came into use during the study: {found[0]}",
            where="; ".join(found[1:]),
            hint="completed runs are kept; stop that use, then continue with `iosonde resume DIR`",
        )


def _entry(number: str, own: str) -> Path:
    """The path of its journal entry; there is no such file."""
    return MOUNTS / own / f"on-{block_stack.name_of(number)}"


def _other_device(device: Path) -> TargetError:
    return TargetError(
        f"`{device}` is not the device that was checked: it was removed, or another disk has its name and number by "
        "now",
        hint="nothing was written since; `iosonde devices` lists the devices",
    )


def _hardware(number: str) -> str:
    """Return the identity of a disk, and of a namespace of its controller, whatever its name and number."""
    return f"{block_stack.wwid(number)} / {_identity(number)}"


def _identity(number: str) -> str:
    """Properties of a device that survive a restart, unlike its name."""
    facts = [block_stack.model(number), block_stack.serial(number), str(block_stack.size_bytes(number))]
    return " / ".join(facts)


def _written_sectors(number: str) -> int:
    """Since the machine started (kernel `Documentation/block/stat.rst`)."""
    try:
        return int((sys_path(number) / "stat").read_text(encoding="utf-8").split()[6])
    except (OSError, IndexError, ValueError):
        return -1


def _range(device: Path, size_bytes: int, device_bytes: int) -> Destroys:
    size_bytes = max(size_bytes, signatures.EDGE_BYTES)  # So much is wiped at the end in any case.
    whole = "all of it" if size_bytes >= device_bytes else f"{format_bytes(size_bytes)} of {format_bytes(device_bytes)}"
    edges = (
        ""
        if size_bytes >= device_bytes
        else f", and zeros go to bytes {device_bytes - signatures.EDGE_BYTES} to {device_bytes - 1}"
    )
    return Destroys(path=str(device), what=f"bytes 0 to {min(size_bytes, device_bytes) - 1} are lost ({whole}){edges}")


def _check_different(names: Sequence[str], numbers: Sequence[str]) -> None:
    for index, (name, number) in enumerate(zip(names, numbers, strict=True)):
        for other, earlier in zip(names[:index], numbers[:index], strict=True):
            same = number == earlier or _are_paths_to_one_disk(number, earlier)
            if same or block_stack.disk_of(number) == earlier or block_stack.disk_of(earlier) == number:
                why = "are the same device" if same else "overlap: one is a part of the other"
                raise TargetError(f"`{other}` and `{name}` {why}", hint="name each device once")


def _are_paths_to_one_disk(one: str, other: str) -> bool:
    wwids = [block_stack.wwid(number) for number in (one, other) if not block_stack.is_partition(number)]
    return len(wwids) == 2 and wwids[0] == wwids[1] != ""
