"""Files and directories that a plan's runs need before an engine starts: created, checked before each run, and removed.

A directory target gets a fresh subdirectory `iosonde-XXXXXXXX`, which only its owner can enter, and each run finds its
files there, empty at first. A file target is an empty file. The engine fills them, and keeps its journal of a verified
file next to it (`FILE.verify`). Databases of key-value stores each have a directory in that subdirectory, and a log or
read cache on another device has one on its own target. Everything is recorded in the journal before it is created
(`journal.py`).

`provision` returns the identities of what a run opens, for the engine to compare with what it opened.

A target is purged so that the next run finds it as if it had never been written. `format` and `sanitize` are commands
of the drive (`nvme.py`). `trim` frees every block of the files and, with the privilege for FITRIM, discards all free
blocks of the file system; one that is mounted with `discard` does so anyway. `overwrite` frees nothing: the engine
writes zeros, where blocks cannot be freed.
"""

from __future__ import annotations

import array
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.base.text_files import expanded
from iosonde.errors import TargetError, os_errors
from iosonde.plan import target_of
from iosonde.storage.block_layer import block_nodes
from iosonde.storage.block_layer.block_nodes import device_number, identity_of, loops_on
from iosonde.storage.nvme import format_namespace, sanitize
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal import MOUNTS, OWN_DIRECTORY
from iosonde.storage.safety.own_directory import COMPANIONS
from iosonde.storage.setups import file_systems

if TYPE_CHECKING:
    from iosonde.plan import JsonObject, Plan


MEMORY_DIRECTORY = Path("/dev/shm")
"""A file system in memory, whose pages are charged to the control group that writes them."""


def journal_directory(device: str) -> Path:
    """Return the file of verification's journal for a block device, next to which there is no room for one."""
    state = expanded(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    return state / "iosonde" / "verification" / "-".join(Path(device).parent.parts[1:])


def prepare(plan: Plan) -> None:
    """Create what the plan's specs name, unless it exists and is ours; a resumed plan finds its files."""
    for path in reused(plan):
        if os.path.lexists(path):
            if not journal.take_over(path, keep=plan.keep):
                raise TargetError(
                    f"`{path}` exists, and iosonde did not create it",
                    hint="it was not changed; name another target, or move it away",
                )
        else:
            _create(path, keep=plan.keep)


def provision(spec: JsonObject) -> dict[str, str]:
    """Create what one run needs in its directory, and check what is there -> identity of each path that it opens.

    `TargetError` for anything that is not what iosonde created: a link, another file, a file with a second name.
    """
    workload = spec["workload"]
    identities: dict[str, str] = {}
    for path, names in _contents(workload).items():
        identities |= _provision_directory(path, names)
    for path in _own_files(workload):
        identity = _checked_file(path)
        if path.suffix not in COMPANIONS:  # The engine itself checks the files next to it.
            identities[str(path)] = identity
    for loop in loops_on(set(identities.values())):
        raise TargetError(
            f"`{loop.path}` is the backing file of the loop device `{loop.node}`",
            hint=f"detach it with `losetup --detach {loop.node}`, and continue with `iosonde resume DIR`",
        )
    return identities


def join(spec: JsonObject) -> dict[str, str]:
    """Identities of what another host has created for a run; `TargetError` for a link, or anything else."""
    workload = spec["workload"]
    identities: dict[str, str] = {}
    for path, names in _contents(workload).items():
        with (
            os_errors(
                f"cannot use `{path}`, which the first host creates",
                hint="check that the target is the same file system on all hosts",
            ),
            own_directory.opened(path) as directory,
        ):
            found = os.fstat(directory)
            identities[str(path)] = identity_of(found)
            for name in names:
                inode = own_directory.inode_of(directory, name)
                is_directory = own_directory.DATABASE.fullmatch(name) is not None
                if not own_directory.is_unchanged(directory, name, inode, is_directory=is_directory):
                    raise _foreign(path / name)
                identities[str(path / name)] = f"{device_number(found.st_dev)}:{inode}"
    return identities


def has_leftovers(plan: Plan) -> bool:
    """Return whether the journal lists anything that `prepare` created for the plan."""
    return any(journal.find(path) is not None for path in reused(plan))


def restore(plan: Plan) -> None:
    """Remove what `prepare` and `provision` created, unless the plan keeps it; what is not ours stays."""
    for path in reused(plan):
        entry = journal.find(path)
        if entry is None:
            continue
        if not os.path.lexists(path):
            journal.removed(path)
        elif not plan.keep and journal.take_over(path, keep=False):
            with journal.undoing(f"remove `{path}`"):
                journal.remove(path)


def _provision_directory(path: Path, names: Iterable[str]) -> dict[str, str]:
    entry = journal.find(path)
    known: dict[str, int] | None = None
    if entry is None and path.is_relative_to(MOUNTS):
        opening = file_systems.opened_on_mount(path)  # It goes with the file system.
    elif entry is None or entry.identity is None:
        raise _foreign(path)
    else:
        opening, known = own_directory.opened(path, entry.identity), entry.own_files
    with os_errors(f"cannot use `{path}`", hint="name a target that you may write to"), opening as directory:
        found = os.fstat(directory)
        identities = {str(path): identity_of(found)}
        for name in names:
            inode = _provision_entry(path, directory, name, known)
            identities[str(path / name)] = f"{device_number(found.st_dev)}:{inode}"
        return identities


def _provision_entry(path: Path, directory: int, name: str, known: Mapping[str, int] | None) -> int:
    """A file, or the directory of a database, in a directory of ours -> its inode number.

    `known` has what is recorded in the journal; None for a directory that goes with its file system, where everything
    is ours.
    """
    is_database = own_directory.DATABASE.fullmatch(name) is not None
    is_there = os.access(name, os.F_OK, dir_fd=directory, follow_symlinks=False)
    if is_there:
        inode = own_directory.inode_of(directory, name) if known is None else known.get(name)
        if not own_directory.is_unchanged(directory, name, inode, is_directory=is_database):
            raise _foreign(path / name)
        inode = own_directory.inode_of(directory, name)
        journal.add_files(path, {name: inode})
        return inode
    try:
        return journal.create_in(path, directory, name, is_database=is_database)
    except FileExistsError:
        raise _foreign(path / name) from None


def _checked_file(path: Path) -> str:
    """The identity of the file that a user named as target."""
    if not journal.is_ours(path):
        raise _foreign(path)
    found = path.lstat()
    if found.st_nlink != 1:
        raise TargetError(
            f"`{path}` has {found.st_nlink} names (hard links), and writing to it would change the others",
            hint=f"find them with `find -samefile {path}` and remove them",
        )
    return identity_of(found)


def _foreign(path: Path) -> TargetError:
    return TargetError(
        f"`{path}` is not what iosonde created there",
        hint="it was replaced, linked, or created by another program, and was not changed; find out by which, and "
        "start the study again",
    )


def reused(plan: Plan) -> list[Path]:
    """Return files and directories of a plan outside of its setups, which a resumed session takes over."""
    if plan.joins:
        return []
    found = {thing for spec in plan.specs() for thing in _thing(spec["workload"])}
    for case in (case.parameters for case in plan.cases):
        if case.get("log") == "apart" and "server_url" in case:  # No spec names the directory of the server's log.
            found.add(Path(str(case["log_target"])).resolve() / plan.created_name)
    return sorted(path for path in found if not path.is_relative_to(MOUNTS))


def _thing(workload: JsonObject) -> list[Path]:
    """Return the things that have an entry of their own in the journal."""
    target = target_of(workload)
    if target["kind"] == "device" and workload.get("verify"):
        device = target["path"]
        return [journal_directory(device) / f"{Path(device).name}{COMPANIONS[0]}"]
    return [*_contents(workload), *_own_files(workload)]


def _contents(workload: JsonObject) -> dict[Path, list[str]]:
    """Directories of ours with the names of what the run uses in each; those of a server are created with it."""
    target = target_of(workload)
    found: dict[Path, list[str]] = {}
    match target["kind"]:
        case "server":
            found = {own: [] for own in server_directories(workload)}
        case "socket":  # `OWN/memcached-XXXXXXXX/socket/memcached.sock`
            found = {own: [] for own in Path(target["path"]).parents[2:3] if OWN_DIRECTORY.fullmatch(own.name)}
        case "file":
            path = Path(target["path"])
            found = {path.parent: [path.name]} if OWN_DIRECTORY.fullmatch(path.parent.name) else {}
        case "file_per_job":
            names = [f"{stream['name']}.{job}" for stream in workload["streams"] for job in range(stream["jobs"])]
            found = {Path(target["directory"]): names}
        case "directory":  # Of a load or a database, its log and its read cache.
            cache = (target.get("read_cache") or {}).get("path")
            for path in map(Path, filter(None, (target["path"], target.get("log_path"), cache))):
                found.setdefault(path.parent, []).append(path.name)
    return found


ON_FOREIGN_SERVER = "iosonde_"
"""Prefix of databases that are created on servers of the user, which have no directory of iosonde's."""


def server_directories(workload: JsonObject) -> list[Path]:
    """The own directory of a server that iosonde starts: its socket is in `OWN/SERVER-XXXXXXXX/socket/`."""
    if configuration := (workload.get("store") or {}).get("config_path"):  # `OWN/ceph-XXXXXXXX/data/ceph.conf`
        return [each for each in Path(configuration).parents[2:3] if OWN_DIRECTORY.fullmatch(each.name)]
    if "server" not in workload:  # A key-value store or a bucket on a server of the user.
        return []
    address = workload["server"]["address"]
    if workload["server"]["database"].startswith(ON_FOREIGN_SERVER):
        return []
    own = Path(address["path"]).parents[2] if address["kind"] == "unix" else Path("/")
    return [own] if OWN_DIRECTORY.fullmatch(own.name) else []


def _own_files(workload: JsonObject) -> list[Path]:
    """Files that the user named, with the journal of verification next to them."""
    target = target_of(workload)
    if target["kind"] != "file" or _contents(workload):
        return []
    path = Path(target["path"])
    of_verification = path.with_name(f"{path.name}{COMPANIONS[0]}")
    # One that an earlier study left with the file it kept goes with the file.
    return [path, of_verification] if workload.get("verify") or journal.find(of_verification) else [path]


def _create(path: Path, *, keep: bool) -> None:
    if path.suffix in COMPANIONS:
        own_directory.create_parents(path.parent)
    with os_errors(f"cannot create `{path}`", hint="name a target that you may write to"):
        if OWN_DIRECTORY.fullmatch(path.name):
            journal.create_directory(path, keep=keep)
        else:
            journal.create_file(path, keep=keep)


_FITRIM = 0xC0185879
_BLKDISCARD = 0x1277


def purge(
    target: Mapping[str, Any], means: str, *, identities: Mapping[str, str], report: Callable[[str], None]
) -> str:
    """Purge a spec's target; `OSError` if that fails.

    `identities` are those of the paths (`workspace.provision`): nothing else is opened. `report` receives progress.
    Returns why the freed blocks were not discarded on the device; empty if they were.
    """
    if target["kind"] == "device":
        with block_nodes.opened(identities[target["path"]], os.O_RDWR) as device:
            match means:
                case "format":
                    format_namespace(device)
                case "sanitize":
                    sanitize(device, report)
                case "trim":  # The part that is measured.
                    fcntl.ioctl(device, _BLKDISCARD, array.array("Q", [0, target["size_bytes"]]))
    elif means == "trim":
        return _truncate_files(target, identities)
    return ""


def _truncate_files(target: Mapping[str, Any], identities: Mapping[str, str]) -> str:
    path = Path(target["path"] if target["kind"] == "file" else target["directory"])
    parent = path.parent if target["kind"] == "file" else path
    with own_directory.opened(parent, identities.get(str(parent)), follow=True) as directory:
        if target["kind"] == "file":
            own_directory.truncate(directory, path.name, int(identities[str(path)].rpartition(":")[2]))
        else:
            entry = journal.find(path)
            for name, inode in (entry.own_files if entry else own_directory.plain_files(directory)).items():
                own_directory.truncate(directory, name, inode)
        os.sync()
        try:
            fcntl.ioctl(directory, _FITRIM, array.array("Q", [0, 2**64 - 1, 0]))  # The whole file system.
        except OSError as error:  # Such as a device without discard.
            return error.strerror or str(error)
    return ""
