"""Directories of a server in the target's own directory, and the template of its database in one of them.

Directories are created with the journal, and removed with their contents.

<target>/iosonde-XXXXXXXX/
  postgresql-<hash>/data          data directory of the run, which belongs to the server's user
  postgresql-<hash>/socket        Unix socket, if that path is short enough
  template-<hash>/data            the loaded database, stopped; a cache has none
<log target>/iosonde-XXXXXXXX/
  postgresql-<hash>-log/wal       write-ahead log

Only `data`, `socket` and `wal` belong to the server's user. The directories above them belong to the user of iosonde,
who also writes configuration and messages there: the server can replace none of these names by links.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import subprocess
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosonde.base import directory_tree
from iosonde.errors import ServerError
from iosonde.storage.block_layer.block_nodes import closing
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.setups import file_systems
from iosonde.study.servers.programs import Account, account_for, bound, check_traversable

SOCKET_BYTES = 107
"""Longest path of a Unix socket (unix(7)), without its final null byte."""

LONGEST_NAME = len("/.s.PGSQL.5432.lock")


@dataclass(frozen=True, kw_only=True)
class Directories:
    """Paths of one server of a study; nothing exists until `create`."""

    own: Path
    """The target's own directory, `iosonde-XXXXXXXX`."""
    name: str
    """`postgresql-1a2b3c4d`."""
    template_name: str = ""
    """Empty for a server that starts empty."""
    log_own: Path | None = None
    """The own directory on the target of the log."""

    @property
    def run(self) -> Path:
        return self.own / self.name

    @property
    def template(self) -> Path:
        return self.own / self.template_name

    @property
    def log(self) -> Path | None:
        return self.log_own / f"{self.name}-log" if self.log_own else None

    @property
    def socket(self) -> Path:
        """Directory of the socket: in the run's directory, or in `/tmp` if that path is too long."""
        inside = self.run / "socket"
        if len(os.fsencode(inside)) + LONGEST_NAME <= SOCKET_BYTES:
            return inside
        return Path("/tmp", self.own.name, f"socket-{self.own.name[-8:]}")

    def create(self, account: Account) -> None:
        """Create those that are missing; `ServerError` if the server's user cannot reach them."""
        for own, name in self._all():
            # Let the server's user pass through iosonde's own directories above a file system that iosonde mounted.
            if own.is_relative_to(MOUNTS) and not account.is_ours:
                for each in (directory for directory in own.parents if directory.is_relative_to(MOUNTS)):
                    each.chmod(each.stat().st_mode & 0o777 | 0o011)
            check_traversable(own, account)
            create_directory(own, name, account)

    def empty(self) -> None:
        """Remove the contents of the run's directories, which are created again for the next run."""
        for each in filter(None, (self.run, self.log, self.socket)):
            with suppress(FileNotFoundError):
                directory_tree.empty(each)

    def remove_socket(self) -> None:
        """Remove the directory in `/tmp`, if there is one; the others go with the target's own directory."""
        outside = self.socket.parent
        if outside != self.run and journal.find(outside):
            journal.remove(outside)

    def _all(self) -> list[tuple[Path, str]]:
        found = [(self.own, name) for name in (self.name, self.template_name) if name]
        if self.log_own:
            found.append((self.log_own, f"{self.name}-log"))
        if self.socket.parent != self.run:
            found.append((self.socket.parent, self.socket.name))
        return found


def check_reachable(own: Path, accounts: Sequence[str]) -> None:
    """Raise `ServerError` unless the user of a server can reach one of iosonde's own directories, which need not exist.

    Directories above a file system that iosonde mounts are its own, and let the user pass.
    """
    if not own.is_relative_to(MOUNTS):
        check_traversable(own, account_for(accounts))


def create_directory(own: Path, name: str, account: Account | None = None) -> None:
    """A directory in one of iosonde's own; others may pass through the latter, but not list it."""
    is_on_mount = own.is_relative_to(MOUNTS)
    if journal.find(own) is None and not is_on_mount:
        if os.path.lexists(own):
            raise ServerError(
                f"`{own}` already exists and was not created by iosonde",
                hint="it was not changed; remove it if it is not needed, or name another target",
            )
        journal.create_directory(own)
    path = own / name
    entry = journal.find(own)
    known = entry.own_files.get(name) if entry else None
    identity = entry.identity if entry else None
    opening = file_systems.opened_on_mount(own) if is_on_mount else own_directory.opened(own, identity)
    with opening as directory:
        if account and not account.is_ours:
            os.fchmod(directory, 0o711)
        if not os.path.lexists(path):
            journal.create_in(own, directory, name, is_database=True)
        elif entry and not own_directory.is_unchanged(directory, name, known, is_directory=True):
            raise ServerError(
                f"`{path}` is not what iosonde created there",
                hint="it was replaced, linked, or created by another program, and was not changed; start the study "
                "again",
            )
        if account and not account.is_ours:
            _let_pass(directory, name)


def _let_pass(parent: int, name: str) -> None:
    """A directory that others pass through, and only this user changes."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing(os.open(name, flags, dir_fd=parent)) as descriptor:
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, 0o711)


MANIFEST = "manifest.json"
DATA = "data"

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Template:
    """The loaded database: the data directory of the stopped server, copied before each run.

    Copies share blocks with the template where the file system can do that (reflink); otherwise bytes are copied. Every
    file has a checksum from the time of loading, and a copy is compared with it before the server starts. Then the copy
    is synced and dropped from the page cache, so that each run starts cold and no page of it is charged to iosonde.
    """

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / DATA

    @property
    def is_complete(self) -> bool:
        """True if loading ended and all checksums are known."""
        return (self.directory / MANIFEST).is_file()

    @property
    def facts(self) -> dict[str, Any]:
        """Facts recorded with it: loading time and its consistency check."""
        facts: dict[str, Any] = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))["facts"]
        return facts

    def seal(self, facts: dict[str, Any]) -> None:
        """Record the checksums of a stopped server's files; from now on the template is complete."""
        _write_back(self.directory)
        files = {name: _checksum(path) for name, path in _files(self.data)}
        written = self.directory / f".tmp-{MANIFEST}"
        written.write_text(json.dumps({"facts": facts, "files": files}, indent=1), encoding="utf-8")
        with closing(os.open(written, os.O_RDONLY)) as descriptor:
            os.fsync(descriptor)
        written.rename(self.directory / MANIFEST)

    def discard(self) -> None:
        with suppress(FileNotFoundError):
            (self.directory / MANIFEST).unlink()
        with suppress(FileNotFoundError):
            directory_tree.empty(self.data)
            self.data.rmdir()

    def restore(self, place: Path) -> dict[str, Any]:
        """Copy it to a new path, with facts for the record.

        `ServerError` (`template_damaged`) unless the copy is what was loaded.
        """
        started = time.monotonic()
        known: dict[str, list[int]] = json.loads((self.directory / MANIFEST).read_text(encoding="utf-8"))["files"]
        _copy(self.data, place)
        copied = {name: _checksum(path) for name, path in _files(place)}
        different = sorted(set(known) ^ set(copied) | {name for name in known if known[name] != copied.get(name)})
        if different:
            raise ServerError(
                f"the template of the database is damaged: `{different[0]}` is not what was loaded",
                where=f"in `{self.directory}` ({len(different)} of {len(known)} files differ)",
                hint="it was changed by another program, or the device corrupted it; the next run loads the database "
                "again",
                code="template_damaged",
            )
        _write_back(place)
        for _, path in _files(place):
            _forget(path)
        return {
            "seconds": round(time.monotonic() - started, 3),
            "bytes": sum(size for size, _ in copied.values()),
            "files": len(copied),
        }


def move(source: Path, target: Path, account: Account) -> None:
    """Move a file or directory of a data directory to another target, which does not exist.

    To another file system it is copied by the server's own user: the data directory belongs to that user, and links in
    it could lead root elsewhere.
    """
    is_directory = stat.S_ISDIR(source.lstat().st_mode)
    if is_directory:
        target.mkdir(mode=0o700)
        account.own(target)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target, account)
        if is_directory:
            directory_tree.empty(source)
            source.rmdir()
        else:
            source.unlink()
    _write_back(target.parent)


def _copy(source: Path, target: Path, account: Account | None = None) -> None:
    """With owners, times and holes, sharing blocks where possible; by the user of `account`, by default this one."""
    done = subprocess.run(
        [*bound(account), "cp", "--archive", "--reflink=auto", "--sparse=auto",
         "--no-target-directory", str(source), str(target)],
        stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
        raise ServerError(
            f"cannot copy the template of the database: {message}",
            where=f"from `{source}` to `{target}`",
            hint="name a target with more room, or use fewer records or warehouses",
            code="no_space" if "No space" in message else "server",
        )


def _files(directory: Path) -> Iterator[tuple[str, Path]]:
    for parent, _, names in os.walk(directory):
        for name in sorted(names):
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield str(path.relative_to(directory)), path


def _checksum(path: Path) -> list[int]:
    """Size and CRC-32."""
    value, size = 0, 0
    with open(path, "rb", buffering=0, opener=_opened) as file:
        while chunk := file.read(_CHUNK_BYTES):
            value, size = zlib.crc32(chunk, value), size + len(chunk)
    return [size, value]


def _opened(path: str, flags: int) -> int:
    """A file of a server's user, who may have replaced it by a link or a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write_back(directory: Path) -> None:
    """Write back the file system that holds a directory (syncfs(2)): one call for thousands of small files.

    `ServerError` where it fails: files that never reach the device are served from the page cache.
    """
    with closing(os.open(directory, os.O_RDONLY)) as descriptor:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) == 0:
            return
        number = ctypes.get_errno()
    raise ServerError(
        f"cannot write the database back to its device: {os.strerror(number)}",
        where=f"in `{directory}`",
        hint="see the kernel log (`dmesg`) for errors of the device",
        code="no_space" if number in (errno.ENOSPC, errno.EDQUOT) else "server",
    )


def _forget(path: Path) -> None:
    """Drop a file that has been written back from the page cache."""
    with closing(_opened(str(path), os.O_RDONLY)) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
