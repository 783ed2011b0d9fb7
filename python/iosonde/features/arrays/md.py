"""Arrays of Linux md, created by mdadm.

An array has the name that iosonde uses for the study, and so has every member in its superblock. Only a superblock with
that name is erased, through the descriptor that it was read from, so a device that was renamed or reused since stays as
it is. No bitmap is used, which would be written along with the data, and which mdadm adds by itself to large arrays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.features.arrays import setup
from iosonde.features.arrays.setup import Array, ArraySetup, announce
from iosonde.storage.block_layer.block_nodes import number_of, opened, read
from iosonde.storage.safety import journal
from iosonde.storage.tools import call, patiently, require, require_root, wait_until


def state_of(folder: Path) -> dict[str, Any]:
    """Return the present state of an array, by its directory in `/sys`, such as `/sys/block/md127/md`.

    `level`, `raid_disks`, `chunk_bytes`, `array_state`, `degraded` (missing members), `sync_action`, `sync_done` (share
    from 0 to 1, while it synchronises), `sync_bytes_per_second`, and `members` with the state of each.
    """
    speed = _number(folder / "sync_speed")
    facts = {
        "level": read(folder / "level"),
        "raid_disks": _number(folder / "raid_disks"),
        "chunk_bytes": _number(folder / "chunk_size"),
        "array_state": read(folder / "array_state"),
        "degraded": _number(folder / "degraded"),
        "sync_action": read(folder / "sync_action"),
        "sync_done": share_done(read(folder / "sync_completed")),
        "sync_bytes_per_second": None if speed is None else speed * 1024,
        "members": {
            member.name.removeprefix("dev-"): read(member / "state") for member in sorted(folder.glob("dev-*"))
        },
    }
    return {name: value for name, value in facts.items() if value not in (None, "", {})}


def share_done(sync_completed: str) -> float | None:
    """Return the progress of a synchronisation: `1024 / 4096` sectors is a quarter; None where there is none."""
    done, slash, total = sync_completed.partition(" / ")
    if not slash or not done.strip().isdigit() or not total.strip().isdigit() or not int(total):
        return None
    return int(done) / int(total)


def is_synchronising(state: dict[str, Any]) -> bool:
    """Return True if members are being brought up to date."""
    return state.get("sync_action", "idle") not in ("idle", "frozen", "")


def _number(file: Path) -> int | None:
    text = read(file)
    return int(text) if text.isdigit() else None


NODES = Path("/dev/md")
SYS = Path("/sys/block")
LEVELS = {"raid0": "0", "raid1": "1", "raid10": "10", "raid5": "5", "raid6": "6"}
REDUNDANT = ("raid1", "raid10", "raid5", "raid6")
SYNC_LIMIT_S = 24 * 3600
"""The first synchronisation of large disks takes hours; longer than this it hangs."""
APPEARS_S = 60.0
SUPERBLOCK_AT = 4096
"""Place of a superblock of version 1.2."""
_SUPERBLOCK = struct.Struct("<II24x32s")
"""Magic number, version, set name (kernel `include/uapi/linux/raid/md_p.h`, `struct mdp_superblock_1`)."""
_MAGIC = 0xA92B4EFC
FASTEST_KIB = 10_000_000
"""KiB/s: nothing else is done while a study waits for a synchronisation."""


class MdArray(Array):
    """An active array of md."""

    def state(self) -> dict[str, Any]:
        """Return what the kernel reports of it."""
        return {"at": time.time(), **state_of(_folder(self.key))}

    def health(self) -> dict[str, int]:
        """Return how many members are missing; nothing of a level that cannot do without one."""
        missing = _number(SYS / self.device.name / "md/degraded")
        return {} if missing is None else {"degraded": missing}


def build(devices: Sequence[Path], array: ArraySetup, name: str) -> MdArray:
    """Create the array and bring it to its state; call `undo` if that fails."""
    check_possible()
    node = NODES / name
    if os.path.lexists(node) and _runs(node):  # An array of another owner is never taken for ours.
        raise TargetError(
            f"there is an array `{node}` already, and it is not iosonde's",
            hint=f"stop it with `mdadm --stop {node}` if it is not needed, and try again",
        )
    used = list(devices)
    sizes = setup.check_members(used, array)
    announce(node, "md", used, name=name)
    steps = [call(*create_command(node, used, array))]
    folder = _folder(node)
    waited = _bring_to_state(node, folder, used, array, steps)
    facts = {
        "kind": "md",
        "name": name,
        "device": str(node),
        "members": [str(each) for each in used],
        "member_bytes": sizes,
        **setup.unequal(sizes),
        "steps": steps,
        "synchronisation_seconds": waited,
        "state": state_of(folder),
    }
    return MdArray(device=node.resolve(), members=used, key=node, facts=facts)


def check_possible() -> None:
    """`TargetError` if this machine cannot create md arrays."""
    require_root("make an array (md)")
    require("mdadm", "make an array (md)")
    if not Path("/proc/mdstat").exists():
        with contextlib.suppress(TargetError):
            call("modprobe", "md_mod")
    if not Path("/proc/mdstat").exists():
        raise TargetError(
            "this kernel has no md",
            where='by the parameter `array_kind = "md"`',
            hint="use a kernel that has it, or `iosonde lab`, or btrfs with `--set array_kind=btrfs`",
        )


def create_command(node: Path, devices: Sequence[Path], array: ArraySetup) -> list[str]:
    """The command that creates the array; its first synchronisation starts by itself unless it is assumed clean."""
    return [
        "mdadm",
        "--create",
        str(node),
        "--run",
        f"--name={node.name}",
        "--homehost=any",
        "--metadata=1.2",
        f"--level={LEVELS[array.level]}",
        f"--raid-devices={len(devices)}",
        *([] if array.level == "raid1" else [f"--chunk={array.chunk // 1024}K"]),
        *(["--bitmap=none"] if array.level in REDUNDANT else []),
        *(["--assume-clean"] if array.level in REDUNDANT and array.state == "clean" else []),
        *map(str, devices),
    ]


def undo(entry: journal.Entry) -> None:
    """Stop the array that carries our name, if it runs, and erase our superblocks; nothing else."""
    name, node = str(entry.facts["name"]), Path(entry.path)
    ours = [Path(each) for each in entry.facts["members"] if name_on(Path(each)) == name]
    for running in _arrays_of(ours):
        try:
            patiently(partial(call, "mdadm", "--stop", running))
        except TargetError as error:
            raise OSError(errno.EBUSY, error.what) from None
    for member in ours:
        _erase(member, name)
    if node.is_symlink() and not _runs(node):  # Without udev the link remains.
        node.unlink(missing_ok=True)


def name_on(device: Path) -> str:
    """The name of the array in a device's superblock, without the host; nothing where it has none."""
    with contextlib.suppress(OSError), opened(number_of(device)) as descriptor:
        return _name_on(descriptor)
    return ""


def _name_on(descriptor: int) -> str:
    data = os.pread(descriptor, _SUPERBLOCK.size, SUPERBLOCK_AT)
    if len(data) < _SUPERBLOCK.size:
        return ""
    magic, version, name = _SUPERBLOCK.unpack(data)
    if (magic, version) != (_MAGIC, 1):
        return ""
    return str(name.split(b"\0", 1)[0].decode(errors="replace").rpartition(":")[2])


def _erase(member: Path, name: str) -> dict[str, Any]:
    return setup.erase_superblocks(member, lambda descriptor: [SUPERBLOCK_AT] if _name_on(descriptor) == name else [])


def _bring_to_state(
    node: Path, folder: Path, devices: list[Path], array: ArraySetup, steps: list[dict[str, Any]]
) -> float:
    """Wait, fail members, give one back -> seconds that the first synchronisation took."""
    waited = 0.0
    if array.level in REDUNDANT and array.state != "clean":
        waited = wait_until_idle(folder)
    failed = setup.failing_members(devices, array)
    for member in failed:
        steps.append(call("mdadm", node, "--fail", member))
        steps.append(patiently(partial(call, "mdadm", node, "--remove", member)))
    if array.state == "rebuilding":
        for member in failed:
            steps.append(_erase(member, node.name))
            steps.append(call("mdadm", node, "--add", member))
        # A thread of md starts the rebuild, some time after the command has returned.
        wait_until(
            lambda: is_synchronising(state_of(folder)) or not _number(folder / "degraded"),
            APPEARS_S,
            "the array did not start to rebuild",
        )
    return waited


def wait_until_idle(folder: Path) -> float:
    """Let it synchronise as fast as the devices can -> seconds that it took."""
    began = time.monotonic()
    pace = folder / "sync_speed_min"
    with contextlib.suppress(OSError):
        pace.write_text(str(FASTEST_KIB), encoding="utf-8")
    wait_until(
        lambda: not is_synchronising(state_of(folder)),
        SYNC_LIMIT_S,
        "the array did not synchronise",
        hint="skip it with `--set array_state=clean`, or see `/proc/mdstat`",
    )
    with contextlib.suppress(OSError):
        pace.write_text("system", encoding="utf-8")
    return round(time.monotonic() - began, 3)


def _folder(node: Path) -> Path:
    """The array's directory in `/sys`; it and its node appear shortly after mdadm has created it."""
    wait_until(lambda: _sys_of(node).is_dir(), APPEARS_S, f"`{node}` did not appear")
    return _sys_of(node)


def _sys_of(node: Path) -> Path:
    return SYS / node.resolve().name / "md"


def _runs(node: Path) -> bool:
    """Return True if a node leads to an active array; a link to a stopped one may remain."""
    return read(_sys_of(node) / "array_state") not in ("", "clear")


def _arrays_of(devices: Sequence[Path]) -> list[Path]:
    """The md arrays that run on any of these devices."""
    numbers = {number_of(device) for device in devices}
    return [
        Path("/dev", folder.parent.name)
        for folder in sorted(SYS.glob("md*/md"))
        if numbers & {read(member / "block/dev") for member in folder.glob("dev-*")}
    ]
