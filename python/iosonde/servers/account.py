"""The unprivileged user that a server runs under when iosonde is root."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iosonde.errors import ServerError

FALLBACK = "nobody"


@dataclass(frozen=True, kw_only=True)
class Account:
    """A system user."""

    name: str
    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        """True if it is the user of this process, so that no privileges are dropped."""
        return self.uid == os.geteuid()

    def dropping(self) -> list[str]:
        """Options of setpriv(1) that start a program under this user without further groups or privileges."""
        if self.is_ours:
            return []
        return [f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--inh-caps=-all", "--no-new-privs"]

    def own(self, path: Path) -> None:
        """Give a directory of iosonde's own to the user."""
        if not self.is_ours:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def account_for(names: Sequence[str]) -> Account:
    """The first of these system users that exists, else `nobody`; without root, the current user."""
    if os.geteuid() != 0:
        return _account(pwd.getpwuid(os.geteuid()))
    for name in (*names, FALLBACK):
        try:
            return _account(pwd.getpwnam(name))
        except KeyError:
            continue
    raise ServerError(
        "no unprivileged user exists that the server could run under",
        where=f"looked for {', '.join(f'`{name}`' for name in (*names, FALLBACK))}",
        hint="install the server's package, which creates its user, or run iosonde as an ordinary user",
    )


def check_traversable(path: Path, account: Account) -> None:
    """Raise `ServerError` unless the user can enter every directory above `path`."""
    if account.uid == 0 or account.is_ours:
        return
    for directory in _above(path):
        if not _may_enter(directory, account):
            raise ServerError(
                f"the server's user `{account.name}` cannot enter `{directory}`",
                where=f"on the way to `{path}`",
                hint=f"name a target that all users can reach, allow it with `chmod o+x {directory}`, or run iosonde "
                "as the owner of that directory",
            )


def _above(path: Path) -> Iterator[Path]:
    yield from (each for each in reversed(path.parents) if each.is_dir())


def _may_enter(directory: Path, account: Account) -> bool:
    found = directory.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)
