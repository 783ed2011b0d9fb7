"""Runs the study `failover` on NFS inside User Mode Linux: `failover_guest.py REPEATS`.

It runs on a server in a namespace, and on an export of iosonde's own. Before it, two hosts measure that server together, each
with a mount of its own. A session on the own export is killed at the end. `left.json` has what each of them leaves.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import network_guest
from guest_sessions import During, study

from iosonde.execution.run_loop import Observer
from iosonde.execution.session import HostOptions, execute
from iosonde.features.many_hosts import merge
from iosonde.features.network_storage.setups import nfs
from iosonde.planning import expand, load
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer.block_nodes import read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal

PLACE = Path("/srv/own")
OUTAGE = {"rate": "40", "span": "4MiB", "duration": "14s", "outage_after": "1s", "outage_length": "3s"}
TOGETHER = {
    **{"file_system": "nfs", "span": "1MiB", "block_size": "16KiB", "rate": "50", "arrival": "constant"},
    **{"ramp": "0s", "duration": "3s", "interval": "500ms"},
}
SERVE = """
set -e
mount -t tmpfs own /var/lib/nfs
mkdir -p /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcld
touch /var/lib/nfs/rmtab /var/lib/nfs/etab
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs
nfsdcld
rpc.mountd 2>/dev/null
rpc.nfsd --no-nfs-version 3 --grace-time 10 4
"""
"""A server of the machine's own network, with a table of exports of its own."""


def main(repeats: int) -> None:
    """Cut the route to a server, restart a server, and kill a session."""
    network_guest.serve()
    on_two_hosts()
    found = {"hosts": left()}
    fail_over(f"nfs:{network_guest.SERVER}:/", "link", repeats, **OUTAGE, outage="link")
    found["link"] = left()
    subprocess.run(["sh", "-c", SERVE], check=True, stdin=subprocess.DEVNULL)
    subprocess.run(["modprobe", "loop"], check=True)
    PLACE.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "own", PLACE], check=True)
    strangers: dict[str, Any] = {}
    during = During(lambda: strangers.update(tried_by_strangers()))
    fail_over(str(PLACE), "own", repeats, during, **OUTAGE, outage="server")
    found["strangers"] = strangers
    found["own"] = left()
    kill_session()
    found["killed"] = left()
    found["cleaned"] = [each.reason for each in cleanup()]
    found["after"] = left()
    Path("left.json").write_text(json.dumps(found))


def on_two_hosts() -> None:
    """Measure over one and over two connections: the kernel has one set of them for both hosts, which are one machine."""
    merge.SKEW_FAILURE = math.inf  # One CPU starts one engine after the other.
    target = open_target(f"nfs:{network_guest.SERVER}:/")
    execute(
        expand(study(TOGETHER, {"nfs_connections": [1, 2]}), target), Path("hosts"), hosts=HostOptions(hosts="local:2")
    )


def fail_over(target: str, name: str, repeats: int, observer: Observer | None = None, **settings: str) -> None:
    plan = expand(load("failover"), open_target(target), profile="quick", repeats=repeats, settings=settings)
    execute(plan, Path(name), observer=observer)


def tried_by_strangers() -> dict[str, Any]:
    """Status of a request from a port of any user and from a port of root, and modes of the directories of a mount."""
    [exported] = [Path(line.split()[0]) for line in read(nfs.EXPORTS).splitlines()]
    return {
        "any user": status_of_request(0),
        "root": status_of_request(1000),
        "modes": [oct(stat.S_IMODE(each.stat().st_mode)) for each in (exported.parent, exported)],
    }


def status_of_request(port: int) -> int:
    """Status of PUTROOTFH and ACCESS, sent as root to this machine's NFS server from a port (RFC 5531, RFC 7530)."""
    call, sys_credentials, no_verifier = (1, 0, 2, 100003, 4, 1), (1, 20, 0, 0, 0, 0, 0), (0, 0)
    compound = (0, 0, 2, 24, 3, 0x3F)
    words = (*call, *sys_credentials, *no_verifier, *compound)
    with socket.create_connection((nfs.ADDRESS, 2049), source_address=(nfs.ADDRESS, port), timeout=60) as connection:
        connection.sendall(struct.pack(f">{1 + len(words)}I", 1 << 31 | 4 * len(words), *words))
        *header, status = struct.unpack(">8I", connection.recv(32, socket.MSG_WAITALL))
    assert header[1:4] == [1, 1, 0] and header[-1] == 0, header
    return int(status)


def kill_session() -> None:
    """Kill a session when its mount has been made and its server is stopped."""
    process = os.fork()
    if not process:
        fail_over(str(PLACE), "killed", 1, **{**OUTAGE, "duration": "60s", "outage_length": "50s"}, outage="server")
        os._exit(0)
    while read(Path("/proc/fs/nfsd/threads")) != "0":
        if os.waitpid(process, os.WNOHANG)[0]:
            return
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def left() -> dict[str, Any]:
    """Leftovers of setups."""
    routes = network_guest.run("ip", "route").splitlines()
    return {
        "mounted": [each.point for each in mounts() if "iosonde-" in each.point],
        "exports": [line for line in read(Path("/var/lib/nfs/etab")).splitlines() if "iosonde-" in line],
        "routes": [line for line in routes if "blackhole" in line],
        "journal": [entry.what for entry in journal.entries()],
        "files": [each.name for place in (network_guest.EXPORT, PLACE) for each in place.glob("iosonde-*")],
        "threads": read(Path("/proc/fs/nfsd/threads")),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]))
