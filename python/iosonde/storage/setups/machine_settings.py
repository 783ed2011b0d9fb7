"""Settings of the machine, such as those of block queues (`/sys/block/DEVICE/queue`): set for a run, restored after it.

One session changes a setting at a time, also among sessions with different journals.

Each setting has a file below `/run/iosonde`. The session that has changed the setting locks it (flock(2)), and writes
into it the value to restore, which a killed session leaves to the next one whatever journal that reads. `/run` is empty
after a reboot, which resets the settings too.

The former value of a file of a block queue is also recorded in the journal before it is changed, so `iosonde cleanup`
restores what a killed session has changed. A new scheduler resets `nr_requests`, whose value is saved with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.block_layer.block_nodes import chosen, opened, read
from iosonde.storage.block_layer.block_stack import incarnation
from iosonde.storage.safety import journal
from iosonde.storage.safety.journal import QUEUE_SETTING, Entry

DIRECTORY = Path("/run/iosonde")

_held: dict[Path, int] = {}
"""Descriptors of locked files by setting; the kernel unlocks them when this process ends."""


def take(path: Path, value: str, *, owner: str) -> str:
    """Lock a setting before it is changed -> the value to restore: `value`, or what a killed session has recorded.

    `owner` identifies the device that has the setting. `TargetError` if another session has changed it.
    """
    try:
        lock(path)
        recorded = os.pread(_held[path], 4096, 0).decode(errors="replace").split("\n")
        if len(recorded) == 2 and recorded[0] == owner:
            return recorded[1]
        os.ftruncate(_held[path], 0)
        os.pwrite(_held[path], f"{owner}\n{value}".encode(), 0)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise TargetError(
                f"`{path}` is in use by another iosonde", hint="wait until it exits, or leave the setting out"
            ) from error
        raise TargetError(
            f"cannot lock `{path}` below `{DIRECTORY}`: {error.strerror}",
            hint="settings of the machine require root; leave the setting out",
        ) from error
    return value


def lock(path: Path) -> None:
    """Lock a setting unless this process has it; `OSError` if another session has (EBUSY)."""
    if path in _held:
        return
    DIRECTORY.mkdir(mode=0o755, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(DIRECTORY / "-".join(path.parts[1:]), flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise OSError(errno.EBUSY, "it is in use by another iosonde") from None
        raise
    _held[path] = descriptor


def release(path: Path) -> None:
    """Unlock a setting that has its former value."""
    descriptor = _held.pop(path, None)
    if descriptor is not None:
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


FILES = {
    "nr_requests": "nr_requests",
    "read_ahead": "read_ahead_kb",
    "max_request": "max_sectors_kb",
    "nomerges": "nomerges",
    "rq_affinity": "rq_affinity",
    "io_scheduler": "scheduler",
}
"""File of each setting. They are saved in this order, and restored in the reverse: the scheduler first."""

KIB = ("read_ahead", "max_request")
"""Settings in bytes whose files have KiB."""

STACKED = ("md", "dm", "raid", "mapper")
"""Kinds of devices whose members have the queues that matter as well."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A file with its value before a run."""

    setting: str
    device: str
    path: Path
    before: str
    value: str | None
    """Value during the run; None where it is only saved."""

    def fact(self) -> dict[str, Any]:
        """As the record has it."""
        return {"device": self.device, "setting": self.setting, "value": self.value, "before": self.before}


def apply(devices: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], *, own: str) -> list[Saved]:
    """Set the block queues of a target; `devices` describes them (`block_stack.describe`), `own` names the study."""
    queues = _queues(devices)
    for device in queues:
        for file in reversed(FILES.values()):
            journal.undo_abandoned(_path(device, file))
    found = (each for device in queues for each in _save(device, settings, own))
    saved = change(found, hint="only root may change block queues; `cat` the file for its possible values")
    missing = [name for name in settings if name not in {each.setting for each in saved if each.value is not None}]
    if missing:
        restore(saved)
        raise TargetError(
            f"no device of the target has the setting `{missing[0]}`",
            hint="block queues belong to block devices: name one, or a directory on one",
        )
    return saved


def save(setting: str, path: Path, value: Any, *, own: str, what: str, device: str = "") -> Saved:
    """Lock a setting, and record its value in the journal as an entry of the kind `what`, before it is changed."""
    disk = _disk_of(path)
    before = take(path, _value(path), owner=disk)
    journal.created(path, what, facts={"value": before, "own": own, "disk": disk})
    text = ("Y" if value else "N") if isinstance(value, bool) else str(value)
    return Saved(setting=setting, device=device, path=path, before=before, value=None if value is None else text)


def change(found: Iterable[Saved], *, hint: str) -> list[Saved]:
    """Save settings, then set them, the last first; where that fails, what was changed is restored."""
    saved: list[Saved] = []
    try:
        for each in found:
            saved.append(each)
        for each in reversed(saved):
            if each.value is not None:
                each.path.write_text(each.value, encoding="utf-8")
        _check_in_effect(saved)
    except (OSError, TargetError) as error:
        restore(saved)
        if isinstance(error, TargetError):
            raise
        raise TargetError(
            f"cannot set `{error.filename or 'a block queue'}`: {error.strerror or error}", hint=hint
        ) from error
    return saved


def _check_in_effect(saved: Sequence[Saved]) -> None:
    """`TargetError` for a value that the kernel has changed to another: it rounds some and clamps others."""
    for each in saved:
        if each.value is not None and (value := _value(each.path)) != each.value:
            raise TargetError(
                f"`{each.path}` is {value} after {each.value} was written",
                where=f"by the parameter `{each.setting}`",
                hint="use a value that the kernel keeps",
            )


def restore(saved: Sequence[Saved]) -> None:
    """Write the former values back; `TargetError` for what could not be restored."""
    journal.restore([each.path for each in saved])


def undo(entry: Entry) -> None:
    """Write the value of a journal entry back; nothing if the device is gone, or another one has its name by now."""
    path = Path(entry.path)
    lock(path)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(opened(_number_of(path)))  # While it is open, no other one gets its name.
        if entry.facts["disk"] == _disk_of(path) and path.exists() and _value(path) != entry.facts["value"]:
            path.write_text(entry.facts["value"], encoding="utf-8")
    release(path)


def _save(device: str, settings: Mapping[str, Any], own: str) -> Iterator[Saved]:
    for setting, file in FILES.items():
        path = _path(device, file)
        is_reset = setting == "nr_requests" and "io_scheduler" in settings
        if (setting not in settings and not is_reset) or not path.exists():
            continue
        value = settings.get(setting)
        value = value >> 10 if value and setting in KIB else value
        yield save(setting, path, value, own=own, what=QUEUE_SETTING, device=device)


def _queues(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the devices directly under the target, and the members of arrays and mappings below them."""
    by_name = {str(device["name"]): device for device in devices if device.get("kind") != "simulated"}
    below = {name for device in by_name.values() for name in device.get("under", [])}
    found: dict[str, None] = {}
    pending = [name for name in by_name if name not in below]
    while pending:
        name = pending.pop(0)
        found[_disk(name)] = None
        if any(word in str(by_name[name].get("kind", "")) for word in STACKED):
            pending += [each for each in by_name[name].get("under", []) if each in by_name]
    return list(found)


def _disk(name: str) -> str:
    """Return the disk of a partition, or the device itself."""
    path = Path("/sys/class/block", name).resolve()
    return path.parent.name if (path / "partition").exists() else name


def _path(device: str, file: str) -> Path:
    return Path("/sys/block", device, "queue", file)


def _number_of(path: Path) -> str:
    """`major:minor` of the device of a file in `/sys/block/DEVICE/queue`; empty if it is gone, and for other files."""
    return read(path.parents[1] / "dev")


def _disk_of(path: Path) -> str:
    """`block_stack.incarnation` of that device; empty without one."""
    number = _number_of(path)
    return incarnation(number) if number else ""


def _value(path: Path) -> str:
    return chosen(path.read_text(encoding="utf-8").strip())
