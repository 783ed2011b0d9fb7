"""Measures storage under injected bottlenecks inside User Mode Linux: `transports_guest.py CONDITION...`.

First over NFS, in runs of a few seconds. Then LIO exports the server's drive over iSCSI; sftp-server serves an export
in memory, which sshfs mounts; and bindfs mounts a directory of this machine's own drive.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

import network_guest
from guest_sessions import is_free, run
from network_conditions import TRANSPORTS
from network_guest import EXPORT, IN_SERVER, SERVER, in_server

from iosonde.execution.session import execute
from iosonde.planning import expand, load
from iosonde.storage import open_target

DRIVE, MOUNT = EXPORT / "drive", Path("/mnt/transport")
NAME = "iqn.2026-11.lab:drive"
TARGET = f"""
set -e
mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/target
mkdir -p core/iblock_0/drive iscsi/{NAME}/tpgt_1/lun/lun_0
echo udev_path=/dev/dm-0 >core/iblock_0/drive/control
echo 1 >core/iblock_0/drive/enable
cd iscsi/{NAME}/tpgt_1
ln -s /sys/kernel/config/target/core/iblock_0/drive lun/lun_0/drive
echo 0 >attrib/authentication
echo 1 >attrib/generate_node_acls
echo 0 >attrib/demo_mode_write_protect
mkdir np/{SERVER}:3260
echo 1 >enable
"""
SFTP, SFTP_PORT = "/usr/lib/openssh/sftp-server", 2022
SERVE_SFTP = f"""
import os, socket
client, _ = socket.create_server(("{SERVER}", {SFTP_PORT})).accept()
os.dup2(client.fileno(), 0)
os.dup2(client.fileno(), 1)
os.execv("{SFTP}", ["{SFTP}"])
"""


def main(names: list[str]) -> None:
    """Bring about each condition on its transport, and measure."""
    network_guest.main([name for name in names if name not in TRANSPORTS], ramp="1s", duration="4s")
    for module in ("fuse", "iscsi_tcp", "sd_mod", "iscsi_target_mod", "target_core_iblock"):
        run("modprobe", module)
    MOUNT.mkdir()
    others = [name for name in names if name in TRANSPORTS]
    for transport, conditions in groupby(others, key=lambda name: name.split()[0]):
        mounted, served_by = MOUNTED[transport]
        with mounted():
            for name in conditions:
                measure(name, served_by)


def measure(name: str, served_by: str) -> None:
    """One run of the study `network-path`, whose file is laid out before the condition."""
    condition = TRANSPORTS[name]
    settings = dict(condition.load)
    plan = expand(load("network-path"), open_target(str(MOUNT)), profile="quick", repeats=1, settings=settings)
    with ExitStack() as stack:
        observer = network_guest.Injection([condition], stack, served_by=served_by)
        execute(plan, Path(name.replace(" ", "-")), observer=observer)


@contextmanager
def bindfs() -> Iterator[None]:
    """A directory on the drive, with direct I/O that reaches it."""
    run("bindfs", "--forward-odirect=4096", DRIVE, MOUNT)
    try:
        yield
    finally:
        run("umount", MOUNT)


@contextmanager
def sshfs() -> Iterator[None]:
    """An export of the server, over a connection without encryption."""
    with subprocess.Popen([*IN_SERVER, sys.executable, "-c", SERVE_SFTP]):
        for _ in range(100):
            done = subprocess.run(["sshfs", "-o", f"directport={SFTP_PORT}", f"{SERVER}:{EXPORT}", MOUNT], check=False)
            if not done.returncode:
                break
            time.sleep(0.1)
        try:
            yield
        finally:
            run("umount", MOUNT)


def stop_nfs() -> None:
    """Stop the server and its daemons, whose mount namespaces have copies of all mounts."""
    in_server("sh", "-c", "mount -t nfsd nfsd /proc/fs/nfsd; exportfs -ua; echo 0 >/proc/fs/nfsd/threads")
    for each in Path("/proc").glob("[0-9]*"):
        if network_guest.name_of(each.name) in ("rpc.mountd", "nfsdcld"):
            os.kill(int(each.name), signal.SIGKILL)


@contextmanager
def iscsi() -> Iterator[None]:
    """ext4 on the drive, which the server exports."""
    stop_nfs()
    run("umount", DRIVE)
    while not is_free(Path("/dev/dm-0")):
        time.sleep(0.1)
    run("nsenter", "--net=/run/netns/server", "sh", "-c", TARGET)
    run("iscsistart", "-i", "iqn.2026-11.lab:client", "-t", NAME, "-g", "1", "-a", SERVER, "-p", "3260")
    while not (drives := list(Path("/sys/class/iscsi_session").glob("session*/device/target*/*/block/sd*"))):
        time.sleep(0.1)
    drive = f"/dev/{drives[0].name}"
    run("mount", drive, MOUNT)
    try:
        yield
    finally:
        run("umount", MOUNT)


MOUNTED: Mapping[str, tuple[Callable[[], AbstractContextManager[None]], str]] = {
    "bindfs": (bindfs, "bindfs"),
    "sshfs": (sshfs, "sshfs"),
    "iscsi": (iscsi, "iscsi_trx"),
}
"""How a transport is mounted, and the processes of its server."""


if __name__ == "__main__":
    main(sys.argv[1:])
