"""Commands in a mount namespace of their own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosonde.lab.bound_process import DETACH_OWN_MOUNTS
from iosonde.storage.block_layer.mounts import namespaces, unmount_copy


def private_mounts(script: str, *arguments: str | Path) -> list[str]:
    """The command that runs a shell script in a new mount namespace; its arguments are `$1` and on.

    File systems that studies of other tests have mounted are detached first: its copies would keep their devices in use.
    """
    return ["unshare", "--mount", "sh", "-c", f"{DETACH_OWN_MOUNTS}\n{script}", "sh", *map(str, arguments)]


@contextmanager
def mounted_apart(device: Path, point: Path, *options: str) -> Iterator[None]:
    """Mount a file system in a mount namespace of its own, and unmount it at the end.

    Namespaces that other tests create meanwhile would have a copy of a mount in this one, and keep the device in use.
    """
    script = 'device=$1 point=$2; shift 2; mount "$@" "$device" "$point" && echo && read -r line; umount "$point"'
    command = private_mounts(script, device, point, *options)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"\n"
            yield
        finally:
            process.communicate()
    assert process.returncode == 0


def unmount_copies(point: Path, deadline: float) -> None:
    """Unmount what namespaces of other tests have copied from a file system that was mounted there."""
    while copies := [each for each, table in namespaces() if any(mount.point == str(point) for mount in table)]:
        assert time.monotonic() < deadline, f"still mounted in {copies}"
        for process in copies:
            unmount_copy(int(process.name), str(point))
