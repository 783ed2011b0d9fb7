"""One entry of the journal of what iosonde created, as it is written to a file and read back.

A journal is read by root after a crash, so its files are not trusted: an entry counts only if its file belongs to this
user, no other user could have written it, and every field has a value that iosonde writes.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from iosonde.core.features import contributed
from iosonde.core.provided import provided

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

_PATH = r"/.+"
"""Of a file or directory."""

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class JournalKind:
    """A kind of entry other than files and directories, listed in `KINDS` of an `undo.py`."""

    what: str
    """A noun, `Entry.what`."""
    path: str
    """Pattern of the paths that its entries may have."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that undoing needs, with their patterns."""
    optional: Mapping[str, str] = field(default_factory=dict)
    """Facts that only some entries have, with their patterns."""
    has_members: bool = False
    """True if the fact `members` lists block devices."""
    ends_with_boot: bool = False
    """State of the kernel: after a reboot, whatever has the name or number of an entry is not ours."""
    has_identity: bool = False
    """It has a path of its own, and is removed only if that still leads to what was created."""
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
    made_at: str
    owner: str
    """The process that uses it: boot, process number and start time, which together never come again."""
    identity: str | None = None
    """Device and inode number (`identity_of`), once it exists."""
    handle: str | None = None
    """Its handle (`file_handle.handle_of`), where the file system has handles: inode numbers are used again."""
    status: str | None = None
    """Owner and mode of a file as `uid:mode`, as its file system reported them when it existed."""
    keep: bool = False
    """The user wants it to stay."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Parameters of undoing it, for things that are not files."""
    files: dict[str, int] = field(default_factory=dict)
    """Names of the files that iosonde created in a directory, with their inode numbers."""
    handles: dict[str, str] = field(default_factory=dict)
    """Handles of these files, where there are handles."""
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
    def is_of_earlier_boot(self) -> bool:
        """Return True if the kernel was started again since it was made."""
        return self.owner != "" and self.owner.partition(" ")[0] != boot_id()

    def to_json(self) -> str:
        """As it is written to its file."""
        return json.dumps(asdict(self), indent=1)


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


def read_entry(file: Path) -> Entry:
    """The entry in a file; `EntryError` if it may not be acted on, `FileNotFoundError` if there is no such file."""
    try:
        entry = Entry(**json.loads(_read(file)))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise error if isinstance(error, EntryError) else EntryError("is damaged: it is not an entry") from error
    _check(entry)
    return entry


def _read(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise EntryError(f"cannot be read: {error.strerror}") from error
    with os.fdopen(descriptor, encoding="utf-8") as handle:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise EntryError("is not a regular file with a single hard link")
        if found.st_uid != os.geteuid():
            raise EntryError(f"belongs to user {found.st_uid}: only `iosonde cleanup` of that user acts on it")
        if found.st_mode & 0o022:
            raise EntryError("can be written by other users")
        return handle.read(_MOST_BYTES)


def _is_file_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _check(entry: Entry) -> None:
    types: dict[str, type | tuple[type, ...]] = {
        "path": str, "what": str, "made_at": str, "owner": str, "identity": (str, type(None)),
        "handle": (str, type(None)), "status": (str, type(None)), "keep": bool,
        "facts": dict, "files": dict, "handles": dict, "number": int,
    }  # fmt: skip
    for name, type_ in types.items():
        if not isinstance(getattr(entry, name), type_):
            raise EntryError(f"is damaged: `{name}` has the wrong type")
    for text in (entry.path, entry.owner, entry.identity or "", *map(str, entry.facts.values()), *entry.files):
        if not _is_file_name(text):
            raise EntryError("is damaged: it has characters that no path has")
    what, kind = entry.what, kinds().get(entry.what)
    if kind is None and what not in ("file", "directory"):
        raise EntryError(f"is damaged: there is no kind `{what}`")
    if (
        not re.fullmatch(kind.path if kind else _PATH, entry.path, re.DOTALL)
        or os.path.normpath(entry.path) != entry.path
    ):
        raise EntryError(f"names `{entry.path}`, which is not a path of a {what} of iosonde")
    for name, pattern in (kind.facts if kind else {}).items():
        value = entry.facts.get(name)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise EntryError(f"is damaged: the fact `{name}` is missing or wrong")
    for name, pattern in (kind.optional if kind else {}).items():
        value = entry.facts.get(name, "")
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise EntryError(f"is damaged: the fact `{name}` is wrong")
    members = entry.facts.get("members", None if kind and kind.has_members else [])
    if not isinstance(members, list) or not all(isinstance(each, str) and _is_file_name(each) for each in members):
        raise EntryError("is damaged: the fact `members` is wrong")
    if not all(isinstance(inode, int) and "/" not in name for name, inode in entry.files.items()):
        raise EntryError("is damaged: `files` is wrong")
    if not all(isinstance(handle, str) for handle in entry.handles.values()):
        raise EntryError("is damaged: `handles` is wrong")
