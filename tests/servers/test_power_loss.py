"""Acknowledged commits after a power failure of a device with a volatile write cache.

The server runs on ext4 on such a device. While clients commit, the power is cut: everything that was not flushed is lost,
in the device, in the page cache and in the server. Then the device's durable part is mounted, the file system and the
server recover, and every acknowledged commit is looked up.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from namespaces import unmount_copies
from servers.conftest import restored

from iosonde.engine import protocol
from iosonde.errors import ServerError
from iosonde.lab.bound_process import end, find_tool, start_bound
from iosonde.storage.safety import journal
from iosonde.storage.targets import loop_devices
from iosonde.study.servers.server import Instance

NEEDS = ("setpriv", "engine", "root", "nbdkit", "qemu-storage-daemon", "FUSE", "loop devices", "mkfs.ext4")
pytestmark = [pytest.mark.system, pytest.mark.needs(*NEEDS)]

POSTGRESQL, MARIADB = pytest.mark.needs("postgres"), pytest.mark.needs("mariadbd")
CASES = [
    pytest.param("postgresql", {"fsync": True, "synchronous_commit": "on"}, True, marks=POSTGRESQL),
    pytest.param("postgresql", {"fsync": False, "synchronous_commit": "on"}, False, marks=POSTGRESQL),
    pytest.param("mariadb", {"innodb_flush_log_at_trx_commit": 1}, True, marks=MARIADB),
]
"""Settings, and whether all acknowledged commits survive. InnoDB with `innodb_flush_log_at_trx_commit = 2` is not among
them: it flushes the device whenever it extends a table, so the power may fail before any commit that is not flushed."""
NO_FLUSHES = "commit=3600"
"""ext4 would flush the device with its journal every five seconds, and with it whatever was acknowledged before."""
COMMITS = 200
ENTRY_BYTES = 16
"""Of the log of acknowledged commits, and of its header."""
SIZE_BYTES = 2 << 30
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
    """A block device with a volatile write cache: what is not flushed is lost with its power.

    nbdkit's cache filter keeps writes in memory until the device is flushed. qemu-storage-daemon gives the device out as a
    file (FUSE), and a loop device with direct I/O makes a block device of the file. Killing nbdkit cuts the power: the
    image then has what was flushed, and the kernel's page cache cannot be written to it any more.
    """

    def __init__(self, image: Path) -> None:
        self._socket = name = image.with_suffix(".socket")
        self._nbdkit = subprocess.Popen(
            ["nbdkit", "--foreground", "--exit-with-parent", "--unix", name, "--filter=cache", "file", image,
             "cache=writeback"],
            env={**os.environ, "TMPDIR": str(image.parent)},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while not name.exists():
            assert self._nbdkit.poll() is None and time.monotonic() < deadline, "nbdkit did not start"
            time.sleep(0.01)
        self._daemon = start_bound(
            SCRIPT, find_tool("qemu-storage-daemon"), str(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert self._daemon.stdout is not None
        ready, _, _ = select.select([self._daemon.stdout], [], [], 60)
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


@contextmanager
def mounted(what: Path, directory: Path, *options: str) -> Iterator[None]:
    subprocess.run(["mount", *options, what, directory], check=True)
    try:
        directory.chmod(0o711)
        yield
    finally:  # The kernel closes files of the io_uring of a killed process in the background: until then it is busy.
        deadline = time.monotonic() + 300
        while (done := subprocess.run(["umount", directory], capture_output=True, text=True)).returncode:
            assert "busy" in done.stderr and time.monotonic() < deadline, done.stderr
            time.sleep(0.1)
        unmount_copies(directory, deadline)


def workload(instance: Instance, **changes: Any) -> dict[str, Any]:
    socket = str(instance.server.socket_path(instance.place.socket))
    return {
        "kind": "commit",
        "server": {
            "kind": instance.server.name, "address": {"kind": "unix", "path": socket}, "user": instance.server.user,
            "database": "iosonde", "missing_database": "fail", "connect_timeout_ns": 60 * 10**9,
        },
        "operation": "insert",
        "payload_bytes": 100,
    } | changes  # fmt: skip


def engine(workload: dict[str, Any]) -> subprocess.Popen[str]:
    spec = {"protocol": protocol.VERSION, "run_id": "power", "seed": 1, "workload": workload}
    process = subprocess.Popen([real_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write(json.dumps(spec))
    process.stdin.close()
    return process


def last_event(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout
    events = [json.loads(line) for line in process.stdout]
    process.wait()
    found: dict[str, Any] = events[-1]
    return found


def commit_until_power_fails(instance: Instance, device: VolatileDevice, log: Path) -> int:
    """Returns how many commits were acknowledged.

    The file system is synchronised after the first ones: until then MariaDB's new table may have no name in its directory.
    """
    measurement = {
        "clients": 4, "arrival": {"kind": "closed"}, "ramp_ns": 0, "duration_ns": 600 * 10**9, "interval_ns": 10**8,
        "acknowledged": {"directory": str(log)}, "server_loss": "end",
    }  # fmt: skip
    client = engine(workload(instance, measurement=measurement))
    wait_for_commits(1, client, log)
    directory = os.open(instance.place.data, os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(directory) == 0
    os.close(directory)
    wait_for_commits(acknowledged_in(log) + COMMITS, client, log)
    device.cut_power()
    instance.kill()
    last_event(client)  # An error of the server, or its end.
    return acknowledged_in(log)


def wait_for_commits(number: int, client: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + 300
    while acknowledged_in(log) < number:
        assert client.poll() is None and time.monotonic() < deadline, "too few commits were acknowledged"
        time.sleep(0.01)


def acknowledged_in(log: Path) -> int:
    """Commits in the clients' logs, each of which has a header."""
    return sum(max(0, each.stat().st_size // ENTRY_BYTES - 1) for each in log.glob("*.acked"))


def lost_commits(
    kind: str, settings: dict[str, Any], place: Path, templates: dict[str, Path], log: Path
) -> tuple[int, int]:
    """Lost and acknowledged commits; all are lost if the server does not recover."""
    disk, image = place / "disk", place / "image"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted(image, disk, "-o", "loop"):
        instance = restored(disk, kind, templates, settings=settings)
    device = VolatileDevice(image)
    try:
        with mounted(device.path, disk, "-o", NO_FLUSHES):
            instance.start()
            acknowledged = commit_until_power_fails(instance, device, log)
    finally:
        device.close()
    with mounted(image, disk, "-o", "loop"):
        try:
            instance.start()
            found = last_event(engine(workload(instance, verify_acknowledged=str(log))))
            lost = found["oltp"]["durability"]["lost"] if found["event"] == "result" else acknowledged
        except ServerError:
            lost = acknowledged
        instance.remove()
    journal.removed(instance.directories.own)  # It ends with the image.
    disk.rmdir()
    image.unlink()
    return lost, acknowledged


@pytest.mark.parametrize(("kind", "settings", "are_durable"), CASES)
def test_commits_survive_a_power_failure_if_they_are_synchronous(
    kind: str, settings: dict[str, Any], are_durable: bool, place: Path, templates: dict[str, Path], tmp_path: Path
) -> None:
    lost, acknowledged = lost_commits(kind, settings, place, templates, tmp_path)
    assert acknowledged >= COMMITS
    assert lost == 0 if are_durable else 0 < lost <= acknowledged
