"""Interface of targets, to which a study's I/O goes.

`opening.open_target` turns what the user named into one of them: files (`file_target.py`), block devices
(`device_target.py`), no storage at all (`virtual_target.py`), or a kind of target of a feature (`kind.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from iosonde.errors import TargetError
from iosonde.plan import Capacity, Destroys, Purge, Setup

if TYPE_CHECKING:
    from iosonde.storage.safety.consent import Consent

Files = Literal["shared", "per_job", "per_device"]
SIDE_BY_SIDE = range(2, 9)
"""Number of devices with `files = "per_device"`."""
IoMode = Literal["direct", "buffered"]
Kind = Literal["file", "directory", "device", "null", "simulated"]


class Target(ABC):
    """Somewhere to send I/O to."""

    kind: Kind
    name: str
    """Absolute path, or a text with a prefix such as `null:...`: `open_target` takes it back."""

    @property
    def is_model(self) -> bool:
        """True if results are those of a model, which the host's I/O path does not reach; records are marked."""
        return False

    @property
    def title(self) -> str:
        """Name in messages."""
        return f"`{self.name}`"

    @abstractmethod
    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """Raise `TargetError` when this many bytes have no room, or I/O of these sizes is unsupported in this mode."""

    def side_by_side(self, size_bytes: int) -> Target:
        """The target as devices of `size_bytes`, one after the other; `TargetError` if they are not `SIDE_BY_SIDE`."""
        raise TargetError(
            f'`files = "per_device"` requires {SIDE_BY_SIDE[0]} to {SIDE_BY_SIDE[-1]} devices; got {self.title}',
            hint="name block devices, such as `--target /dev/sdb,/dev/sdc`, or simulated volumes, such as "
            "`sim:gp2-100g*2`",
        )

    @abstractmethod
    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """The spec's `target`: one file (or each job's file) of that size."""

    @abstractmethod
    def backend(self) -> dict[str, Any] | None:
        """The spec's `backend` where the target leaves no choice, with what it does not set left out."""

    @abstractmethod
    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Return the things that a study of that size creates and removes, or overwrites."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Room for a study's data."""

    def direct_unit(self) -> int | None:
        """Bytes that direct I/O takes multiples of; None where there is no such unit, or no direct I/O."""
        return None

    def capacity(self) -> Capacity:
        """Capacity of which a fill level is a share."""
        return Capacity(bytes=self.free_bytes())

    def over_provisioning(self) -> float | None:
        """Spare capacity as a share of the capacity, where it is known."""
        return None

    def purges(self) -> list[Purge]:
        """Methods to purge the target, the strongest first; none if it stores nothing."""
        return []

    own: str = ""
    """Name of what iosonde creates on the target for a study; empty if nothing."""

    def called(self, own: str) -> Target:
        """The target with the name of its own directory that a plan recorded."""
        return self

    @contextmanager
    def claimed(self, given: Consent, *, keep: bool = False) -> Iterator[None]:
        """Claim block devices for the length of a study, if the user's consent is sufficient."""
        yield

    def recheck(self) -> None:
        """`TargetError` if a claimed device came into use: called before and after each run."""
        return

    def numbers_by_name(self) -> dict[str, str]:
        """The device (`major:minor`) that each path was resolved to, for block devices."""
        return {}

    def file_system(self) -> int | None:
        """Number of the file system that it is a part of; None for whole devices and without any."""
        return None

    def notes(self) -> list[str]:
        """Notes for the user before a study starts."""
        return []

    def asks(self) -> list[str]:
        """Options that the user has to give before a study is carried out on it."""
        return []

    def require_directory(self, reason: str, *, parameter: str) -> None:
        """`TargetError` unless it is a directory; `reason` is a clause."""
        if self.kind != "directory":
            raise TargetError(
                f"{self.title} is not a directory, and {reason}",
                where=f"by the parameter `{parameter}`",
                hint="name a directory as the target, or create a file system on the device with "
                "`--set file_system=ext4`",
            )

    def osd_bytes(self) -> int | None:
        """Size of the device that each object daemon of Ceph takes raw; None where it has a file."""
        return None

    def osd_nodes(self) -> list[Path]:
        """Nodes of devices that object daemons take raw; none where they have files."""
        return []

    def device_count(self) -> int:
        """Number of devices that the user named, of which a setup takes the first ones."""
        return 1

    def with_setup(self, setup: Setup) -> Target:
        """The target of a workload on this setup; `TargetError` if the setup is unsupported here.

        Nothing is created: its paths exist once the setup is active (`active_setup.py`).
        """
        if setup.is_plain:
            return self
        raise TargetError(
            f"`{self.name}` cannot be {setup.text}",
            where="by the parameters of its setup",
            hint="name block devices as the target, a directory (for a file system in a file), or simulated drives "
            "such as `sim:p900*4`",
        )

    def check_on_hosts(self, setup: Setup | None) -> None:
        """`TargetError` unless several hosts can use it at the same time, each with a setup of its own."""
        raise TargetError(
            f"`--hosts` requires a directory, one block device or an NFS export as the target; got `{self.name}`",
            hint="name a directory on the storage that the hosts share, or a device that all of them see",
        )

    @abstractmethod
    def block_devices(self) -> list[str]:
        """Block devices under the target whose counters are recorded, as `major:minor`.

        The one directly under the file system first: its counters are what iosonde requested. The devices below it (the
        members of an array, the disk under a loop device) follows, and counts the same data again.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return the description of the target for the record."""


def files_in(own: Path, files: Files, size_bytes: int) -> dict[str, Any]:
    """The spec's `target`: a file, or a directory of files, in one of iosonde's own directories."""
    if files == "per_job":
        return {"kind": "file_per_job", "directory": str(own), "size_bytes": size_bytes}
    return {"kind": "file", "path": str(own / "data"), "size_bytes": size_bytes}
