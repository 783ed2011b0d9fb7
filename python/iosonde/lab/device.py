"""Throttled block devices on this machine, without a virtual machine: what they can do is known exactly.

qemu-storage-daemon limits the rate of an image in memory and exports it as a file (FUSE); a loop device with direct
I/O makes a block device of the file. Rates are exact to a fraction of a percent, and latency is smooth: with more I/Os
in flight than the device serves, it follows from Little's law. Below a millisecond it is not guaranteed.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from iosonde.base import memory
from iosonde.errors import LabError
from iosonde.lab.bound_process import end, find_tool, require_root, start_bound
from iosonde.lab.limits import Limits
from iosonde.storage.targets import loop_devices
from iosonde.units import format_bytes

FUSE = Path("/dev/fuse")
SECTOR_BYTES = 512

_FOLDER = "/mnt"
"""Directory of the daemon's image and file, on a file system that it alone sees."""
_FILE = f"{_FOLDER}/iosonde-lab-device"
_CONNECTIONS = "/sys/fs/fuse/connections"
_START_S = 60

_SCRIPT = f"""
mount -t tmpfs -o size="$2",mode=700 iosonde-lab {_FOLDER}
mount -t fusectl fusectl {_CONNECTIONS}
truncate -s "$2" {_FOLDER}/image
: >{_FILE}
exec "$1" --object "$3" \\
  --blockdev driver=file,filename={_FOLDER}/image,node-name=image,discard=unmap \\
  --blockdev driver=raw,file=image,node-name=device \\
  --blockdev driver=throttle,throttle-group=limits,file=device,node-name=throttled \\
  --export type=fuse,id=file,node-name=throttled,mountpoint={_FILE},writable=on \\
  --chardev stdio,id=talk --monitor chardev=talk
"""


class ThrottledDevice:
    """One block device of known rate; its data is in memory."""

    def __init__(self, limits: Limits, size_bytes: int) -> None:
        self.limits = limits
        self.size_bytes = size_bytes
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the device
        daemon = find_tool("qemu-storage-daemon")
        self._daemon = start_bound(
            _SCRIPT,
            *(daemon, str(size_bytes), limits.throttle_group("limits")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaint,
        )
        try:
            self._wait_for_greeting()
            self._command("qmp_capabilities")
            self._one_at_a_time()
            self._loop = self._attach()
        except BaseException:
            self._end_daemon()
            raise
        self.path = self._loop.path

    def change(self, limits: Limits) -> None:
        """Change the limits while the device is in use."""
        # A burst without a limit still has a length.
        unlimited = {name: int(name.endswith("length")) for name in self.limits.throttle_limits()}
        changed = {**unlimited, **limits.throttle_limits()}
        self._command("qom-set", path="/objects/limits", property="limits", value=changed)
        self.limits = limits

    def _command(self, name: str, **arguments: object) -> None:
        """Execute a command of the daemon; `LabError` if it refuses."""
        assert self._daemon.stdin is not None and self._daemon.stdout is not None
        self._daemon.stdin.write(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        self._daemon.stdin.flush()
        while answer := self._daemon.stdout.readline():
            reply = json.loads(answer)
            if "error" in reply:
                raise LabError(f"qemu-storage-daemon refused `{name}`: {reply['error']['desc']}")
            if "return" in reply:
                return
        raise LabError(f"qemu-storage-daemon exited during `{name}`")

    def fail(self) -> None:
        """From now on every I/O is an error, as if the device had been pulled out."""
        end(self._daemon)

    def close(self) -> None:
        """Remove the device; `LabError` if it is still in use, which gets I/O errors from now on."""
        is_gone = self._loop.close()
        self._end_daemon()
        if not is_gone and not self._loop.close():
            raise LabError(
                f"`{self.path}` is still in use, but its data is lost",
                hint=f"unmount or stop what is built on it; then it detaches by itself (`lsblk {self.path}`)",
            )

    def _attach(self) -> loop_devices.LoopDevice:
        loop = loop_devices.LoopDevice(self._seen_by_daemon(_FILE), sector_bytes=SECTOR_BYTES)
        if not loop.is_direct:
            loop.close()
            raise LabError(f"the kernel refuses direct I/O between `{loop.path}` and its file")
        return loop

    def __repr__(self) -> str:
        return f"ThrottledDevice({self.path}, {format_bytes(self.size_bytes)}, {self.limits})"

    def _wait_for_greeting(self) -> None:
        """The daemon greets once it has done everything that its command line requests."""
        assert self._daemon.stdout is not None
        ready, _, _ = select.select([self._daemon.stdout], [], [], _START_S)
        if ready and self._daemon.stdout.readline():
            return
        end(self._daemon)
        self._complaint.seek(0)
        message = self._complaint.read().decode(errors="replace").strip()
        raise LabError(
            f"qemu-storage-daemon did not start: {message or f'no answer for {_START_S} s'}",
            hint="install a version with FUSE exports, such as Debian's `qemu-utils` 6.0 or newer",
        )

    def _one_at_a_time(self) -> None:
        """Let the kernel hand over one I/O at a time.

        The daemon keeps every request in one buffer, and while a write waits there for its turn, the next one may come
        over it: with two in flight, data is corrupted (seen with QEMU 7.2). What waits in the kernel waits as long, so
        rate and latency stay the same.
        """
        connection = os.minor(self._seen_by_daemon(_FILE).stat().st_dev)
        self._seen_by_daemon(f"{_CONNECTIONS}/{connection}/max_background").write_text("1", encoding="utf-8")

    def _seen_by_daemon(self, path: str) -> Path:
        return Path(f"/proc/{self._daemon.pid}/root{path}")

    def _end_daemon(self) -> None:
        end(self._daemon)
        self._complaint.close()


@contextmanager
def throttled_devices(limits: Limits, *, count: int = 1, size_bytes: int = 1 << 30) -> Iterator[list[ThrottledDevice]]:
    """So many devices, each with its own limits, for the length of a `with` block. Needs root, FUSE and loop devices.

    Raises `LabError` when something is missing, and at the end if a device is still in use.
    """
    _check(count, size_bytes)
    with ExitStack() as stack:
        devices = []
        for _ in range(count):
            device = ThrottledDevice(limits, size_bytes)
            stack.callback(device.close)
            devices.append(device)
        yield devices


def _check(count: int, size_bytes: int) -> None:
    if count < 1:
        raise LabError(f"device count must be at least 1; got {count}")
    if size_bytes < 1 << 20 or size_bytes % SECTOR_BYTES:
        raise LabError(
            f"lab device size must be at least 1 MiB and a multiple of {SECTOR_BYTES} bytes; got {size_bytes} bytes",
            hint="choose another size, such as `1GiB`",
        )
    free = memory.available_bytes()
    if count * size_bytes > free:
        raise LabError(
            f"no room for {count} x {format_bytes(size_bytes)}: these devices keep their data in memory, but only "
            f"{format_bytes(free)} are free",
            hint="name a smaller size, or fewer devices",
        )
    require_root("creating a lab device")
    for path, what in ((FUSE, "FUSE"), (loop_devices.CONTROL, "loop devices")):
        if not path.exists():
            raise LabError(
                f"this kernel has no {what}: `{path}` is missing",
                hint="load the module (`modprobe fuse loop`); in a container, pass the device in",
            )
