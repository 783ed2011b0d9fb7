"""Every process that a command started, and their end.

The supervisor is the reaper of its descendants (`PR_SET_CHILD_SUBREAPER`, prctl(2)): a process whose parent has ended,
such as a daemon, becomes its child. So nothing that a command starts can leave the tree, whatever sessions and groups
it creates. The first process of a command is killed by the kernel when the supervisor dies (`PR_SET_PDEATHSIG`).

With a network of its own a run has ports that no process outside can reach.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from iosonde.supervisor.failure import FailedError

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
