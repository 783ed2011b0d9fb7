"""Directories of a server in the target's own directory: created with the journal, removed with their contents.

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

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from iosonde import directory_tree
from iosonde.errors import ServerError
from iosonde.servers.account import Account, account_for, check_traversable
from iosonde.storage.safety import journal, own_directory
from iosonde.storage.safety.journal_entry import MOUNTS
from iosonde.storage.setups import file_systems

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
            _let_through(own, account)
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


def _let_through(own: Path, account: Account) -> None:
    """Let a server's user pass through the directories of iosonde's own above a file system that iosonde mounted."""
    if own.is_relative_to(MOUNTS) and not account.is_ours:
        for each in (directory for directory in own.parents if directory.is_relative_to(MOUNTS)):
            each.chmod(each.stat().st_mode & 0o777 | 0o011)


def create_directory(own: Path, name: str, account: Account | None = None) -> None:
    """A directory in one of iosonde's own; others may pass through the latter, but not list it."""
    if journal.find(own) is None and not own.is_relative_to(MOUNTS):
        if os.path.lexists(own):
            raise ServerError(
                f"`{own}` already exists and was not created by iosonde",
                hint="it was not changed; remove it if it is not needed, or name another target",
            )
        journal.created(own, "directory")
        own_directory.create(own)
        journal.identify(own)
    elif own.is_relative_to(MOUNTS):
        file_systems.provide_directory(own)
    path = own / name
    entry = journal.find(own)
    known = journal.own_files(entry).get(name) if entry else None
    with own_directory.opened(own, entry.identity if entry else None) as directory:
        if own.is_relative_to(MOUNTS):
            file_systems.check_on_mount(own, directory)
        if account and not account.is_ours:
            os.fchmod(directory, 0o711)
        if not os.path.lexists(path):
            if entry:
                journal.add_files(own, {name: own_directory.ANNOUNCED})
            inode = own_directory.create_database(directory, name)
            if entry:
                journal.add_files(own, {name: inode})
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
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.fchown(descriptor, os.geteuid(), os.getegid())
        os.fchmod(descriptor, 0o711)
    finally:
        os.close(descriptor)
