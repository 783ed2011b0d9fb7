"""Programs that are started as they were checked, every process that a command started, and their end.

The supervisor is the reaper of its descendants (`PR_SET_CHILD_SUBREAPER`, prctl(2)): a process whose parent has ended,
such as a daemon, becomes its child. So nothing that a command starts can leave the tree, whatever sessions and groups
it creates. The first process of a command is killed by the kernel when the supervisor dies (`PR_SET_PDEATHSIG`).

With a network of its own a run has ports that no process outside can reach.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iosonde.base.tools import Process
from iosonde.engine.supervisor.watch import FailedError

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWUSER, _CLONE_NEWNET = 0x1000_0000, 0x4000_0000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
KILL_S = 10.0
_POLL_S = 0.005

_prctl = ctypes.CDLL(None, use_errno=True).prctl


def adopt_descendants() -> None:
    """Become the parent of every descendant whose own parent ends."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def bind_to(parent: int) -> None:
    """In a new child, before its program starts: die with the parent, and write no core dump."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It died between fork and prctl.
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def descendants(of: int) -> list[int]:
    """Process numbers of all descendants, without those that have ended."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError):
                # Fields 3 and 4, counted after the name in parentheses, which may contain anything.
                state, parent = (each / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(each.name))
    found, ahead = [], [of]
    while ahead:
        ahead = [child for parent in ahead for child in children.get(parent, ())]
        found += ahead
    return found


def kill_descendants(keep: Collection[int] = ()) -> tuple[int, int]:
    """Kill all descendants but those in `keep` and theirs; returns how many there were, and how many remain.

    They are stopped before they are killed, so that one which keeps forking cannot outrun the list.
    """
    own = os.getpid()
    seen: set[int] = set()
    deadline = time.monotonic() + KILL_S
    while True:
        kept = {*keep, *(each for root in keep for each in descendants(root))}
        alive = [each for each in descendants(own) if each not in kept]
        seen |= set(alive)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in alive:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, number)
        reap(keep)
        if not alive or time.monotonic() > deadline:
            return len(seen), len(alive)
        time.sleep(_POLL_S)


def reap(keep: Collection[int] = ()) -> None:
    """Collect children that have ended, so that the kernel adds up what they used."""
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid in keep:
                return
            os.waitpid(found.si_pid, 0)


def enter_private_network() -> None:
    """Move this process, which must have one thread, into a new network; `FailedError` if the system refuses.

    It is a loopback interface in a network namespace (network_namespaces(7)). Many servers have no access control, and
    every user of a machine can connect to its own loopback interface.
    """
    try:
        _unshare()
        _start_loopback()
    except OSError as error:
        raise FailedError(
            "no_private_network",
            f"cannot create a network namespace for commands with `{{port}}`: {error.strerror}",
            context="nothing was started; the seccomp profile of a container, AppArmor or a limit in `/proc/sys/user` "
            "can forbid it",
            hint="let them use a Unix socket in `{directory}`, or run iosonde as root outside the container",
        ) from error


def _unshare() -> None:
    """Create the namespace, for a user without rights inside a user namespace that keeps the user's own numbers."""
    user, group = os.geteuid(), os.getegid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(_CLONE_NEWNET if user == 0 else _CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="utf-8")  # In this order: user_namespaces(7).


def _start_loopback() -> None:
    """Bring the interface up, which gives it the address 127.0.0.1 (netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))


class Programs:
    """The programs of a spec by their contents: what was checked is what is started.

    A program is opened once, compared with the checksum in the spec, and started through the open descriptor, so
    replacing the file at its path changes nothing. A script is read by its interpreter through the same descriptor.
    """

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
                preexec_fn=lambda: bind_to(parent),
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
