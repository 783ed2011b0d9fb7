"""Measures on two hosts inside User Mode Linux: `server_host_guest.py LIBRARY OFFSET DRIFT EPOCH`.

The hosts are workers of one Dask scheduler, each in a network namespace. First one is the NFS server of the other: in
`drive` with 10 ms per I/O of its drive, in `cpu` with 1 % of the CPU for its threads and an export in memory. Then, for
`clocks`, both are clients, and a link delays messages to the host `far` by 10 to 30 ms and replies by 2 ms, and loses 2 %
of either. LIBRARY sets its clock by OFFSET ns, with a drift of DRIFT ppm since EPOCH (`shifted_clock.c`).
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import network_guest
from guest_sessions import run, study, wait_for
from network_conditions import DRIVE_MS
from network_guest import CLIENT, EXPORT, IN_SERVER, MOUNT, in_server

from iosonde.data import data_folder
from iosonde.execution.session import HostOptions, execute
from iosonde.features.many_hosts import merge
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


CLOCKS = {
    **{"span": "1MiB", "io_mode": "buffered", "read_fraction": 1.0},
    **{"ramp": "0s", "interval": "100ms", "duration": "4s"},
}
OTHER_MACHINE = 'mount --bind /run/boot_id /proc/sys/kernel/random/boot_id && exec "$0" "$@"'
WORKER = (sys.executable, "-m", "iosonde.features.many_hosts.worker")
SERVER = 'mount -t nfsd nfsd /proc/fs/nfsd && exec "$0" "$@"'
"""Each program in the server's namespace sees mounts of its own."""


def main(library: str, *clock: str) -> None:
    network_guest.prepare()
    mount_drive()
    in_server("sh", "-c", network_guest.SERVE)
    in_server("exportfs", "-o", "rw,no_root_squash,insecure,fsid=2,sync", f"{CLIENT}/24:{EXPORT}/slow")
    run("mount", "-t", "nfs4", "-o", "vers=4.2,proto=tcp,actimeo=5,nconnect=1", f"{network_guest.SERVER}:/", MOUNT)
    settings = configuration(Path("/run/certificates"))
    os.environ |= variables(settings) | {"TMPDIR": "/run"}
    with scheduler(settings, Path("/run"), host=CLIENT) as cluster:
        address = cluster.scheduler_address
        nas = [*IN_SERVER, "sh", "-c", SERVER, *WORKER, address, "nas", "--role", "server"]
        with workers(cluster, [*WORKER, address, "client"], nas):
            for limit in ("drive", "cpu"):
                measure_server(limit, address)
        run("umount", MOUNT)
        with workers(cluster, [*WORKER, address, "near"], far_worker(address, library, clock)):
            measure_clocks(address)


@contextmanager
def workers(cluster: Any, *commands: list[str]) -> Iterator[None]:
    """Hosts, until they have left the scheduler."""
    processes = [subprocess.Popen(command) for command in commands]
    wait_for(lambda: len(cluster.scheduler_info["workers"]) == len(processes))
    yield
    for each in processes:
        each.terminate()
        each.wait()
    wait_for(lambda: not cluster.scheduler_info["workers"])


def measure_server(limit: str, address: str) -> None:
    """Run the study `network-path` with a limit."""
    threads = [each.name for each in Path("/proc").glob("[0-9]*") if network_guest.name_of(each.name) == "nfsd"]
    network_guest.limit_cpu("server", threads if limit == "cpu" else [], 0.01)
    text = (data_folder("studies") / "network-path.toml").read_text()
    for old, new in SIZES.items():
        assert old in text
        text = text.replace(old, new)
    target = open_target(str(MOUNT / "slow" if limit == "drive" else MOUNT))
    execute(expand(parse(text), target, profile="quick"), Path(limit), hosts=HostOptions(hosts=address))


def far_worker(address: str, library: str, clock: Sequence[str]) -> list[str]:
    Path("/run/boot_id").write_text(f"{uuid.uuid4()}\n")
    names = ("SHIFTED_OFFSET_NS", "SHIFTED_DRIFT_PPM", "SHIFTED_EPOCH_NS")
    shifted = [f"{name}={value}" for name, value in zip(names, clock, strict=True)]
    command = [*IN_SERVER, "sh", "-c", OTHER_MACHINE, "env", f"LD_PRELOAD={library}", *shifted]
    return [*command, *WORKER, address, "far"]


def measure_clocks(address: str) -> None:
    run("tc", "qdisc", "add", "dev", "veth0", "root", "netem", "delay", "20ms", "10ms", "loss", "2%")
    in_server("tc", "qdisc", "add", "dev", "veth1", "root", "netem", "delay", "2ms", "loss", "2%")
    merge.SKEW_FAILURE = math.inf  # One CPU: what is tested is the clocks.
    Path("/run/data").mkdir()
    plan = expand(study(CLOCKS, repeats=2), open_target("/run/data"))
    execute(plan, Path("clocks"), hosts=HostOptions(hosts=address))


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


if __name__ == "__main__":
    main(*sys.argv[1:])
