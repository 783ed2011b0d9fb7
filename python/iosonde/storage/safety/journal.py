"""The journal of what iosonde created: an entry is written before a thing is created, and removed after it is gone.

One JSON file for each thing under `$XDG_STATE_HOME/iosonde/created/`, so that after a crash, a kill or a power cut
`cleanup` finds it again and removes it, and nothing else: a thing is removed only if it is still the very one that was
created (same device, inode number and file handle), and if the process that created it no longer runs.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from iosonde.cache import TEMPORARY, abandoned
from iosonde.errors import TargetError
from iosonde.storage.block_layer.loop_status import attached_to, identity_of
from iosonde.storage.safety import kept_numbers, own_directory
from iosonde.storage.safety.file_handle import handle_of
from iosonde.storage.safety.journal_entry import (
    CONTROL_GROUP,
    DATABASE_ON_SERVER,
    TEMPORARY_FILES,
    Entry,
    EntryError,
    kinds,
    owner_of,
    read_entry,
)
from iosonde.text_files import expanded

__all__ = ["CONTROL_GROUP", "Entry"]


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """Result of `cleanup` for one entry."""

    path: str
    reason: str
    """A clause: `removed`, or why it was left."""
    failed: bool = False
    """True if it should have been removed and could not be."""


def created(path: Path, what: str, *, keep: bool = False, facts: dict[str, Any] | None = None) -> None:
    """Record that `path` is about to be created. Call this before creating it, and `identify` after.

    A kind without `has_identity` is undone and not removed: its `facts` identify it.
    """
    entry = Entry(
        path=str(path),
        what=what,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        owner=owner_of(os.getpid()),
        keep=keep,
        facts=facts or {},
        number=time.time_ns(),
    )
    _write(entry)


def identify(path: Path) -> None:
    """Record the identity of what was created at `path`, so that only that is ever removed."""
    _change(path, **_identification(path))


def add_files(path: Path, files: Mapping[str, int]) -> None:
    """Record files that were created in a directory of ours, by name and inode number."""
    entry = find(path)
    if entry is None:
        return
    created = [name for name, inode in files.items() if inode > 0]
    for name in created:
        kept_numbers.keep(path / name)
    found = {name: handle_of(path / name) for name in created}
    handles = {name: handle for name, handle in entry.handles.items() if name not in files}
    handles |= {name: handle for name, handle in found.items() if handle}
    if not files.items() <= entry.files.items() or handles != entry.handles:
        _change(path, files={**entry.files, **files}, handles=handles)


def own_files(entry: Entry) -> dict[str, int]:
    """The recorded files of a directory, without a name at which another file by now has the same inode number."""
    return {
        name: inode for name, inode in entry.files.items() if _is_same(Path(entry.path, name), entry.handles.get(name))
    }


def _is_same(path: Path, handle: str | None) -> bool:
    """Return True if nothing shows that a handle is of another file."""
    return handle is None or handle_of(path) in (None, handle)


def is_ours(path: Path) -> bool:
    """Return True if iosonde created what is at `path` now."""
    entry = find(path)
    return entry is not None and _is_unchanged(entry)


def take_over(path: Path, *, keep: bool) -> bool:
    """Return True if what is at `path` is ours to use; if so this process owns it from now on.

    Another iosonde that still uses it is an error.
    """
    entry = find(path)
    if entry is None or not _is_unchanged(entry):
        return False
    _check_unused(entry)
    _write(replace(entry, owner=owner_of(os.getpid()), keep=keep, **_identification(path)))
    return True


def removed(path: Path) -> None:
    """Remove the entry about `path`, which is gone or no longer ours."""
    kept_numbers.release(path)
    _entry_file(path).unlink(missing_ok=True)


def find(path: Path) -> Entry | None:
    """The entry about `path`, if there is one that may be acted on."""
    try:
        return _read(_entry_file(path))
    except (FileNotFoundError, EntryError):
        return None


def entries() -> list[Entry]:
    """Every entry that may be acted on, oldest first."""
    return _all_entries()[0]


def cleanup(*, kept: list[Path] | None = None, forget: Sequence[Path] = ()) -> list[Cleaned]:
    """Remove the leftovers of earlier runs, the last first, and what was kept at these paths or below them.

    Entries that cannot be acted on are reported and stay. Only those in `forget`, of databases on servers of the user,
    are removed although the database cannot be dropped.
    """
    found, problems = _all_entries()
    for path in forget:
        entry = next((each for each in found if Path(each.path) == path), None)
        if entry is None or entry.what != DATABASE_ON_SERVER:
            raise TargetError(
                f"the journal has no database on a server as `{path}`",
                where="in the option `--forget`",
                hint="`iosonde cleanup` prints these paths; everything else is local, and is removed, not forgotten",
            )
    found = [entry for entry in found if not _is_empty(entry)]
    cleaned = [_clean(entry, kept=kept or [], forget=forget) for entry in reversed(found)]
    return [*cleaned, *problems, *_temporary_files()]


def kept_below(paths: list[Path]) -> list[Entry]:
    """Entries of what the user kept at these paths or below them."""
    return [entry for entry in entries() if entry.keep and _is_below(entry, paths) and os.path.lexists(entry.path)]


def clear(own: str, *, reused: Collection[Path] | None = None) -> None:
    """Undo what remains of what was created under that name, the last first; `OSError` for the first that failed.

    Directories of files for a workload stay. For the session that continues where another was killed, give the paths
    that it reuses: the others are removed too, with the control groups of the killed process. What the user keeps
    stays. Databases on servers of the user are dropped once the user has named them (`foreign_database.create`).
    `TargetError`, and nothing is undone, if another iosonde still uses any of it: a copy of its result set is resumed,
    for example.
    """
    failed: OSError | None = None
    for entry in reversed([*_groups_of_killed(check_unused(own)), *check_unused(own)]):
        path = Path(entry.path)
        if entry.what == DATABASE_ON_SERVER or (reused is not None and entry.keep):
            continue
        try:
            if _is_undone(entry):
                undo(path)
            elif path.name == f"{own}-setup" or (reused is not None and path not in reused):
                if os.path.lexists(path) and _is_unchanged(entry):
                    remove(path)
                removed(path)
        except OSError as error:
            failed = failed or error
    if failed:
        raise failed


def _groups_of_killed(of_own: Sequence[Entry]) -> list[Entry]:
    """Control groups, whose paths do not have the name of the study, of the killed processes that created these."""
    owners = {entry.owner for entry in of_own if not entry.in_use}
    return [entry for entry in entries() if entry.what == CONTROL_GROUP and entry.owner in owners]


def check_unused(own: str) -> list[Entry]:
    """The entries of what was created under that name; `TargetError` if another iosonde uses any of it."""
    remaining = [entry for entry in entries() if _is_under(entry, own)]
    for entry in remaining:
        _check_unused(entry)
    return remaining


def _is_under(entry: Entry, own: str) -> bool:
    parts = Path(entry.path).parts
    return own in parts or f"{own}-setup" in parts or entry.facts.get("own") == own


def _check_unused(entry: Entry) -> None:
    if entry.in_use and not entry.is_mine:
        raise TargetError(
            f"`{entry.path}` is in use by another iosonde (process {entry.process})",
            hint="wait until it exits, or name another target",
        )


def undo(path: Path) -> None:
    """Undo what an entry of a kind in `kinds` is about, and remove the entry; `OSError` if that fails."""
    entry = find(path)
    if entry is not None:
        if not _has_ended(entry):
            kinds()[entry.what].undo(entry)
        removed(path)


def _is_undone(entry: Entry) -> bool:
    """Return True for what is undone by its kind, not removed as a file."""
    kind = kinds().get(entry.what)
    return kind is not None and not kind.has_identity


def _has_ended(entry: Entry) -> bool:
    """Return True for state of the kernel that ended with an earlier boot."""
    kind = kinds().get(entry.what)
    return kind is not None and kind.ends_with_boot and entry.is_of_earlier_boot


def undo_abandoned(path: Path) -> None:
    """Undo what a killed iosonde has recorded about `path`; `TargetError` if that fails, or if another one has it now.

    For what has a fixed path: an entry is not written over one that is still needed.
    """
    entry = find(path)
    if entry is not None:
        _check_unused(entry)
        with undoing(f"restore `{path}`"):
            undo(path)


@contextmanager
def undoing(what: str) -> Iterator[None]:
    """Whatever prevents a removal becomes a `TargetError`; `what` is a clause as `remove PATH`."""
    try:
        yield
    except OSError as error:
        raise TargetError(
            f"cannot {what}: {error.strerror or error}",
            hint="`iosonde cleanup` tries again, once the cause is removed",
        ) from error


def restore(paths: Sequence[Path]) -> None:
    """Undo changes to files, the last one first; `TargetError` if one cannot be undone, after the others."""
    with ExitStack() as all_of_them:
        for path in paths:
            all_of_them.callback(_restore, path)


def _restore(path: Path) -> None:
    with undoing(f"restore `{path}`"):
        undo(path)


def remove(path: Path) -> None:
    """Remove a file, a control group, or a directory of ours, and its entry; `OSError` for what must stay."""
    entry = find(path)
    devices = attached_to(path)
    if devices:
        raise OSError(f"it is attached to the loop device `{devices[0]}`")
    if entry is not None and entry.what in kinds():
        kinds()[entry.what].undo(entry)
    elif entry is not None and entry.what == "directory":
        identity = entry.identity if entry.identity == _identity(path) else None
        foreign = own_directory.remove(path, identity, own_files(entry))
        if foreign:
            raise OSError(f"it contains files that iosonde did not create and did not remove: {_listed(foreign)}")
    else:
        _remove_file(path)
    removed(path)


def _remove_file(path: Path) -> None:
    """Unlink a regular file in its open directory."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no longer a file")
        os.unlink(path.name, dir_fd=directory)
    finally:
        os.close(directory)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _clean(entry: Entry, *, kept: list[Path], forget: Sequence[Path]) -> Cleaned:
    path = Path(entry.path)
    reason = _why_not(entry, kept)
    if reason:
        return Cleaned(path=entry.path, reason=reason)
    try:
        if _is_undone(entry):
            is_gone = _has_ended(entry)
            undo(path)
            reason = "ended with the last boot" if is_gone else f"the {entry.what} was removed"
            return Cleaned(path=entry.path, reason=reason)
        if not os.path.lexists(path) or not _is_unchanged(entry):
            reason = "is no longer what iosonde created: left alone" if os.path.lexists(path) else "is gone already"
            removed(path)
            return Cleaned(path=entry.path, reason=reason)
        remove(path)
    except (OSError, TargetError, ValueError) as error:
        problem = error.what if isinstance(error, TargetError) else getattr(error, "strerror", None) or error
        if path in forget:
            removed(path)
            return Cleaned(path=entry.path, reason=f"was forgotten and not dropped: {problem}")
        return Cleaned(path=entry.path, reason=f"could not be removed: {problem}", failed=True)
    return Cleaned(path=entry.path, reason="removed")


def _is_empty(entry: Entry) -> bool:
    """Return True if an entry about temporary files, which most sessions leave without any, needs no report."""
    if entry.what != TEMPORARY_FILES or (not entry.in_use and kinds()[entry.what].remains(entry)):
        return False
    if not entry.in_use:
        removed(Path(entry.path))
    return True


def _why_not(entry: Entry, kept: list[Path]) -> str:
    if entry.in_use:
        return f"is in use by process {entry.process}"
    if entry.keep and not _is_below(entry, kept):
        return "was kept (`--kept PATH` removes it as well)"
    return ""


def _is_below(entry: Entry, paths: list[Path]) -> bool:
    return any(Path(entry.path).is_relative_to(path) for path in paths)


def _all_entries() -> tuple[list[Entry], list[Cleaned]]:
    """Entries, oldest first, and the files that are none."""
    found: list[Entry] = []
    problems: list[Cleaned] = []
    for file in _files(lambda name: name.endswith(".json") and not name.startswith(".")):
        try:
            found.append(_read(file))
        except FileNotFoundError:
            continue  # Another iosonde has removed it.
        except EntryError as error:
            problems.append(Cleaned(path=str(file), reason=f"{error}; not acted on", failed=True))
    return sorted(found, key=lambda entry: (entry.number, entry.made_at, entry.path)), problems


def _read(file: Path) -> Entry:
    entry = read_entry(file)
    if file != _entry_file(Path(entry.path)):
        raise EntryError(f"is not the entry about `{entry.path}`")
    return entry


def _temporary_files() -> list[Cleaned]:
    """Remove what killed writers left of entries, for which nothing was created yet, and of files in the cache."""
    cleaned = []
    for file in abandoned():
        with suppress(OSError):
            file.unlink()
            cleaned.append(Cleaned(path=str(file), reason="removed"))
    for file in _files(lambda name: name.startswith(TEMPORARY)):
        process = file.name.rpartition("-")[2]
        with suppress(OSError):
            if process.isdigit() and Path("/proc", process).exists():
                continue  # It may be writing this moment.
            if file.lstat().st_uid == os.geteuid():
                file.unlink()
                cleaned.append(Cleaned(path=str(file), reason="removed"))
    return cleaned


def _files(is_wanted: Any) -> list[Path]:
    try:
        return sorted(Path(each.path) for each in os.scandir(_directory()) if is_wanted(each.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise TargetError(
            f"cannot read the journal `{_directory()}`: {error.strerror}", hint="make that directory readable"
        ) from error


def _is_unchanged(entry: Entry) -> bool:
    """Without an identity, a thing is ours only if it is empty: we died before the identity was recorded."""
    path = Path(entry.path)
    if entry.identity is not None:
        return entry.identity == _identity(path) and _has_handle(entry)
    if path.is_symlink():
        return False
    if entry.what == CONTROL_GROUP:
        return path.is_dir()  # It always has files; `rmdir` fails for one in use.
    return path.stat().st_size == 0 if path.is_file() else path.is_dir() and not any(path.iterdir())


def _has_handle(entry: Entry) -> bool:
    """Return True if the inode is the one that was created: another file may get the number of a removed one.

    Where there are no handles, a file of another owner or mode, or with a second name, is another one.
    """
    path = Path(entry.path)
    if entry.handle is not None and (now := handle_of(path)) is not None:
        return now == entry.handle
    found = path.lstat()
    return not stat.S_ISREG(found.st_mode) or (found.st_nlink == 1 and entry.status == _status(found))


def _identification(path: Path) -> dict[str, Any]:
    """Return the identity of the thing at `path`, as fields of its entry; nothing if there is none."""
    kept_numbers.keep(path)
    try:
        status = _status(path.lstat())
    except OSError:
        status = None
    return {"identity": _identity(path), "handle": handle_of(path), "status": status}


def _status(found: os.stat_result) -> str:
    return f"{found.st_uid}:{stat.S_IMODE(found.st_mode):o}"


def _identity(path: Path) -> str | None:
    """Return the identity of a file or directory; None for anything else."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return identity_of(found) if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None


def _directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return expanded(state) / "iosonde" / "created"


def _entry_file(path: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(path).encode(errors='surrogateescape')).hexdigest()[:24]}.json"


def _change(path: Path, **fields: Any) -> None:
    entry = find(path)
    assert entry is not None, f"{path} was not announced"
    _write(replace(entry, **fields))


def _write(entry: Entry) -> None:
    file = _entry_file(Path(entry.path))
    temporary = file.with_name(f"{TEMPORARY}{file.name}-{os.getpid()}")
    try:
        own_directory.create_parents(file.parent)
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(entry.to_json())
            handle.flush()
            os.fsync(handle.fileno())
        temporary.rename(file)
        directory = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise TargetError(
            f"cannot record in `{file.parent}` that `{entry.path}` will be created: {error.strerror}",
            hint="iosonde creates nothing that it could not remove after a crash; make that directory writable, or "
            "name another with the environment variable `XDG_STATE_HOME`",
        ) from error
