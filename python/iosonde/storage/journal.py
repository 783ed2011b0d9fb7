"""The journal of what iosonde made: written before a thing is made, forgotten after it is gone.

One JSON file for each thing under `$XDG_STATE_HOME/iosonde/created/`, so that after a crash, a kill or a power cut
`cleanup` finds it again and removes it, and nothing else: a thing is removed only when it is still the very one that
was made (same device and inode number), and when the process that made it no longer runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from iosonde.errors import TargetError
from iosonde.storage.loop_status import identity_of

CONTROL_GROUP = "control group"
"""What a directory of a control group hierarchy is called here: its files are the kernel's."""

DATABASE = re.compile(r"[a-z]+-[0-9a-f]{8}(-log)?")
"""Name of a directory in one of ours that holds a database (`workload/kv`), or its log."""

UNDO = {
    "array": "iosonde.storage.arrays",
    "loop device": "iosonde.storage.loop_devices",
    "mount": "iosonde.storage.file_systems",
    "stage": "iosonde.storage.building",
    "device": "iosonde.storage.device_target",
}
"""Things that are no files -> the module whose `undo(entry)` takes them apart. It raises `OSError` if it cannot."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that iosonde made, or was about to make."""

    path: str
    what: str
    """A noun: `file`, `directory`, `control group`."""
    made_at: str
    owner: str
    """The process that uses it: boot, process number and start time, which together never come again."""
    identity: str | None = None
    """Device and inode number, once it exists."""
    keep: bool = False
    """The user wants it to stay."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What undoing it needs to know, for things that are no files."""
    number: int = 0
    """What was made later has a larger one: the time in nanoseconds."""

    @property
    def in_use(self) -> bool:
        """Whether the process that made it still runs."""
        return self.owner != "" and self.owner == _owner(_pid_of(self.owner))

    @property
    def is_mine(self) -> bool:
        """Whether this very process made it or took it over."""
        return self.owner == _owner(os.getpid())


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What `cleanup` did about one entry."""

    path: str
    reason: str
    """A clause: `removed`, or why it was left."""
    failed: bool = False
    """Whether it should have been removed and could not be."""


def created(path: Path, what: str, *, keep: bool = False, facts: dict[str, Any] | None = None) -> None:
    """Note that `path` is about to be made. Call this before making it, and `identify` after.

    Of a kind in `UNDO`, which is undone and not removed, nothing has to be identified: `facts` say what it is.
    """
    entry = Entry(
        path=str(path),
        what=what,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        owner=_owner(os.getpid()),
        keep=keep,
        facts=facts or {},
        number=time.time_ns(),
    )
    _write(entry)


def identify(path: Path) -> None:
    """Note which very thing now lies at `path`, so that only that is ever removed."""
    entry = find(path)
    assert entry is not None, f"{path} was not announced"
    _write(replace(entry, identity=next(iter(_identities(path)), None)))


def is_ours(path: Path) -> bool:
    """Whether what lies at `path` is the very thing that iosonde made there."""
    entry = find(path)
    return entry is not None and _is_what_was_made(entry)


def take_over(path: Path, *, keep: bool) -> bool:
    """Whether what lies at `path` is ours to use; if so this process owns it from now on.

    Another iosonde that still uses it is an error.
    """
    entry = find(path)
    if entry is None or not _is_what_was_made(entry):
        return False
    if entry.in_use and not entry.is_mine:
        raise TargetError(
            f"`{path}` is in use by another iosonde (process {_pid_of(entry.owner)})",
            hint="wait until it has ended, or name another target",
        )
    _write(replace(entry, owner=_owner(os.getpid()), keep=keep, identity=next(iter(_identities(path)), None)))
    return True


def removed(path: Path) -> None:
    """Forget `path`: it is gone, or no longer ours."""
    _entry_file(path).unlink(missing_ok=True)


def find(path: Path) -> Entry | None:
    """The entry about `path`, if there is one."""
    return _read(_entry_file(path))


def entries() -> list[Entry]:
    """Everything in the journal, oldest first."""
    read = [_read(file) for file in _directory().glob("*.json")]
    return sorted((entry for entry in read if entry), key=lambda entry: (entry.number, entry.made_at, entry.path))


def cleanup(*, kept: bool = False) -> list[Cleaned]:
    """Remove what earlier runs left behind, the last first; with `kept` also what the user asked to keep."""
    return [_clean(entry, kept=kept) for entry in reversed(entries())]


def clear(own: str) -> None:
    """Undo what is left of what was made under that name, the last first; `OSError` for the first that failed.

    For the session that goes on where another was killed. Directories of files for a workload stay.
    """
    failed: OSError | None = None
    for entry in reversed(entries()):
        path = Path(entry.path)
        if own not in entry.path and entry.facts.get("own") != own:
            continue
        try:
            if entry.what in UNDO:
                undo(path)
            elif path.name == f"{own}-setup":
                if path.is_dir():
                    remove(path)
                removed(path)
        except OSError as error:
            failed = failed or error
    if failed:
        raise failed


def undo(path: Path) -> None:
    """Undo what an entry of a kind in `UNDO` is about, and forget it; `OSError` if that fails."""
    entry = find(path)
    if entry is not None:
        import_module(UNDO[entry.what]).undo(entry)
        removed(path)


@contextmanager
def undoing(what: str) -> Iterator[None]:
    """Whatever keeps what was made from being removed is a `TargetError`; `what` is a clause as `remove PATH`."""
    try:
        yield
    except OSError as error:
        raise TargetError(
            f"cannot {what}: {error.strerror or error}",
            hint="`iosonde cleanup` tries again, once that is solved",
        ) from error


def remove(path: Path) -> None:
    """Remove a file, a control group, or a directory with what is in it, and forget it."""
    from iosonde.storage.loop_devices import attached_to

    devices = attached_to(path)
    if devices:
        raise OSError(f"`{devices[0]}` stands on it")
    entry = find(path)
    if entry is not None and entry.what == CONTROL_GROUP:
        path.rmdir()
    elif path.is_dir() and not path.is_symlink():
        _check_plain(path)
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    removed(path)


def _check_plain(directory: Path) -> None:
    """What lies there are files, and databases of the engine on the same file system; anything else is not ours."""
    device = directory.lstat().st_dev
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = Path(parent, name)
            found = path.lstat()
            in_database = DATABASE.fullmatch(path.relative_to(directory).parts[0]) is not None
            is_ours = stat.S_ISREG(found.st_mode) or (stat.S_ISDIR(found.st_mode) and in_database)
            if not is_ours or found.st_dev != device:
                raise OSError(f"`{path}` is not a file of iosonde")


def _clean(entry: Entry, *, kept: bool) -> Cleaned:
    path = Path(entry.path)
    reason = _why_not(entry, kept=kept)
    if reason:
        return Cleaned(path=entry.path, reason=reason)
    if entry.what in UNDO:
        return _undone(path, entry.what)
    if not os.path.lexists(path) or not _is_what_was_made(entry):
        reason = "is no longer what iosonde made: left alone" if os.path.lexists(path) else "is gone already"
        removed(path)
        return Cleaned(path=entry.path, reason=reason)
    try:
        remove(path)
    except OSError as error:
        return Cleaned(path=entry.path, reason=f"could not be removed: {error.strerror or error}", failed=True)
    return Cleaned(path=entry.path, reason="removed")


def _undone(path: Path, what: str) -> Cleaned:
    try:
        undo(path)
    except OSError as error:
        return Cleaned(path=str(path), reason=f"the {what} could not be undone: {error.strerror or error}", failed=True)
    return Cleaned(path=str(path), reason=f"the {what} is undone")


def _why_not(entry: Entry, *, kept: bool) -> str:
    if entry.in_use:
        return f"is in use by process {_pid_of(entry.owner)}"
    if entry.keep and not kept:
        return "was to be kept (`--kept` removes it as well)"
    return ""


def _is_what_was_made(entry: Entry) -> bool:
    """A thing whose identity was never noted is ours only if it holds nothing: we died between the two steps."""
    path = Path(entry.path)
    if entry.identity is not None:
        return entry.identity in _identities(path)
    if path.is_symlink():
        return False
    return path.stat().st_size == 0 if path.is_file() else path.is_dir() and not any(path.iterdir())


def _identities(path: Path) -> list[str]:
    """Identity of a file or directory, and as earlier versions wrote it."""
    try:
        found = path.lstat()
    except OSError:
        return []
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return []
    return [identity_of(found), f"{found.st_dev}:{found.st_ino}"]


def _owner(pid: int) -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Field 22 of /proc/PID/stat, counted after the name in parentheses, which may hold anything.
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot} {pid} {started}"


def _pid_of(owner: str) -> int:
    parts = owner.split()
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _directory() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "iosonde" / "created"


def _entry_file(path: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(path).encode()).hexdigest()[:24]}.json"


def _read(file: Path) -> Entry | None:
    try:
        return Entry(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return None  # Not written by us: nothing we could act on.


def _write(entry: Entry) -> None:
    file = _entry_file(Path(entry.path))
    temporary = file.with_name(f".tmp-{file.name}-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w") as handle:
            json.dump(asdict(entry), handle, indent=1)
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
            f"cannot note in `{file.parent}` that `{entry.path}` will be made: {error.strerror}",
            hint="iosonde makes nothing that it could not remove after a crash; make that directory writable, or name "
            "another with the environment variable `XDG_STATE_HOME`",
        ) from error
