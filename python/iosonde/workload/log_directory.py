"""The directory on a second device that takes the write-ahead log of a store or a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iosonde.errors import TargetError

if TYPE_CHECKING:
    from iosonde.storage import Target


def open_directory(name: str, *, parameter: str = "log_target") -> Target:
    """The target on a second device that a parameter names, which must be a directory."""
    from iosonde.storage import open_target

    target = open_target(name)
    if target.kind != "directory":
        raise TargetError(
            f"`{name}` is not a directory",
            where=f"by the parameter `{parameter}`",
            hint="name a directory of a file system on the second device",
        )
    return target


def check_reachable(accounts: Sequence[str], target: Target, log_target: str | None = None) -> None:
    """Raise `ServerError` unless the user of a server, the first of `accounts` that exists, can reach its directories.

    They are iosonde's own on the target and, if there is one, on that of the log, and need not exist yet.
    """
    from iosonde.servers.directories import check_reachable

    own = Path(target.spec_target("per_job", 0)["directory"])
    check_reachable(own, accounts)
    if log_target:
        check_reachable(Path(open_directory(log_target).name, own.name), accounts)
