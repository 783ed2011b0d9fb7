"""Processes that cannot outlive this one, with private mounts.

The kernel kills such a process when the thread that started it ends (`PR_SET_PDEATHSIG`, prctl(2)), and with its last
process its mount namespace goes, and with that every mount made in it. So whatever way this process ends, nothing
stays: start them from a thread that lives as long as they are wanted.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from iosonde.base.tools import TOOLS, find
from iosonde.errors import LabError
from iosonde.storage.safety.journal import MOUNTS

_STILL_WANTED = '[ "$PPID" = "$0" ] || exit 1\n'
"""Between fork and prctl the owner may have died already: then the parent is another."""

DETACH_OWN_MOUNTS = f"""
while read -r _ point _; do
  case $point in {MOUNTS}/*) umount --lazy "$point" || : ;; esac
done < /proc/self/mounts
"""
"""A new mount namespace has a copy of each mount (mount_namespaces(7)). While it has one of a study's file system, the
device of that file system is in use, whatever the study itself unmounts."""


def start_bound(script: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a shell script as root in a mount namespace of its own; it ends with `exec` of the program wanted.

    The script finds its arguments in `$1` and on. Mounts that it makes are seen by itself and its children alone.
    `options` are those of `subprocess.Popen`; streams that they do not name are `/dev/null`.
    """
    command = [
        find_tool("setpriv"),
        *("--pdeathsig", "KILL"),
        find_tool("unshare"),
        *("--mount", "--propagation", "private"),
        *("/bin/sh", "-c", f"{_STILL_WANTED}{DETACH_OWN_MOUNTS}set -e\n{script}", str(os.getpid()), *arguments),
    ]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    # Ctrl-C is for the owner: it ends what it started in order.
    return subprocess.Popen(command, **{**streams, **options}, start_new_session=True)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and wait until it is gone. May be called again."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def find_tool(name: str) -> str:
    """The path of a program that the lab needs."""
    found = find(name)
    if found is None:
        packages = "` or `".join(TOOLS[name].packages)
        raise LabError(
            f"`{name}` is not installed",
            where=f"it is needed for {TOOLS[name].purpose}",
            hint=f"install the package `{packages}`; `iosonde doctor` shows what else is missing",
        )
    return found


def require_root(purpose: str) -> None:
    """Raise unless this process is root."""
    if os.geteuid() != 0:
        raise LabError(f"{purpose} needs root", hint="run it with `sudo`")
