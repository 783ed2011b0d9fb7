"""The journal of what iosonde created: an entry is written before a thing is created, and removed after it is gone.

One JSON file for each thing under `$XDG_STATE_HOME/iosonde/created/`, so that after a crash, a kill or a power cut
`cleanup` finds it again and removes it, and nothing else: a thing is removed only if it is still the very one that was
created (same device, inode number and mark), and if the process that created it no longer runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from iosonde.base.cache import TEMPORARY, abandoned
from iosonde.base.features import contributed
from iosonde.base.provided import provided
from iosonde.base.text_files import expanded
from iosonde.errors import TargetError, os_errors
from iosonde.storage.block_layer.block_nodes import attached_to, identity_of
from iosonde.storage.safety import own_directory
from iosonde.storage.safety.own_directory import COMPANIONS, mark_of

CONTROL_GROUP = "control group"
"""A directory of a control group hierarchy, whose files are the kernel's."""

SERVER = "server"
"""The processes of a server that iosonde started; its path is that of the server's data directory."""

DATABASE_ON_SERVER = "database"
"""A database on a server that the user runs."""

QUEUE_SETTING = "queue setting"
"""A file of a block queue whose value was changed."""

TEMPORARY_FILES = "temporary file"
"""Files and directories whose names start with a random token; its path is their directory with that token."""

SCRATCH = "iosonde-"
"""Prefix of a directory for temporary files."""

OWN_DIRECTORY = re.compile(r"iosonde-[0-9a-f]{8}")
"""Name of a directory that iosonde creates inside the one that the user names."""

MOUNTS = Path("/run/iosonde")
"""Directory of mounted file systems and links to devices, with a directory for each study."""

DATABASES = MOUNTS / "databases"
"""Entries of the journal have paths: that of a database on a server is below this directory, which need not exist."""

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class JournalKind:
    """A kind of entry, listed in `UNDO` of a feature's `storage.py`, or in `KINDS` of an `undo.py`."""

    what: str
    """A noun, `Entry.what`."""
    path: str
    """Pattern of the paths that its entries may have."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that undoing needs, with their patterns; one that an entry does not have is empty."""
    has_members: bool = False
    """True if the fact `members` lists block devices."""
    ends_with_boot: bool = False
    """State of the kernel: after a reboot, whatever has the name or number of an entry is not ours."""
    has_identity: bool = False
    """It is a thing with a path of its own, and is removed only if that still leads to what was created."""
    undo: Callable[[Entry], None]
    """Remove what an entry is about, if it still is what was created; `OSError` if that fails."""
    remains: Callable[[Entry], bool] = lambda entry: True
    """Return False for an entry of which nothing is left, and which needs no report."""


def kinds() -> Mapping[str, JournalKind]:
    """Return the kinds of storage, servers and features, by `what`."""
    of_core: tuple[JournalKind, ...] = provided("undo").KINDS
    return {kind.what: kind for kind in (*of_core, *contributed("storage", "UNDO", JournalKind))}


class EntryError(ValueError):
    """A journal file is not a valid entry and must not be acted on; the message is a clause with the reason."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that iosonde created, or was about to create."""

    path: str
    what: str
    """A noun: `file`, `directory`, `mount`."""
    owner: str
    """The process that uses it: boot, process number and start time, which together never come again."""
    identity: str | None = None
    """Device and inode number (`identity_of`), once it exists."""
    keep: bool = False
    """The user wants it to stay."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Parameters of undoing it, for things that are not files."""
    files: dict[str, int] = field(default_factory=dict)
    """Names of the files that iosonde created in a directory, with their inode numbers."""
    marks: dict[str, str] = field(default_factory=dict)
    """`own_directory.mark_of` these files by name, and of the thing itself without a name: inode numbers come again."""
    number: int = 0
    """Time of creation in nanoseconds: what was created later has a larger one."""

    @property
    def in_use(self) -> bool:
        """Return True if the process that created it still runs."""
        return self.owner != "" and self.owner == owner_of(self.process)

    @property
    def is_mine(self) -> bool:
        """Return True if this very process created it or took it over."""
        return self.owner == owner_of(os.getpid())

    @property
    def process(self) -> int:
        """Number of the process that uses it."""
        parts = self.owner.split()
        return int(parts[1]) if len(parts) == 3 and re.fullmatch(r"[0-9]{1,10}", parts[1]) else 0

    @property
    def kind(self) -> JournalKind:
        """Its kind, which exists."""
        return kinds()[self.what]

    @property
    def has_ended(self) -> bool:
        """Return True for state of the kernel that ended with an earlier boot."""
        return self.kind.ends_with_boot and self.owner != "" and self.owner.partition(" ")[0] != boot_id()

    @property
    def own_files(self) -> dict[str, int]:
        """The files of a directory, without a name at which another file by now has the same inode number."""
        marks = self.marks.items()
        changed = {name for name, mark in marks if mark and mark_of(Path(self.path, name)) not in ("", mark)}
        return {name: inode for name, inode in self.files.items() if name not in changed}

    @property
    def is_unchanged(self) -> bool:
        """Return True if what was created is still at its path.

        Without an identity, a thing is ours only if it is empty: we died before the identity was recorded.
        """
        path = Path(self.path)
        if self.identity is not None:
            return self.identity == file_identity(path) and self.marks.get("", "") == mark_of(path)
        if path.is_symlink():
            return False
        if self.what == CONTROL_GROUP:
            return path.is_dir()  # It always has files; `rmdir` fails for one in use.
        return path.stat().st_size == 0 if path.is_file() else path.is_dir() and not any(path.iterdir())


def file_identity(path: Path) -> str | None:
    """Return the identity of a file or directory; None for anything else."""
    with suppress(OSError):
        found = path.lstat()
        return identity_of(found) if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
    return None


def boot_id() -> str:
    """Unique identification of this start of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def owner_of(process: int) -> str:
    """Unique identification of a running process; empty for one that does not run."""
    try:
        boot = boot_id()
        # Field 22 of /proc/PID/stat, counted after the name in parentheses, which may contain anything.
        started = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot} {process} {started}"


def _read(file: Path) -> Entry:
    """The entry in a file; `EntryError` if it may not be acted on, `FileNotFoundError` if there is no such file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8") as handle:
            _check_file(os.fstat(descriptor))
            entry = Entry(**json.loads(handle.read(_MOST_BYTES)))
    except (FileNotFoundError, EntryError):
        raise
    except OSError as error:
        raise EntryError(f"cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise EntryError("is damaged: it is not an entry") from error
    entry = _checked(entry)
    if file != _entry_file(Path(entry.path)):
        raise EntryError(f"is not the entry about `{entry.path}`")
    return entry


def _check_file(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise EntryError("is not a regular file with a single hard link")
    if found.st_uid != os.geteuid():
        raise EntryError(f"belongs to user {found.st_uid}: only `iosonde cleanup` of that user acts on it")
    if found.st_mode & 0o022:
        raise EntryError("can be written by other users")


def _is_file_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _checked(entry: Entry) -> Entry:
    types: dict[str, type | tuple[type, ...]] = {
        "path": str, "what": str, "owner": str, "identity": (str, type(None)), "keep": bool,
        "facts": dict, "files": dict, "marks": dict, "number": int,
    }  # fmt: skip
    for name, type_ in types.items():
        if not isinstance(getattr(entry, name), type_):
            raise EntryError(f"is damaged: `{name}` has the wrong type")
    for text in (entry.path, entry.owner, entry.identity or "", *map(str, entry.facts.values()), *entry.files):
        if not _is_file_name(text):
            raise EntryError("is damaged: it has characters that no path has")
    kind = kinds().get(entry.what)
    if kind is None:
        raise EntryError(f"is damaged: there is no kind `{entry.what}`")
    if not re.fullmatch(kind.path, entry.path, re.DOTALL) or os.path.normpath(entry.path) != entry.path:
        raise EntryError(f"names `{entry.path}`, which is not a path of a {entry.what} of iosonde")
    facts = dict.fromkeys(kind.facts, "") | entry.facts
    for name, pattern in kind.facts.items():
        if not isinstance(facts[name], str) or not re.fullmatch(pattern, facts[name]):
            raise EntryError(f"is damaged: the fact `{name}` is missing or wrong")
    members = facts.get("members", None if kind.has_members else [])
    if not isinstance(members, list) or not all(isinstance(each, str) and _is_file_name(each) for each in members):
        raise EntryError("is damaged: the fact `members` is wrong")
    if not all(isinstance(inode, int) and "/" not in name for name, inode in entry.files.items()):
        raise EntryError("is damaged: `files` is wrong")
    if not entry.marks.keys() <= {"", *entry.files} or not all(isinstance(mark, str) for mark in entry.marks.values()):
        raise EntryError("is damaged: `marks` is wrong")
    return replace(entry, facts=facts)


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
        owner=owner_of(os.getpid()),
        keep=keep,
        facts=facts or {},
        number=time.time_ns(),
    )
    _write(entry)


def identify(path: Path) -> None:
    """Record the identity of what was created at `path`, so that only that is ever removed."""
    entry = find(path)
    assert entry is not None, f"{path} was not announced"
    _write(_identified(entry))


def add_files(path: Path, files: Mapping[str, int]) -> None:
    """Record files that were created in a directory of ours, by name and inode number."""
    entry = find(path)
    if entry is None:
        return
    marks = {name: mark for name, mark in entry.marks.items() if name not in files}
    for name in (name for name, inode in files.items() if inode > 0):
        own_directory.keep_number(path / name)
        marks[name] = own_directory.mark_of(path / name)
    if not files.items() <= entry.files.items() or marks != entry.marks:
        _write(replace(entry, files={**entry.files, **files}, marks=marks))


def create_directory(path: Path, *, keep: bool = False) -> None:
    """Create a directory of ours, which only its owner can enter; `OSError` if that fails."""
    created(path, "directory", keep=keep)
    with _forgotten_on_failure(path):
        own_directory.create(path)
    identify(path)


def create_file(path: Path, *, keep: bool = False) -> None:
    """Create an empty file of ours, which only its owner can read and write; `OSError` if that fails."""
    created(path, "file", keep=keep)
    with _forgotten_on_failure(path):
        path.touch(mode=0o600, exist_ok=False)
    identify(path)


@contextmanager
def _forgotten_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        removed(path)
        raise


def create_in(path: Path, directory: int, name: str, *, size_bytes: int = 0, is_database: bool = False) -> int:
    """Create a file without data, or the directory of a database, in an open directory of ours -> its inode number.

    `FileExistsError` if anything has that name.
    """
    add_files(path, {name: own_directory.ANNOUNCED})
    if is_database:
        os.mkdir(name, 0o700, dir_fd=directory)
    else:
        own_directory.create_file(directory, name, size_bytes)
    inode = own_directory.inode_of(directory, name)
    add_files(path, {name: inode})
    return inode


def is_ours(path: Path) -> bool:
    """Return True if iosonde created what is at `path` now."""
    entry = find(path)
    return entry is not None and entry.is_unchanged


def take_over(path: Path, *, keep: bool) -> bool:
    """Return True if what is at `path` is ours to use; if so this process owns it from now on.

    Another iosonde that still uses it is an error.
    """
    entry = find(path)
    if entry is None or not entry.is_unchanged:
        return False
    _check_unused(entry)
    _write(replace(_identified(entry), owner=owner_of(os.getpid()), keep=keep))
    return True


def removed(path: Path) -> None:
    """Remove the entry about `path`, which is gone or no longer ours."""
    own_directory.release_numbers(path)
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
    """Entries of what the user kept at these paths or below them, with the engine's own files about a file."""
    return [entry for entry in entries() if entry.keep and _is_below(entry, paths) and os.path.lexists(entry.path)]


def clear(own: str, *, reused: Collection[Path] | None = None) -> None:
    """Undo what remains of what was created under that name, the last first; `OSError` for the first that failed.

    Directories of files for a workload stay. For the session that continues where another was killed, give the paths
    that it reuses: the others are removed too, with the control groups of the killed process. What the user keeps
    stays. Databases on servers of the user are dropped once the user has named them (`foreign_database.create`).
    Temporary files of killed processes are removed.
    `TargetError`, and nothing is undone, if another iosonde still uses any of it: a copy of its result set is resumed,
    for example.
    """
    failed: OSError | None = None
    of_own = check_unused(own)
    _temporary_files()
    # The paths of control groups of the killed processes that created these do not have the name of the study.
    owners = {entry.owner for entry in of_own if not entry.in_use}
    groups = [entry for entry in entries() if entry.what == CONTROL_GROUP and entry.owner in owners]
    for entry in reversed([*groups, *of_own]):
        path = Path(entry.path)
        if entry.what == DATABASE_ON_SERVER or (reused is not None and entry.keep):
            continue
        try:
            if not entry.kind.has_identity:
                undo(path)
            elif path.name == f"{own}-setup" or (reused is not None and path not in reused):
                if os.path.lexists(path) and entry.is_unchanged:
                    remove(path)
                removed(path)
        except OSError as error:
            failed = failed or error
    if failed:
        raise failed


def check_unused(own: str) -> list[Entry]:
    """The entries of what was created under that name; `TargetError` if another iosonde uses any of it."""
    names = {own, f"{own}-setup"}
    found = [each for each in entries() if names & {*Path(each.path).parts} or each.facts.get("own") == own]
    for entry in found:
        _check_unused(entry)
    return found


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
        if not entry.has_ended:
            entry.kind.undo(entry)
        removed(path)


def undo_abandoned(path: Path) -> None:
    """Undo what a killed iosonde has recorded about `path`; `TargetError` if that fails, or if another one has it now.

    For what has a fixed path: an entry is not written over one that is still needed.
    """
    entry = find(path)
    if entry is not None:
        _check_unused(entry)
        _restore(path)


def undoing(what: str) -> AbstractContextManager[None]:
    """Whatever prevents a removal becomes a `TargetError`; `what` is a clause as `remove PATH`."""
    return os_errors(f"cannot {what}", hint="`iosonde cleanup` tries again, once the cause is removed")


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
    devices = attached_to(path)
    if devices:
        raise OSError(f"it is attached to the loop device `{devices[0]}`")
    entry = find(path)
    if entry is not None:
        entry.kind.undo(entry)
    removed(path)


def remove_directory(entry: Entry) -> None:
    """Remove a directory of ours with its files; `OSError` if it has others."""
    path = Path(entry.path)
    identity = entry.identity if entry.identity == file_identity(path) else None
    foreign = own_directory.remove(path, identity, entry.own_files)
    if foreign:
        raise OSError(f"it contains files that iosonde did not create and did not remove: {_listed(foreign)}")


def remove_file(entry: Entry) -> None:
    """Unlink a regular file in its open directory."""
    path = Path(entry.path)
    with own_directory.opened(path.parent, follow=True) as directory:
        found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no longer a file")
        os.unlink(path.name, dir_fd=directory)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _clean(entry: Entry, *, kept: list[Path], forget: Sequence[Path]) -> Cleaned:
    path, failed = Path(entry.path), False
    if entry.in_use:
        reason = f"is in use by process {entry.process}"
    elif entry.keep and not _is_below(entry, kept):
        reason = "was kept (`--kept PATH` removes it as well)"
    else:
        try:
            reason = _remove(entry)
        except (OSError, TargetError, ValueError) as error:
            problem = error.what if isinstance(error, TargetError) else getattr(error, "strerror", None) or error
            failed, reason = True, f"could not be removed: {problem}"
            if path in forget:
                removed(path)
                failed, reason = False, f"was forgotten and not dropped: {problem}"
    return Cleaned(path=entry.path, reason=reason, failed=failed)


def _remove(entry: Entry) -> str:
    """Undo or remove what an entry is about, and the entry -> what was done."""
    path = Path(entry.path)
    if not entry.kind.has_identity:
        undo(path)
        return "ended with the last boot" if entry.has_ended else f"the {entry.what} was removed"
    if os.path.lexists(path) and entry.is_unchanged:
        remove(path)
        return "removed"
    removed(path)
    return "is no longer what iosonde created: left alone" if os.path.lexists(path) else "is gone already"


def _is_empty(entry: Entry) -> bool:
    """Return True if an entry about temporary files, which most sessions leave without any, needs no report."""
    if entry.what != TEMPORARY_FILES or (not entry.in_use and entry.kind.remains(entry)):
        return False
    if not entry.in_use:
        removed(Path(entry.path))
    return True


def _is_below(entry: Entry, paths: list[Path]) -> bool:
    """Return True if the thing is at or below one of the paths, or is a file of the engine about a file at one."""
    companions = [path.with_name(path.name + suffix) for path in paths if path.name for suffix in COMPANIONS]
    return any(Path(entry.path).is_relative_to(path) for path in (*paths, *companions))


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
    return sorted(found, key=lambda entry: (entry.number, entry.path)), problems


def _temporary_files() -> list[Cleaned]:
    """Remove what killed writers left of entries, for which nothing was created yet, and of files in the cache."""
    cleaned: list[Cleaned] = []
    entries = _files(lambda name: name.startswith(TEMPORARY))
    # A process that still runs may be writing this moment.
    left = [file for file in entries if not Path("/proc", file.name.rpartition("-")[2]).exists()]
    for file in (*abandoned(), *left):
        with suppress(OSError):
            if file.lstat().st_uid == os.geteuid():
                file.unlink()
                cleaned.append(Cleaned(path=str(file), reason="removed"))
    return cleaned


def _files(is_wanted: Any) -> list[Path]:
    with (
        os_errors(f"cannot read the journal `{_directory()}`", hint="make that directory readable"),
        suppress(FileNotFoundError),
    ):
        return sorted(Path(each.path) for each in os.scandir(_directory()) if is_wanted(each.name))
    return []


def _identified(entry: Entry) -> Entry:
    """The entry with the identity of what is at its path, if that is a file or directory."""
    path = Path(entry.path)
    own_directory.keep_number(path)
    return replace(entry, identity=file_identity(path), marks={**entry.marks, "": own_directory.mark_of(path)})


def _directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return expanded(state) / "iosonde" / "created"


def _entry_file(path: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(path).encode(errors='surrogateescape')).hexdigest()[:24]}.json"


def _write(entry: Entry) -> None:
    file = _entry_file(Path(entry.path))
    temporary = file.with_name(f"{TEMPORARY}{file.name}-{os.getpid()}")
    with os_errors(
        f"cannot record in `{file.parent}` that `{entry.path}` will be created",
        hint="iosonde creates nothing that it could not remove after a crash; make that directory writable, or "
        "name another with the environment variable `XDG_STATE_HOME`",
    ):
        own_directory.create_parents(file.parent)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
            handle.write(json.dumps(asdict(entry), indent=1))
            handle.flush()
            os.fsync(handle.fileno())
        temporary.rename(file)
        with own_directory.opened(file.parent, follow=True) as directory:
            os.fsync(directory)
