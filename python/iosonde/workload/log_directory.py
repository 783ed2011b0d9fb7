"""The directory on a second device that takes the write-ahead log of a store or a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosonde.errors import TargetError

if TYPE_CHECKING:
    from iosonde.storage import Target


def open_log_directory(log_target: str) -> Target:
    """The target that `log_target` names, which must be a directory."""
    from iosonde.storage import open_target

    target = open_target(log_target)
    if target.kind != "directory":
        raise TargetError(
            f"the log target `{log_target}` is not a directory",
            where="by the parameter `log_target`",
            hint="name a directory of a file system on the second device",
        )
    return target
