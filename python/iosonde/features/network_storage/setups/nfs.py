"""Mounts of NFS with the options of a case: of a server of the user, or of an export of this machine's kernel server.

An export is a new ext4 file system on the device of the setup, exported to 127.0.0.1 only. The server itself (nfsd,
rpc.mountd) must run already; iosonde adds an export and removes it. On a server of the user, files are in a directory
with the name of the study, and the journal has it, so that cleanup removes it, after a restart through a mount of its
own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iosonde.base import directory_tree
from iosonde.errors import TargetError
from iosonde.features.network_storage import tcp, transport
from iosonde.features.network_storage.setup import NfsSetup
from iosonde.features.network_storage.tcp import require_ports_of_root
from iosonde.plan import Setup
from iosonde.storage import tools
from iosonde.storage.block_layer.block_nodes import read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal import MOUNTS, Entry
from iosonde.storage.setups import file_systems
from iosonde.storage.targets.target import BuiltLayer
from iosonde.storage.tools import call, patiently, require, require_root

EXPORTED = "NFS export"
"""Kind of the journal entry of an export, whose path is its mount point."""
FILES = "files on an NFS server"
"""Kind of the journal entry of the directory on a server of the user; its path is a key, not a file."""
THREADS_CHANGED = "NFS server threads"

ADDRESS = "127.0.0.1"
PORT = 2049
NFSD = Path("/proc/fs/nfsd")
THREADS = NFSD / "threads"
EXPORTS = Path("/var/lib/nfs/etab")
"""Exports of this machine, as rpc.mountd reads them."""
SOFT = Setup(file_system="nfs", mount_options="soft,nosharecache,timeo=50,retrans=2,retry=0")
EXPORT_OPTIONS = "rw,secure,no_root_squash,no_subtree_check,sync"
"""`secure`: clients must have a port below 1024, which is one of root (exports(5), `require_ports_of_root`)."""


@dataclass(frozen=True, kw_only=True)
class NfsMount(BuiltLayer):
    """A mount of NFS with its source as `device`."""

    own: str
    asked: NfsSetup
    is_exported: bool
    """True for an export of iosonde's own."""

    def mounted(self, point: Path) -> None:
        """Check the options in effect, and announce the files on a server of the user."""
        if not self.is_exported:
            facts = {"own": self.own, "source": str(self.device)}
            journal.created(MOUNTS / self.own / "files", FILES, facts=facts)
        check_in_effect(point, self.asked)

    def stop_server(self) -> None:
        """Stop the threads of this machine's NFS server; the journal has their number."""
        journal.undo_abandoned(THREADS)
        journal.created(THREADS, THREADS_CHANGED, facts={"value": read(THREADS), "own": self.own})
        try:
            THREADS.write_text("0", encoding="utf-8")
        except OSError:
            journal.undo(THREADS)
            raise

    def start_server(self) -> None:
        """Start them again."""
        journal.undo(THREADS)


def check_possible(asked: NfsSetup) -> None:
    """`TargetError` if this machine cannot mount NFS."""
    require_root("mount NFS")
    require("mount.nfs", "mount NFS")
    if tools.state_of("nfs") == "missing":
        raise TargetError(
            "this kernel has no NFS client (module `nfs`)",
            where="by the parameter `file_system`",
            hint="use a kernel with it, such as Debian's `linux-image-amd64`, or `iosonde lab run`",
        )


def check_server() -> None:
    """`TargetError` unless the NFS server of this machine runs."""
    require("exportfs", "export a file system over NFS")
    require_ports_of_root("export a file system over NFS")
    if read(THREADS) in ("", "0"):
        raise TargetError(
            "the NFS server of this machine is not running",
            where=f"`{THREADS}` has no threads",
            hint="start it (`systemctl start nfs-server`), or name an export of a server as `nfs:SERVER:/EXPORT`",
        )


def check_alone(own: str) -> None:
    """`TargetError` if the NFS server of this machine has exports that are not those of a study."""
    prefix = f"{MOUNTS}/{own}/"
    others = [line.split()[0] for line in read(EXPORTS).splitlines() if line and not line.startswith(prefix)]
    if others:
        raise TargetError(
            f"the NFS server of this machine cannot be stopped: it also exports `{others[0]}`",
            where='by the parameter `outage = "server"`',
            hint="remove the export (`exportfs -u`), or use `--set outage=watch` and restart the server yourself",
        )
    if (addresses := tcp.listening(PORT)) and not any(each.is_unspecified for each in addresses):
        raise TargetError(
            f"the NFS server of this machine cannot be stopped: it listens on {addresses[0]}, and would listen on all "
            "addresses once its threads are started again",
            where='by the parameter `outage = "server"`',
            hint="use `--set outage=watch`, and restart the server yourself",
        )


def build(device: Path, asked: NfsSetup, own: str) -> NfsMount:
    """The mount of an export: that of a server, or a new one on a device; `TargetError` if it cannot be exported."""
    is_exported = device.is_absolute()  # Else it is `SERVER:/EXPORT`.
    source = _export(device, asked.version, own) if is_exported else device
    return NfsMount(
        device=source,
        below=(device,) if is_exported else (),
        mount_options=asked.options,
        own=own,
        asked=asked,
        is_exported=is_exported,
        facts={"source": file_systems.source_of(source), "options": asked.options},
    )


def check_in_effect(point: Path, asked: NfsSetup) -> None:
    """`TargetError` if the kernel or the server changed an option that the case asks for."""
    found = next((mount for mount in mounts() if mount.point == str(point)), None)
    values = dict(option.partition("=")[::2] for option in found.options) if found else {}
    statistics = transport.mount_statistics(str(point))
    wanted = {"rsize": asked.rsize, "wsize": asked.wsize}
    differing = [name for name, value in wanted.items() if value and values.get(name) != str(value)]
    if differing:
        name = differing[0]
        raise TargetError(
            f"the mount has `{name}={values.get(name)}`; the case requires {wanted[name]}",
            where=f"`{found.source if found else point}`",
            hint="the server limits it: choose a smaller size",
        )
    if asked.connections and statistics and statistics.connections != asked.connections:
        raise TargetError(
            f"the mount has {statistics.connections} connections; the case requires {asked.connections}",
            where=f"`{found.source if found else point}`",
            hint="the kernel shares connections between mounts of a server: unmount its other exports",
        )


def undo_export(entry: Entry) -> None:
    """Remove the export and unmount its file system; `OSError` if it is in use."""
    point = Path(entry.path)
    if any(line.startswith(f"{point}\t") for line in read(EXPORTS).splitlines()):
        call("exportfs", "-u", f"{ADDRESS}:{point}")
    with contextlib.suppress(TargetError):
        call("exportfs", "-f")
    with contextlib.suppress(OSError):  # Files that a client had open when it was killed.
        (NFSD / "unlock_filesystem").write_text(str(point), encoding="utf-8")
    try:
        patiently(lambda: file_systems.unmount(point))
    except TargetError as error:
        raise OSError(error.what) from None
    with contextlib.suppress(FileNotFoundError):
        point.rmdir()


def undo_files(entry: Entry) -> None:
    """Remove the directory on a server of the user; `OSError` if the server does not answer."""
    source, own = Path(entry.facts["source"]), str(entry.facts["own"])
    point = MOUNTS / own / "mounted"
    is_mounted = any(mount.point == str(point) for mount in mounts())
    if is_mounted and not file_systems.answers(point):
        raise OSError(f"the server of `{source}` does not answer; `{own}` remains there")
    with contextlib.nullcontext(point) if is_mounted else temporarily_mounted(source, own) as root:
        parent = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                directory_tree.remove(parent, own)
        finally:
            os.close(parent)


def undo_threads(entry: Entry) -> None:
    """Start the threads of the NFS server again, unless it runs."""
    if read(THREADS) == "0":
        THREADS.write_text(str(entry.facts["value"]), encoding="utf-8")


@contextlib.contextmanager
def temporarily_mounted(source: Path, own: str) -> Iterator[Path]:
    """Mount an export for a moment, soft, so that a server that does not answer is an error."""
    place = MOUNTS / f"{own}"
    point = place / "mounted"
    journal.created(place, "setup")
    MOUNTS.mkdir(mode=0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        own_directory.create(place)
    journal.created(point, "mount", facts={"device": str(source)})
    try:
        point.mkdir(exist_ok=True)
        file_systems.mount(source, point, SOFT)
        yield point
    finally:
        for path in (point, place):
            journal.undo(path)


def _export(device: Path, version: str, own: str) -> Path:
    """Create ext4 on a device and export it -> `ADDRESS:/PATH`."""
    check_server()
    point = MOUNTS / own / "exported"
    journal.created(point, EXPORTED, facts={"own": own})
    identity = file_systems.uuid_of(own, "data")
    call("mkfs.ext4", *file_systems.EXT4, "-U", identity, device)
    point.mkdir()
    file_systems.mount(device, point, Setup(file_system="ext4"))
    # As the root of NFS 4 (3 has none) it needs no export of the directories above, which not every file system allows.
    is_root = version != "3" and not read(EXPORTS)
    call("exportfs", "-o", f"{EXPORT_OPTIONS},fsid={0 if is_root else identity}", f"{ADDRESS}:{point}")
    return Path(f"{ADDRESS}:/" if is_root else f"{ADDRESS}:{point}")
