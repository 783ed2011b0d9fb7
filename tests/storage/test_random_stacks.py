"""Random stacks of loop devices, partitions, file systems and swap: nothing but the named device is ever written.

Each round builds a stack on files, names a random device of it (half of the time by a link that is made to lead
elsewhere at a random moment), opens it as a target with every consent, and overwrites all of it if that is accepted.
Then every byte of the files is compared: only those of the named device may have changed, and none that was in use.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from loop_stacks import MIB, SWAP_BYTES, Loops, run
from needs import BTRFS

from iosonde.errors import TargetError
from iosonde.storage import open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.guard import Consent
from iosonde.storage.targets.device_target import DeviceTarget

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices"), BTRFS]

FILES = 2
SECTOR = 512
FILE_BYTES = 40 * MIB
SMALLEST = {"ext4": 4 * MIB, "btrfs": 18 * MIB, "swap": 2 * MIB}
PATTERN = bytes(reversed(range(256)))
MOMENTS = ("before it is opened", "after it was opened", "while it is claimed", "never")


@dataclass(frozen=True)
class Range:
    """Bytes of one of the files."""

    file: int
    start: int
    end: int

    def overlaps(self, other: Range) -> bool:
        return self.file == other.file and self.start < other.end and other.start < self.end

    def part(self, offset: int, size: int) -> Range:
        return Range(self.file, self.start + offset, min(self.end, self.start + offset + size))

    def of(self, data: bytes) -> bytes:
        return data[self.start : self.end]

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass
class Stack:
    """A random stack of devices, with the byte ranges of each part."""

    loops: Loops
    chance: random.Random
    files: list[Path] = field(default_factory=list)
    devices: dict[Path, Range] = field(default_factory=dict)
    used: list[Range] = field(default_factory=list)
    swaps: list[Range] = field(default_factory=list)
    """Ranges that the kernel itself may write to at any time: active swap."""
    steps: list[str] = field(default_factory=list)

    def build(self) -> None:
        for number in range(FILES):
            file = self.loops.directory / f"file-{number}"
            file.write_bytes(self.chance.randbytes(MIB) * (FILE_BYTES // MIB))
            self.files.append(file)
        self.attach_file()
        steps = [self.attach_file, self.attach_device, self.partition, self.file_system, self.file_system, self.swap]
        for _ in range(self.chance.randint(1, 6)):
            self.chance.choice(steps)()

    def attach_file(self) -> None:
        number = self.chance.randrange(FILES)
        whole = Range(number, 0, FILE_BYTES)
        offset, size = self._part_of(whole)
        self._add(self.loops.attach(self.files[number], offset=offset, size=size), whole.part(offset, size))

    def attach_device(self) -> None:
        lower = self.chance.choice(list(self.devices))
        offset, size = self._part_of(self.devices[lower])
        node = self.loops.node(lower, f"node-{len(self.devices)}")
        self._add(self.loops.attach(node, offset=offset, size=size), self.devices[lower].part(offset, size))
        if self.chance.random() < 0.5:
            node.unlink()

    def partition(self) -> None:
        disks = [each for each in self.devices if "p" not in each.name.removeprefix("loop")]
        disk = self.chance.choice(disks)
        offset, size = self._part_of(self.devices[disk])
        with contextlib.suppress(AssertionError):  # It overlaps another partition, or the disk is in use.
            partition = self.loops.partition(disk, len(self.devices) + 1, offset, size)
            self._add(partition, self.devices[disk].part(offset, size))

    def file_system(self) -> None:
        kind = self.chance.choice(["ext4", "btrfs"])
        device = self._unused(SMALLEST[kind])
        if device is None:
            return
        run(f"mkfs.{kind}", *(["-q", "-F"] if kind == "ext4" else ["-q", "-f", "--mixed"]), device)
        directory = self.loops.directory / f"mounted-{len(self.used)}"
        directory.mkdir()
        run("mount", "-o", "ro", device, directory)
        self.loops.at_end("umount", directory)
        self._use(device, kind)

    def swap(self) -> None:
        device = self._unused(SMALLEST["swap"])
        if device is not None:
            self.loops.swap(device)
            self.swaps.append(self.devices[device].part(0, SWAP_BYTES))
            self._use(device, "swap")

    def _unused(self, size: int) -> Path | None:
        large = [device for device, range_ in self.devices.items() if range_.size >= size]
        free = [device for device in large if not any(self.devices[device].overlaps(each) for each in self.used)]
        return self.chance.choice(free) if free else None

    def _part_of(self, whole: Range) -> tuple[int, int]:
        """Offset and size of a part, or of all."""
        if self.chance.random() < 0.4 or whole.size < 4 * MIB:
            return 0, whole.size
        offset = self.chance.randrange(whole.size // MIB - 2) * MIB
        return offset, self.chance.randint(2, (whole.size - offset) // MIB) * MIB

    def _add(self, device: Path, range_: Range) -> None:
        self.devices[device] = range_
        self.steps.append(f"{device.name} = file {range_.file}, {range_.start // MIB} to {range_.end // MIB} MiB")

    def _use(self, device: Path, what: str) -> None:
        self.used.append(self.devices[device])
        self.steps.append(f"{device.name}: {what}")


def explore_one(seed: int) -> str:
    """One round -> what became of it; `AssertionError` with the seed and the stack if a byte changed that must not."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, contextlib.closing(Loops(Path(directory))) as loops:
        stack = Stack(loops, chance)
        stack.build()
        os.sync()
        before = [file.read_bytes() for file in stack.files]
        named, outcome = _write(stack)
        os.sync()
        for number, file in enumerate(stack.files):
            after = file.read_bytes()
            assert len(before[number]) == len(after), "the size of a file changed"
            starts = range(0, len(after), SECTOR) if before[number] != after else range(0)
            sectors = (Range(number, start, start + SECTOR) for start in starts)
            changed = [each for each in sectors if each.of(before[number]) != each.of(after)]
            for each in changed:
                is_named = named is not None and stack.devices[named].overlaps(each)
                is_used = any(each.overlaps(used) for used in stack.used)
                is_swapped = any(each.overlaps(swap) for swap in stack.swaps) and PATTERN not in each.of(after)
                assert is_swapped or (is_named and not is_used), (
                    f"seed {seed}: byte {each.start} of file {number} changed ({outcome}; named: {named}); "
                    f"stack: {stack.steps}"
                )
            if named and stack.devices[named].file == number and outcome == "written":
                assert changed, f"seed {seed}: nothing was written to {named}"
    return outcome


def _write(stack: Stack) -> tuple[Path | None, str]:
    """Name a device, and overwrite it if that is accepted -> what was named, and what became of it."""
    chance = stack.chance
    device, other = chance.choice(list(stack.devices)), chance.choice(list(stack.devices))
    name, moment = device, "never"
    if chance.random() < 0.5:
        name, moment = stack.loops.directory / "link", chance.choice(MOMENTS)
        name.symlink_to(device)

    def pass_by(now: str) -> None:
        if now == moment:
            name.unlink()
            name.symlink_to(other)

    pass_by("before it is opened")
    named = Path(f"/dev/{name.resolve().name}")
    consent = Consent(destroy=(str(named),), confirm=(str(stack.devices[named].size),))
    try:
        target = open_target(str(name))
        assert isinstance(target, DeviceTarget)
        pass_by("after it was opened")
        with target.claimed(consent):
            pass_by("while it is claimed")
            descriptor = target.claims.descriptors[number_of(named)]
            os.pwrite(descriptor, PATTERN * (stack.devices[named].size // 256), 0)
            os.fsync(descriptor)
            target.recheck()
    except TargetError as error:
        is_renamed = "leads to" in error.what and moment == "while it is claimed"
        return (named, "stopped") if is_renamed else (None, "refused")
    return named, "written"


EXPECTED = {4: "written", 1: "refused"}


@pytest.mark.parametrize(
    "seed", [*EXPECTED, *range(100, 104), *(pytest.param(n, marks=pytest.mark.extended) for n in range(104, 304))]
)
def test_only_the_named_device_is_written_on_any_stack(seed: int) -> None:
    outcome = explore_one(seed)
    assert outcome == EXPECTED.get(seed, outcome)
