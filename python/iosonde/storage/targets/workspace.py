"""Files and directories that a plan's runs need before an engine starts: created, checked before each run, and removed.

A directory target gets a fresh subdirectory `iosonde-XXXXXXXX`, which only its owner can enter, and each run finds its
files there, empty at first. A file target is an empty file. The engine fills them, and keeps its journal of a verified
file next to it (`FILE.verify`). Databases of key-value stores each have a directory in that subdirectory, and a log or
read cache on another device has one on its own target. Everything is recorded in the journal before it is created
(`journal.py`).

`provision` returns the identities of what a run opens, for the engine to compare with what it opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosonde.errors import TargetError
from iosonde.plan import target_of
from iosonde.storage.block_layer.block_nodes import device_number
from iosonde.storage.block_layer.loop_status import identity_of, loops_on
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal_entry import MOUNTS, OWN_DIRECTORY
from iosonde.storage.safety.own_directory import COMPANIONS
from iosonde.storage.setups import file_systems
from iosonde.text_files import expanded

if TYPE_CHECKING:
    from iosonde.plan import Case, JsonObject, Plan


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
    for path in _directories(workload):
        identities |= _provision_directory(path, _names(workload, path))
    for path in _own_files(workload):
        identity = _checked_file(path)
        if path.suffix not in COMPANIONS:  # The engine itself checks the files next to it.
            identities[str(path)] = identity
    _check_unattached(identities)
    return identities


def join(spec: JsonObject) -> dict[str, str]:
    """Identities of the files of a run that another host has created; `TargetError` for anything but plain files."""
    workload = spec["workload"]
    identities: dict[str, str] = {}
    for path in _directories(workload):
        try:
            with own_directory.opened(path) as directory:
                found = os.fstat(directory)
                identities[str(path)] = identity_of(found)
                for name in _names(workload, path):
                    inode = own_directory.inode_of(directory, name)
                    if not own_directory.is_unchanged(directory, name, inode, is_directory=False):
                        raise _foreign(path / name)
                    identities[str(path / name)] = f"{device_number(found.st_dev)}:{inode}"
        except OSError as error:
            raise TargetError(
                f"cannot use `{path}`, which the first host creates: {error.strerror or error}",
                hint="check that the target is the same file system on all hosts",
            ) from error
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
    is_on_mount = entry is None and path.is_relative_to(MOUNTS)
    if is_on_mount:
        file_systems.provide_directory(path)  # It goes with the file system.
        known = None
    elif entry is None or entry.identity is None:
        raise _foreign(path)
    else:
        known = journal.own_files(entry)
    try:
        with own_directory.opened(path, entry.identity if entry else None) as directory:
            if is_on_mount:
                file_systems.check_on_mount(path, directory)
            found = os.fstat(directory)
            identities = {str(path): identity_of(found)}
            for name in names:
                inode = _provision_entry(path, directory, name, known)
                identities[str(path / name)] = f"{device_number(found.st_dev)}:{inode}"
            return identities
    except FileExistsError as error:
        raise _foreign(path / str(error.filename)) from None
    except OSError as error:
        raise TargetError(
            f"cannot use `{path}`: {error.strerror or error}", hint="name a target that you may write to"
        ) from error


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
            raise FileExistsError(0, "is not what iosonde created", name)
        return _record(path, directory, name)
    journal.add_files(path, {name: own_directory.ANNOUNCED})
    create = own_directory.create_database if is_database else own_directory.create_file
    create(directory, name)
    return _record(path, directory, name)


def _record(path: Path, directory: int, name: str) -> int:
    inode = own_directory.inode_of(directory, name)
    journal.add_files(path, {name: inode})
    return inode


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


def _check_unattached(identities: Mapping[str, str]) -> None:
    """`TargetError` for a file that was attached to a loop device, whose contents a run would destroy."""
    for loop in loops_on(set(identities.values())):
        raise TargetError(
            f"`{loop.path}` is the backing file of the loop device `{loop.node}`",
            hint=f"detach it with `losetup --detach {loop.node}`, and continue with `iosonde resume DIR`",
        )


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
    found |= {Path(directory) for case in plan.cases for directory in _log_directories(plan, case)}
    return sorted(path for path in found if not path.is_relative_to(MOUNTS))


def _log_directories(plan: Plan, case: Case) -> list[Path]:
    """The own directory on the target of a database server's log, which no spec names."""
    is_apart = case.parameters.get("log") == "apart" and "server_url" in case.parameters
    return [Path(str(case.parameters["log_target"])).resolve() / plan.created_name] if is_apart else []


def _thing(workload: JsonObject) -> list[Path]:
    """Return the things that have an entry of their own in the journal."""
    target = target_of(workload)
    if target["kind"] == "device" and workload.get("verify"):
        device = target["path"]
        return [journal_directory(device) / f"{Path(device).name}{COMPANIONS[0]}"]
    return [*_directories(workload), *_own_files(workload)]


def _directories(workload: JsonObject) -> list[Path]:
    """Directories of ours in which the run has its files."""
    target = target_of(workload)
    match target["kind"]:
        case "server":
            return server_directories(workload)
        case "socket":  # `OWN/memcached-XXXXXXXX/socket/memcached.sock`
            return [each for each in Path(target["path"]).parents[2:3] if OWN_DIRECTORY.fullmatch(each.name)]
        case "file" if OWN_DIRECTORY.fullmatch(Path(target["path"]).parent.name):
            return [Path(target["path"]).parent]
        case "file_per_job":
            return [Path(target["directory"])]
        case "directory":
            return list(dict.fromkeys(Path(path).parent for path in _databases(target)))
        case _:
            return []


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


def _databases(target: Mapping[str, Any]) -> list[str]:
    """Directories of a database, its log and its read cache, each in one of ours."""
    cache = (target.get("read_cache") or {}).get("path")
    return [path for path in (target["path"], target["log_path"], cache) if path]


def _own_files(workload: JsonObject) -> list[Path]:
    """Files that the user named, with the journal of verification next to them."""
    target = target_of(workload)
    if target["kind"] != "file" or _directories(workload):
        return []
    path = Path(target["path"])
    of_verification = path.with_name(f"{path.name}{COMPANIONS[0]}")
    # One that an earlier study left with the file it kept goes with the file.
    return [path, of_verification] if workload.get("verify") or journal.find(of_verification) else [path]


def _names(workload: JsonObject, directory: Path) -> list[str]:
    """Names of what the run uses in one of its directories; those of a server are created with it."""
    target = target_of(workload)
    match target["kind"]:
        case "server":
            return []
        case "file":
            return [Path(target["path"]).name]
        case "file_per_job":
            return [f"{stream['name']}.{job}" for stream in workload["streams"] for job in range(stream["jobs"])]
        case _:
            return [Path(path).name for path in _databases(target) if Path(path).parent == directory]


def _create(path: Path, *, keep: bool) -> None:
    is_directory = OWN_DIRECTORY.fullmatch(path.name) is not None
    if path.suffix in COMPANIONS:
        own_directory.create_parents(path.parent)
    journal.created(path, "directory" if is_directory else "file", keep=keep)
    try:
        if is_directory:
            own_directory.create(path)
        else:
            path.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        journal.removed(path)
        raise TargetError(
            f"cannot create `{path}`: {error.strerror}", hint="name a target that you may write to"
        ) from error
    journal.identify(path)
