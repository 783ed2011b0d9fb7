"""Targets `nfs:SERVER:/EXPORT`, layers of setups (NVMe/TCP, NFS), and their journal entries."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from iosonde.errors import TargetError
from iosonde.features.network_storage import link
from iosonde.features.network_storage.setup import FabricSetup, NfsSetup
from iosonde.features.network_storage.setups import nfs, nvme_tcp
from iosonde.plan import Destroys, Setup
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY, JournalKind
from iosonde.storage.targets.setup_target import DeviceProvider, Provided, SetupTarget
from iosonde.storage.targets.target import Files, IoMode, LayerKind, Target, TargetKind

_OWN = OWN_DIRECTORY.pattern

UNDO = (
    JournalKind(
        what=nvme_tcp.JOURNALED,
        path=rf"{MOUNTS}/{_OWN}/fabric",
        facts={"own": _OWN, "port": r"[0-9]{1,5}", "mounted": r"(yes)?"},
        ends_with_boot=True,
        undo=nvme_tcp.undo,
    ),
    JournalKind(
        what=link.JOURNALED,
        path=rf"{MOUNTS}/{_OWN}/route",
        facts={"own": _OWN, "address": r"[0-9A-Fa-f.:]+"},
        ends_with_boot=True,
        undo=link.undo,
    ),
    JournalKind(
        what=nfs.EXPORTED,
        path=rf"{MOUNTS}/{_OWN}/exported",
        facts={"own": _OWN},
        ends_with_boot=True,
        undo=nfs.undo_export,
    ),
    JournalKind(
        what=nfs.FILES,
        path=rf"{MOUNTS}/{_OWN}/files",
        facts={"own": _OWN, "source": r"[^/\s]+:(/[^\s,]*)?"},
        undo=nfs.undo_files,
    ),
    JournalKind(
        what=nfs.THREADS_CHANGED,
        path=r"/proc/fs/nfsd/threads",
        facts={"value": r"[0-9]{1,5}", "own": _OWN},
        ends_with_boot=True,
        undo=nfs.undo_threads,
    ),
)


PREFIX = "nfs:"
SOURCE = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.%\w]+\]):/[^\s,]*")
"""A name or address, the latter in brackets for IPv6, and a path."""


def open_export(text: str) -> NfsTarget:
    """The target with this name; `TargetError` if it cannot be mounted. It is mounted for a moment."""
    source = Path(text.removeprefix(PREFIX))
    if not SOURCE.fullmatch(text.removeprefix(PREFIX)):
        raise TargetError(f"`{text}` is not an NFS export", hint="write it as `nfs:SERVER:/EXPORT`")
    nfs.check_possible(NfsSetup())
    with nfs.temporarily_mounted(source, f"iosonde-{secrets.token_hex(4)}") as point:
        space = os.statvfs(point)
        if not os.access(point, os.W_OK):
            raise TargetError(
                f"you may not write to `{text}`",
                hint="let root of this machine write there: the export needs `rw` and `no_root_squash`",
            )
    return NfsTarget(name=text, source=source, room_bytes=space.f_bavail * space.f_frsize)


@dataclass(frozen=True, kw_only=True)
class ServerExport(DeviceProvider):
    """An export as the provider of a setup."""

    name: str
    source: Path
    own: str
    room_bytes: int

    @property
    def server(self) -> str:
        """Name or address of the server."""
        return str(self.source).partition(":/")[0].removesuffix(":").strip("[]")

    def smallest_bytes(self, setup: Setup) -> int:
        """Free space."""
        return self.room_bytes

    def direct_unit(self) -> int:
        """Any number of bytes."""
        return 1

    def loses(self, setup: Setup, measured_bytes: int | None) -> list[Destroys]:
        """Nothing that exists."""
        what = "mounts it here, creates a directory on it, and removes both at the end"
        return [Destroys(path=f"{self.source}/{self.own}", what=what)]

    def provide(self, setup: Setup) -> Provided:
        """The export."""
        return Provided(devices=[self.source], journal_device=None, facts=[{"device": str(self.source), "kind": "nfs"}])


@dataclass(frozen=True, kw_only=True)
class NfsTarget(Target):
    """An export, on which every case has a setup with `file_system = "nfs"`."""

    name: str
    source: Path
    room_bytes: int
    own: str = field(default_factory=lambda: f"iosonde-{secrets.token_hex(4)}")
    kind: Literal["directory"] = "directory"

    def called(self, own: str) -> NfsTarget:
        """The target with that name of its directory."""
        return replace(self, own=own or self.own)

    def with_setup(self, setup: Setup) -> Target:
        """The export mounted with the options of a setup."""
        if setup.layer(NfsSetup) is None or len(setup.parts) > 1:
            raise TargetError(
                f"`{self.name}` is an export, which cannot be {setup.text}",
                where="by the parameters of its setup",
                hint='use `file_system = "nfs"` alone, or name block devices or a directory as the target',
            )
        nfs.check_possible(NfsSetup())
        provider = ServerExport(name=self.name, source=self.source, own=self.own, room_bytes=self.room_bytes)
        return SetupTarget(provider=provider, setup=setup, own=self.own)

    def check_on_hosts(self, setup: Setup | None) -> None:
        """Each host mounts it, and has a directory of its own on it."""

    def check(self, bytes_needed: int, block_sizes: Iterable[int], io_mode: IoMode) -> None:
        """`TargetError`: only its mounts are measured."""
        raise self._not_mounted()

    def spec_target(self, files: Files, size_bytes: int) -> dict[str, Any]:
        """`TargetError`: only its mounts are measured."""
        raise self._not_mounted()

    def destroys(self, size_bytes: int, *, keep: bool = False) -> list[Destroys]:
        """Nothing."""
        return []

    def free_bytes(self) -> int:
        """Free space."""
        return self.room_bytes

    def describe(self) -> dict[str, Any]:
        """The export."""
        return {"kind": self.kind, "name": self.name}

    def _not_mounted(self) -> TargetError:
        return TargetError(
            f"`{self.name}` has to be mounted by each case",
            where="the parameter `file_system` is not `nfs`",
            hint="add `--set file_system=nfs`, or mount it yourself and name a directory on it as the target",
        )


TARGETS = (TargetKind(prefix="nfs", open=open_export),)


LAYERS = (
    LayerKind(
        part=FabricSetup,
        journal_kind=nvme_tcp.JOURNALED,
        check_possible=nvme_tcp.check_possible,
        build=lambda devices, further, asked, own: nvme_tcp.build(devices[0], asked, own),
    ),
    LayerKind(
        part=NfsSetup,
        journal_kind=nfs.EXPORTED,
        further_kinds=(nfs.FILES,),
        check_possible=nfs.check_possible,
        build=lambda devices, further, asked, own: nfs.build(devices[0], asked, own),
    ),
)
