"""A block device with a volatile write cache, on this machine: what is not flushed is lost with its power.

nbdkit's cache filter keeps writes in memory until the device is flushed. qemu-storage-daemon gives the device out as a
file (FUSE), and a loop device with direct I/O makes a block device of the file. Killing nbdkit cuts the power: the
image then has what was flushed, and the kernel's page cache cannot be written to it any more.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path

from iosonde.lab.bound_process import end, find_tool, start_bound
from iosonde.storage.setups import loop_devices

START_S = 60
FOLDER = "/mnt"
FILE = f"{FOLDER}/device"
CONNECTIONS = "/sys/fs/fuse/connections"
# One request at a time: QEMU 7.2 corrupts data with two in flight (`iosonde/lab/device.py`).
SCRIPT = f"""
mount -t tmpfs -o mode=700 iosonde-test {FOLDER}
mount -t fusectl fusectl {CONNECTIONS}
: >{FILE}
exec "$1" --blockdev driver=nbd,server.type=unix,server.path="$2",node-name=device \\
  --export type=fuse,id=file,node-name=device,mountpoint={FILE},writable=on \\
  --chardev stdio,id=talk --monitor chardev=talk
"""


class VolatileDevice:
    """A device whose durable part is a file."""

    def __init__(self, image: Path, size_bytes: int, *, ignores_flushes: bool = False) -> None:
        """Contents are those of the image, if it exists; a device that ignores flushes loses all later writes."""
        self.image = image
        with image.open("ab") as file:
            file.truncate(size_bytes)
        self._socket = name = image.with_suffix(".socket")
        self._nbdkit = subprocess.Popen(
            ["nbdkit", "--foreground", "--exit-with-parent", "--unix", name, "--filter=cache", "file", image,
             "cache=unsafe" if ignores_flushes else "cache=writeback"],
            env={**os.environ, "TMPDIR": str(image.parent)},
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not name.exists():
            assert self._nbdkit.poll() is None and time.monotonic() < deadline, "nbdkit did not start"
            time.sleep(0.01)
        self._daemon = start_bound(
            SCRIPT, find_tool("qemu-storage-daemon"), str(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._daemon.stdout is not None
        ready, _, _ = select.select([self._daemon.stdout], [], [], START_S)
        assert ready and b"QMP" in self._daemon.stdout.readline()
        connection = os.minor(self._inside(FILE).stat().st_dev)
        self._inside(f"{CONNECTIONS}/{connection}/max_background").write_text("1")
        self._loop = loop_devices.LoopDevice(self._inside(FILE), sector_bytes=512)
        self.path = self._loop.path

    def _inside(self, path: str) -> Path:
        return Path(f"/proc/{self._daemon.pid}/root{path}")

    def cut_power(self) -> None:
        """From now on every I/O is an error, and what was not flushed is lost."""
        self._nbdkit.kill()
        self._nbdkit.wait()

    def close(self) -> None:
        """Remove the device, which nothing uses any more; the image stays."""
        self.cut_power()
        end(self._daemon)
        self._loop.close()
        self._socket.unlink(missing_ok=True)
