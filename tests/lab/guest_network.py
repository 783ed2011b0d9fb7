"""Mounts NFS of a server in a network namespace of its own, inside the lab's machine, and runs studies on it.

Each condition changes the network or the server before its runs: a delay, a rate, a throttled drive below the server.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from guest_md import LAB

from iosonde.execution import Observer, execute
from iosonde.features.network_storage import mountstats, transport
from iosonde.features.network_storage.instruments import server_counters
from iosonde.plan import Run
from iosonde.planning import expand, parse
from iosonde.results.schema import Record
from iosonde.storage import open_target

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
MOUNT, EXPORT = Path("/mnt/network"), Path("/export")
DELAYS_MS = (0, 10)
RATE = "4mbit"

STUDY = """
name = "network"
title = "Network"
question = "?"
repeats = {repeats}
shuffle = false

[measurement]
access = "random"
block_size = "4KiB"
span = "16MiB"
io_mode = "direct"
page_cache = "keep"
ramp = "300ms"
duration = "{seconds}s"
interval = "500ms"

[[parts]]
title = "Conditions"

[parts.factors]
condition = [
{conditions}
]

[profiles.standard]
"""

ON_MEMORY = {
    **{f"delay {delay}": "queue_depth = 1, read_fraction = 1.0" for delay in DELAYS_MS},
    "rate": "queue_depth = 4, read_fraction = 1.0",
    "cached": 'io_mode = "buffered", span = "64KiB", queue_depth = 1, read_fraction = 1.0',
}
ON_DRIVE = {"drive": "queue_depth = 4, read_fraction = 1.0"}

SERVE = f"""
set -e
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs
nfsdcld
exportfs -o rw,no_root_squash,insecure,fsid=0,sync {CLIENT}/24:{EXPORT}
exportfs -o rw,no_root_squash,insecure,fsid=1,sync {CLIENT}/24:{EXPORT}/drive
rpc.mountd
rpc.nfsd --no-nfs-version 3 8
"""


def try_network() -> dict[str, Any]:
    """Describe the transport of a mount, and measure it under every condition."""
    _serve((LAB / "6").resolve())
    MOUNT.mkdir()
    _run("mount", "-t", "nfs4", "-o", "vers=4.2,proto=tcp,nconnect=2,actimeo=5", f"{SERVER}:/", MOUNT)
    found = {"transport": transport.describe(MOUNT, [])}
    found["memory"] = _measured("memory", MOUNT, ON_MEMORY, seconds=2, repeats=1)
    (MOUNT / "drive").mkdir(exist_ok=True)
    found["drive"] = _measured("drive", MOUNT / "drive", ON_DRIVE, seconds=2, repeats=2)
    return found


class Conditions(Observer):
    """Brings about the condition of each run, and counts bytes before and after it at both ends of the wire."""

    def __init__(self) -> None:
        self.counts: dict[str, list[dict[str, int]]] = {}

    def run_started(self, run: Run, *_: Any) -> None:
        self.count(run)
        condition, _, delay = run.case_id.rpartition("=")[2].partition(" ")
        Path("/proc/sys/vm/drop_caches").write_text("3")
        if float(delay or 0):
            _run("tc", "qdisc", "replace", "dev", "veth0", "root", "netem", "delay", f"{delay}ms")
        if condition == "rate":
            _in_server(
                "tc", "qdisc", "add", "dev", "veth1", "root", "tbf", "rate", RATE, "burst", "4k", "latency", "1s"
            )

    def run_ended(self, run: Run, record: Record) -> None:
        subprocess.run(["tc", "qdisc", "del", "dev", "veth0", "root"], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(
            ["ip", "netns", "exec", "server", "tc", "qdisc", "del", "dev", "veth1", "root"],
            check=False,
            stderr=subprocess.DEVNULL,
        )
        self.count(run)

    def count(self, run: Run) -> None:
        """Bytes that the client has counted for the mount, and the server."""
        table = Path("/run/nfsd-statistics")
        table.write_text(_in_server("cat", "/proc/net/rpc/nfsd"))
        statistics = mountstats.read(str(MOUNT))
        drive = mountstats.read(str(MOUNT / "drive"))
        assert statistics
        counters = statistics.counters if drive is None else drive.counters
        self.counts.setdefault(run.run_id, []).append(counters | server_counters(table))


def _measured(name: str, place: Path, conditions: Mapping[str, str], *, seconds: int, repeats: int) -> dict[str, Any]:
    listed = "\n".join(f'  {{ label = "{label}", set = {{ {each} }} }},' for label, each in conditions.items())
    study = parse(STUDY.format(conditions=listed, seconds=seconds, repeats=repeats))
    observer = Conditions()
    execute(expand(study, open_target(str(place))), Path(name), observer=observer)
    return observer.counts


def _serve(drive: Path) -> None:
    """Create the namespaces, the exports and the server."""
    for module in ("nfsd", "nfsv4"):
        _run("modprobe", module)
    _run("ip", "netns", "add", "server")
    _run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", "server")
    for namespace, name, address in ((), "veth0", CLIENT), (("-n", "server"), "veth1", SERVER):
        _run("ip", *namespace, "addr", "add", f"{address}/24", "dev", name)
        _run("ip", *namespace, "link", "set", name, "up")
    for folder in ("rpc_pipefs", "v4recovery", "nfsdcld"):
        Path("/var/lib/nfs", folder).mkdir(parents=True, exist_ok=True)
    for file in ("/var/lib/nfs/rmtab", "/var/lib/nfs/etab", "/etc/exports"):
        Path(file).touch()
    EXPORT.mkdir()
    _run("mount", "-t", "tmpfs", "export", EXPORT)
    _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", drive)
    (EXPORT / "drive").mkdir()
    _run("mount", drive, EXPORT / "drive")
    _in_server("sh", "-c", SERVE)


def _in_server(*command: str) -> str:
    return _run("ip", "netns", "exec", "server", *command)


def _run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    return done.stdout.decode()
