"""Programs by their contents: what was checked is what is started.

A program is opened once, compared with the checksum in the spec, and started through the open descriptor, so replacing
the file at its path changes nothing. A script is read by its interpreter through the same descriptor.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from iosonde.supervisor import processes
from iosonde.supervisor.failure import FailedError
from iosonde.tools import Process


class Programs:
    """The programs of a spec, each opened and checked."""

    def __init__(self, named: Mapping[str, Mapping[str, str]]) -> None:
        self._descriptors = {name: _opened(each["path"], each["sha256"]) for name, each in named.items()}

    def start(self, command: Sequence[str], environment: Mapping[str, str], directory: int) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own; its output goes to pipes."""
        descriptor, parent = self._descriptors[command[0]], os.getpid()
        try:
            return Process(
                [command[0].rpartition("/")[2], *command[1:]],
                executable=f"/proc/self/fd/{descriptor}",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(environment),
                cwd=f"/proc/self/fd/{directory}",
                pass_fds=(descriptor,),
                start_new_session=True,
                preexec_fn=lambda: processes.bind_to(parent),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise FailedError(
                "not_started",
                f"cannot start `{command[0]}`: {getattr(error, 'strerror', None) or error}",
                hint="start it by hand with the command that `iosonde plan` prints",
            ) from error


def identify(path: str) -> dict[str, Any]:
    """Identity of a program in a spec: its path without symbolic links, and the checksum of its contents."""
    real = os.path.realpath(path)
    descriptor = _open(real)
    try:
        return {"path": real, "sha256": _checksum(descriptor)}
    finally:
        os.close(descriptor)


def _opened(path: str, checksum: str) -> int:
    try:
        descriptor = _open(path)
    except OSError as error:
        raise FailedError(
            "program_missing",
            f"cannot open the program `{path}`: {error.strerror}",
            hint="install it again, and plan the study again if its path has changed",
        ) from error
    if _checksum(descriptor) != checksum:
        raise FailedError(
            "program_changed",
            f"the program `{path}` has changed since the study was planned",
            context="its SHA-256 checksum differs from that in the plan",
            hint="run the study again: results of two versions of a program do not belong to one result set",
        )
    return descriptor


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a regular file", path)
    return descriptor


def _checksum(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
