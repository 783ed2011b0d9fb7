"""Measures NFS whose server is a host of the study, inside User Mode Linux: `server_host_guest.py drive|cpu...`.

Client and server are workers of one Dask scheduler, each in a network namespace. `drive` has 10 ms per I/O of the
server's drive, and `cpu` 1 % of the CPU for its threads, with an export in memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import network_guest
from network_conditions import DRIVE_MS
from network_guest import CLIENT, EXPORT, IN_SERVER, MOUNT, in_server, run

from iosonde.data import data_folder
from iosonde.execution import execute
from iosonde.execution.carrier import HostOptions
from iosonde.planning import expand, parse
from iosonde.storage import open_target

sys.path.insert(0, str(Path(__file__).parents[1]))
from tls_scheduler import configuration, scheduler, variables

SIZES = {
    '["4KiB", "16KiB", "128KiB"]': '["4KiB"]',
    "[1, 4, 16]": "[4]",
    "repeats = 2": "repeats = 1",
    'span = "64MiB", ramp = "500ms", duration = "2s"': 'span = "8MiB", ramp = "500ms", duration = "4s"',
    'page_cache = "keep"': 'page_cache = "keep"\nserver_page_cache = "drop"',
}


def main(limits: list[str]) -> None:
    """Run the study `network-path` with each limit."""
    network_guest.prepare()
    mount_drive()
    in_server("sh", "-c", network_guest.SERVE)
    in_server("exportfs", "-o", "rw,no_root_squash,insecure,fsid=2,sync", f"{CLIENT}/24:{EXPORT}/slow")
    run("mount", "-t", "nfs4", "-o", "vers=4.2,proto=tcp,actimeo=5,nconnect=1", f"{network_guest.SERVER}:/", MOUNT)
    text = (data_folder("studies") / "network-path.toml").read_text()
    for old, new in SIZES.items():
        assert old in text
        text = text.replace(old, new)
    settings = configuration(Path("/run/certificates"))
    os.environ |= variables(settings) | {"TMPDIR": "/run"}
    with scheduler(settings, Path("/run"), host=CLIENT) as cluster:
        workers = [start_worker(cluster.scheduler_address, *each) for each in (("client", ""), ("nas", "server"))]
        while len(cluster.scheduler_info["workers"]) < len(workers):
            time.sleep(0.1)
        for limit in limits:
            threads = [each.name for each in Path("/proc").glob("[0-9]*") if network_guest.name_of(each.name) == "nfsd"]
            network_guest.limit_cpu("server", threads if limit == "cpu" else [], 0.01)
            target = open_target(str(MOUNT / "slow" if limit == "drive" else MOUNT))
            plan = expand(parse(text), target, profile="quick")
            execute(plan, Path(limit), hosts=HostOptions(hosts=cluster.scheduler_address))
        for each in workers:
            each.terminate()
            each.wait()


def mount_drive() -> None:
    """Mount a drive of the server with a constant latency, which its own counters show."""
    run("modprobe", "sd_mod")
    run("modprobe", "scsi_debug", "dev_size_mb=96", "delay=0", "lbpu=0")
    while not (drives := list(Path("/sys/bus/pseudo/drivers/scsi_debug").glob("adapter0/host*/target*/*/block/sd*"))):
        time.sleep(0.1)
    drive = f"/dev/{drives[0].name}"
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", drive)
    (EXPORT / "slow").mkdir()
    run("mount", drive, EXPORT / "slow")
    Path("/sys/bus/pseudo/drivers/scsi_debug/ndelay").write_text(str(DRIVE_MS * 1_000_000))


def start_worker(address: str, name: str, role: str) -> subprocess.Popen[bytes]:
    """A host; each program in the server's namespace sees mounts of its own."""
    worker = [sys.executable, "-m", "iosonde.features.many_hosts.worker", address, name]
    if not role:
        return subprocess.Popen(worker)
    command = 'mount -t nfsd nfsd /proc/fs/nfsd && exec "$0" "$@"'
    return subprocess.Popen([*IN_SERVER, "sh", "-c", command, *worker, "--role", role])


if __name__ == "__main__":
    main(sys.argv[1:])
