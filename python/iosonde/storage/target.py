"""Where the I/O of a study goes, and whether it may go there.

`open_target` turns what the user named into a `Target`, or says why not. Nothing that exists is ever written: in a
directory iosonde makes a fresh subdirectory of its own, a file target must not exist yet (or be one that iosonde made),
and block devices must pass the guard (`device_target.py`). `null:SIZE` and `simulated:...` stand for no storage at all,
`sim:...` for a simulated drive (`simulated_drive.py`).
"""

from __future__ import annotations

import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from iosonde.errors import TargetError
from iosonde.plan import Capacity, Destroys, Purge, Setup
from iosonde.storage import block_stack, direct_io, journal, purge
from iosonde.storage.describe import describe_path, stack_of
from iosonde.storage.kernel import Kernel
from iosonde.storage.loop_status import attached_to, identity_of
from iosonde.storage.mounts import mount_of
from iosonde.units import compact_duration, compact_size, format_bytes, parse_duration, parse_size

if TYPE_CHECKING:
    from iosonde.storage.consent import Consent

Files = Literal["shared", "per_job"]
IoMode = Literal["direct", "buffered"]
Kind = Literal["file", "directory", "device", "null", "simulated"]

VIRTUAL_BYTES = 1 << 40
"""Size of `null:` and `simulated:` when none is named."""

MOST_LOOP_DEVICES = 8
"""Files of a directory that may stand for devices."""

NO_STORAGE = {
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
}
"""File systems that hold no data of their own."""


def open_target(text: str) -> Target:
    """The target that a user named: a directory, a file to be made, `null:SIZE`, `simulated:...` or `sim:...`."""
    kind, _, rest = text.partition(":")
    if kind == "null":
        return _null(text, rest)
    if kind == "simulated":
        return _simulated(text, rest)
    if kind == "sim":
        from iosonde.storage.simulated_drive import open_simulated

        return open_simulated(text)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if len(names) > 1 and not Path(text).exists():
        from iosonde.storage.device_target import open_devices

        return open_devices(names)
    path = Path(text).expanduser()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return _new_file(path, text)
    except OSError as error:
        raise TargetError(
            f"cannot look at `{text}`: {error.strerror}",
            hint="name a directory or a new file that you may write to",
        ) from error
    if stat.S_ISBLK(mode):
        from iosonde.storage.device_target import open_devices

        return open_devices([text])
    return _existing(path.resolve(), mode)


class Target(ABC):
    """Somewhere to send I/O to."""

    kind: Kind
    name: str
    """Absolute path, or `null:...`, `simulated:...`, `sim:...`: `open_target` takes it back."""

    @abstractmethod
    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Raise `TargetError` when so many bytes have no room, or I/O of these sizes cannot be done in this mode."""

    @abstractmethod
    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The spec's `target`: one file (or each job's file) of that size."""

    @abstractmethod
    def backend(self) -> dict[str, Any] | None:
        """The spec's `backend` where the target leaves no choice, with what it does not set left out."""

    @abstractmethod
    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """What a study of that size makes and removes, or could lose data from."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Room for a study's data."""

    def direct_unit(self) -> int | None:
        """Bytes that direct I/O takes multiples of; None where there is no such unit, or no direct I/O."""
        return None

    def capacity(self) -> Capacity:
        """What a fill level is a share of: all that there is."""
        return Capacity(bytes=self.free_bytes())

    def purges(self) -> list[Purge]:
        """Means to give up what the target holds, the strongest first; none where nothing is held."""
        return []

    own: str = ""
    """Name of what iosonde makes on the target for a study, where it makes anything there."""

    def called(self, own: str) -> Target:
        """The target on which what iosonde makes has that name, as a plan has it."""
        return self

    @contextmanager
    def claimed(self, given: Consent, *, keep: bool = False) -> Iterator[None]:
        """Hold what would have to be held while a study is carried out, if the user's consent is enough."""
        yield

    def recheck(self) -> None:
        """`TargetError` if what is held came into use by somebody else: called before and after each run."""
        return

    def numbers_by_name(self) -> dict[str, str]:
        """The device (`major:minor`) that each path was resolved to, for block devices."""
        return {}

    def notes(self) -> list[str]:
        """What a user should know before a study begins."""
        return []

    def asks(self) -> list[str]:
        """Options that the user has to give before anything is carried out on it."""
        return []

    def device_count(self) -> int:
        """How many devices the user named, of which a setup takes the first ones."""
        return 1

    def with_setup(self, setup: Setup) -> Target:
        """The target as a workload sees it that runs on this setup; `TargetError` where it cannot be made here.

        Nothing is made: what it names exists once the setup stands (`execution/setups.py`).
        """
        if setup.is_plain:
            return self
        raise TargetError(
            f"`{self.name}` cannot be {setup.text}",
            where="by the parameters `array`, `file_system` and `setup_size`",
            hint="name block devices as the target, a directory (for a file system in a file), or simulated drives "
            "such as `sim:p900*4`",
        )

    @abstractmethod
    def block_devices(self) -> list[str]:
        """Block devices under the target whose counters tell what happens, as `major:minor`.

        The one directly under the file system first: its counters are what iosonde asked for. What stands below it (the
        members of an array, the disk under a loop device) follows, and counts the same data again.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the target is, for the record."""


@dataclass(frozen=True, kw_only=True)
class VirtualTarget(Target):
    """No storage: every I/O completes at once, or by the clock of a simulated device."""

    name: str
    kind: Literal["null", "simulated"]
    size_bytes: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the simulated device that the user named; the workload's parameters stand in for the rest."""

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Only the size is limited."""
        if bytes_needed > self.size_bytes:
            raise TargetError(
                f"`{self.name}` is too small: {format_bytes(self.size_bytes)}, and {format_bytes(bytes_needed)} are "
                "needed",
                hint="make it larger, or the span smaller with `--set span=...`",
            )

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """No path."""
        return {"kind": "virtual", "size_bytes": size_bytes}

    def backend(self) -> dict[str, Any]:
        """Its own."""
        return {"kind": self.kind, **self.settings}

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing."""
        return []

    def with_setup(self, setup: Setup) -> Target:
        """Nothing remains nothing, whatever is to stand on it; a simulated device takes no setup."""
        return self if self.kind == "null" and setup.array == "single" else super().with_setup(setup)

    def free_bytes(self) -> int:
        """Its size."""
        return self.size_bytes

    def block_devices(self) -> list[str]:
        """None."""
        return []

    def describe(self) -> dict[str, Any]:
        """What the user named."""
        mark = {"simulated": True} if self.kind == "simulated" else {}
        return {"kind": self.kind, **mark, "name": self.name, "size_bytes": self.size_bytes, "devices": []}


@dataclass(frozen=True, kw_only=True)
class _OnDisk(Target):
    """What files have in common, whoever named them."""

    name: str

    @property
    @abstractmethod
    def _directory(self) -> Path:
        """The directory that exists already."""

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Room, and what direct I/O can do here."""
        self._check_room(bytes_needed)
        if io_mode == "direct":
            self._check_direct(block_sizes)

    def _check_room(self, bytes_needed: int) -> None:
        free = self.free_bytes()
        if bytes_needed > free:
            raise TargetError(
                f"no room on `{self.name}`: {format_bytes(bytes_needed)} are needed and {format_bytes(free)} are free",
                hint="make the span smaller with `--set span=...`, choose a smaller profile, or name another target",
            )

    def _check_direct(self, block_sizes: Iterable[int]) -> None:
        alignment = self.direct_alignment
        if alignment is None:
            raise TargetError(
                f"`{self.name}` cannot do direct I/O",
                where=self._file_system_text(),
                hint="measure through the page cache with `--set io_mode=buffered`, or name another target",
            )
        for size in block_sizes:
            if size % alignment:
                raise TargetError(
                    f"direct I/O of {format_bytes(size)} cannot be done on `{self.name}`: it takes multiples of "
                    f"{format_bytes(alignment)}",
                    where=self._file_system_text(),
                    hint=f"begin at that with `--set block_size={compact_size(alignment)},...`, or measure through the "
                    "page cache with `--set io_mode=buffered`",
                )

    def _file_system_text(self) -> str:
        mount = mount_of(self._directory)
        return f"on the file system {mount.kind} mounted at `{mount.point}`" if mount else ""

    @cached_property
    def direct_alignment(self) -> int | None:
        """Bytes that direct I/O takes multiples of; None if there is no direct I/O here."""
        try:
            return direct_io.offset_alignment(self._directory)
        except OSError as error:
            raise TargetError(
                f"cannot write in `{self._directory}`: {error.strerror}", hint="name a target that you may write to"
            ) from error

    def direct_unit(self) -> int | None:
        """As the file system, or a real read, tells."""
        return self.direct_alignment

    def backend(self) -> None:
        """The workload chooses."""
        return

    def free_bytes(self) -> int:
        """What the file system leaves to this user."""
        space = os.statvfs(self._directory)
        return space.f_bavail * space.f_frsize

    def capacity(self) -> Capacity:
        """The whole file system, whoever uses it."""
        space = os.statvfs(self._directory)
        unit = space.f_frsize
        used, reserved = space.f_blocks - space.f_bfree, space.f_bfree - space.f_bavail
        own = self.free_bytes() - space.f_bavail * unit
        return Capacity(bytes=space.f_blocks * unit, used=used * unit - own, reserved=reserved * unit)

    def purges(self) -> list[Purge]:
        """Its blocks are given back, or else written over."""
        return ["trim", "overwrite"] if purge.can_trim(self._directory) else ["overwrite"]

    def block_devices(self) -> list[str]:
        """The stack under the file system, without partitions."""
        return block_stack.watched(stack_of(self._directory))

    def describe(self) -> dict[str, Any]:
        """File system, mount and block devices."""
        return {"kind": self.kind, "name": self.name, **describe_path(self._directory)}


@dataclass(frozen=True, kw_only=True)
class DirectoryTarget(_OnDisk):
    """A directory of the user's, in which iosonde makes a fresh one of its own."""

    kind: Literal["directory"] = "directory"
    own: str = field(default_factory=lambda: f"iosonde-{secrets.token_hex(4)}")
    """Name of the fresh directory."""

    @property
    def _directory(self) -> Path:
        return Path(self.name)

    def with_setup(self, setup: Setup) -> Target:
        """Files in the directory stand for devices, through loop devices."""
        if setup.is_plain:
            return self
        from iosonde.storage.loop_ground import on_loop_devices

        return on_loop_devices(self, setup)

    def device_count(self) -> int:
        """Files that may stand for devices."""
        return MOST_LOOP_DEVICES

    def called(self, own: str) -> DirectoryTarget:
        """The target whose fresh directory has that name."""
        return replace(self, own=own)

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """A file, or a directory of files, in the fresh directory."""
        own = Path(self.name, self.own)
        if files == "per_job":
            return {"kind": "file_per_job", "directory": str(own), "size_bytes": size_bytes}
        return {"kind": "file", "path": str(own / "data"), "size_bytes": size_bytes}

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing that exists."""
        what = f"creates a directory with {format_bytes(size_bytes)} of files and {_afterwards(keep)}"
        return [Destroys(path=str(Path(self.name, self.own)), what=what)]


@dataclass(frozen=True, kw_only=True)
class FileTarget(_OnDisk):
    """A file that iosonde makes, or has made."""

    kind: Literal["file"] = "file"

    @property
    def _directory(self) -> Path:
        return Path(self.name).parent

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The file."""
        if files == "per_job":
            raise TargetError(
                f"`{self.name}` is one file, and every job needs its own",
                where='by the parameter `files = "per_job"`',
                hint="name a directory as the target, or share one file with `--set files=shared`",
            )
        return {"kind": "file", "path": self.name, "size_bytes": size_bytes}

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Only its own file."""
        does = "overwrites the file that iosonde kept there," if Path(self.name).exists() else "creates a file of"
        return [Destroys(path=self.name, what=f"{does} {format_bytes(size_bytes)}, and {_afterwards(keep)}")]

    def free_bytes(self) -> int:
        """What a file kept from an earlier run occupies is room as well."""
        kept = Path(self.name)
        return super().free_bytes() + (kept.stat().st_blocks * 512 if kept.exists() else 0)


def _afterwards(keep: bool) -> str:
    return "keeps it" if keep else "removes it at the end"


def _existing(path: Path, mode: int) -> Target:
    if stat.S_ISDIR(mode):
        _check_writable(path)
        return DirectoryTarget(name=str(path))
    if stat.S_ISREG(mode):
        return _own_file(path)
    raise TargetError(
        f"`{path}` is neither a directory nor a file", hint="name a directory, or a file that does not exist yet"
    )


def _own_file(path: Path) -> FileTarget:
    if not journal.is_ours(path):
        raise TargetError(
            f"`{path}` exists already, and would be overwritten",
            hint=f"name a file that does not exist yet, or the directory `{path.parent}`: iosonde then makes its own "
            "file there",
        )
    check_unused(path)
    _check_writable(path.parent)
    return FileTarget(name=str(path))


def check_unused(path: Path) -> None:
    """`TargetError` if a file is attached to a loop device, is active swap, or has a second name."""
    devices = attached_to(path)
    if devices:
        raise TargetError(
            f"`{path}` is the backing file of the loop device `{devices[0]}`",
            hint=f"detach it with `losetup --detach {devices[0]}`, or name another target",
        )
    found = path.lstat()
    if identity_of(found) in Kernel().swap_files:
        raise TargetError(f"`{path}` is active swap", hint=f"end that with `swapoff {path}`, or name another target")
    if found.st_nlink != 1:
        raise TargetError(
            f"`{path}` has {found.st_nlink} names (hard links), and writing to it would change the others",
            hint=f"find them with `find -samefile {path}`, or name another target",
        )


def _new_file(path: Path, text: str) -> FileTarget:
    if text.endswith("/"):
        raise TargetError(f"there is no directory `{text}`", hint=f"make it with `mkdir -p {text}`")
    parent = path.parent.resolve()
    if not parent.is_dir():
        raise TargetError(
            f"`{path}` cannot be made: there is no directory `{parent}`", hint=f"make it with `mkdir -p {parent}`"
        )
    _check_writable(parent)
    return FileTarget(name=str(parent / path.name))


def _check_writable(directory: Path) -> None:
    mount = mount_of(directory)
    if mount and mount.kind in NO_STORAGE:
        raise TargetError(f"`{directory}` is on `{mount.kind}`, which holds no data", hint="name a directory on a disk")
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        where = f"mounted at `{mount.point}` from `{mount.source}`" if mount else ""
        raise TargetError(
            f"`{directory}` is on a file system that is mounted read-only",
            where=where,
            hint="remount it writable, or name another target",
        )
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise TargetError(
            f"you may not write in `{directory}`", hint="name a directory of your own, or change its permissions"
        )


def _null(text: str, size: str) -> VirtualTarget:
    size_bytes = _setting(text, "size", size, like="`null:1GiB`") if size else VIRTUAL_BYTES
    return VirtualTarget(name=f"null:{compact_size(size_bytes)}", kind="null", size_bytes=size_bytes)


_SIMULATED = ("servers", "read", "write", "size", "service")
_EXAMPLE = "`simulated:servers=4,read=100us,write=20us,size=1TiB`"


def _simulated(text: str, rest: str) -> VirtualTarget:
    written = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    unknown = [name for name in written if name not in _SIMULATED]
    if unknown:
        raise TargetError(
            f"`{text}` has no setting `{unknown[0]}`",
            hint=f"write it like {_EXAMPLE}; there is `service` as well",
        )
    values = {name: _setting(text, name, value) for name, value in written.items()}
    size_bytes = values.pop("size", VIRTUAL_BYTES)
    names = {"read": "read_service_ns", "write": "write_service_ns"}
    return VirtualTarget(
        name=_simulated_name(values, size_bytes),
        kind="simulated",
        size_bytes=size_bytes,
        settings={names.get(name, name): value for name, value in values.items()},
    )


def _simulated_name(values: dict[str, Any], size_bytes: int) -> str:
    texts = {name: compact_duration(value) if name in ("read", "write") else value for name, value in values.items()}
    return "simulated:" + ",".join(
        f"{name}={text}" for name, text in {**texts, "size": compact_size(size_bytes)}.items()
    )


def _setting(target: str, name: str, text: str, *, like: str = _EXAMPLE) -> Any:
    try:
        match name:
            case "size":
                value: Any = parse_size(text)
            case "read" | "write":
                value = parse_duration(text)
            case "servers":
                value = int(text) if text.isdecimal() else 0
            case _:
                value = text
    except ValueError as error:
        raise TargetError(
            f"the {name} of `{target}` cannot be `{text}`: {error}", hint=f"write it like {like}"
        ) from None
    if (name == "service" and value not in ("constant", "exponential")) or (name != "service" and value <= 0):
        raise TargetError(
            f"the {name} of `{target}` cannot be `{text}`",
            hint="`service` is `constant` or `exponential`; all others are above 0",
        )
    return value
