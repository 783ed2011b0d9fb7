"""Measures storage on NFS under injected bottlenecks, inside User Mode Linux: `network_guest.py CONDITION...`.

The server has a network namespace of its own, with delays, rates and losses on the link to it, exports in memory, and one
on a drive with a known delay. Each condition is one run, in a result set of its own; `transport.json` and `counts.json`
have what both ends counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from guest_sessions import run, study
from network_conditions import BY_NAME, Condition

from iosonde.engine.protocol import Event
from iosonde.engine.supervisor.account import nfs_server_counters
from iosonde.execution import environment
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.features.network_storage import transport
from iosonde.plan import Case, Run
from iosonde.planning import expand
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.study.model import Study

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
MOUNT, EXPORT = Path("/mnt/network"), Path("/export")
DRIVE_MIB = 96
MODULES = (
    "veth",
    "sch_netem",
    "sch_tbf",
    "tcp_diag",
    f"brd rd_nr=1 rd_size={DRIVE_MIB << 10}",
    "dm-delay",
)
OF_NFS = "nfsd", "nfsv4"
FIRST_BUFFER, DEFAULT_BUFFER = 131072, 6291456
"""Receive buffer of a connection at first and at most, bytes, as kernels have them (tcp(7))."""
CPU = Path("/run/cpu")
PERIOD_US = 100_000

MEASUREMENT = {
    **{"access": "random", "block_size": "4KiB", "span": "16MiB", "queue_depth": 1, "read_fraction": 1.0},
    **{"io_mode": "direct", "page_cache": "keep", "ramp": "3s", "duration": "10s", "interval": "1s"},
}

SERVE = f"""
set -e
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipes /var/lib/nfs/rpc_pipefs
nfsdcld
exportfs -o rw,no_root_squash,insecure,fsid=0,sync {CLIENT}/24:{EXPORT}
exportfs -o rw,no_root_squash,insecure,fsid=1,sync {CLIENT}/24:{EXPORT}/drive
rpc.mountd 2>/dev/null
rpc.nfsd --no-nfs-version 3 --grace-time 10 8
"""
"""The first file is opened after the grace period, which is 90 s without this option."""


def main(names: list[str], **settings: str) -> None:
    """Bring about each condition, and measure."""
    serve()
    environment.capture(Path(os.environ["IOSONDE_ENGINE"]))  # The digest of the engine, once for all sessions.
    counts = {}
    for condition in (BY_NAME[name] for name in names):
        with mounted(condition):
            if not Path("transport.json").exists():
                Path("transport.json").write_text(json.dumps(transport.describe(MOUNT, [])))
            before = counted(condition)
            measure(condition, **settings)
            counts[condition.name] = [before, counted(condition)]
    Path("counts.json").write_text(json.dumps(counts))


def measure(condition: Condition, **settings: str) -> None:
    """One run, whose file is laid out before the condition."""
    plan = expand(study_of([condition]), open_target(str(folder(condition))), settings=settings)
    with ExitStack() as stack:
        execute(plan, Path(condition.name.replace(" ", "-")), observer=Injection([condition], stack))


def study_of(conditions: Sequence[Condition]) -> Study:
    return study(MEASUREMENT, {"condition": [{"label": each.name, "set": each.load} for each in conditions]})


class Injection(Observer):
    """Brings about the condition of a run once its file is laid out, with nothing cached by the server."""

    def __init__(self, conditions: Sequence[Condition], stack: ExitStack, served_by: str = "nfsd") -> None:
        self.conditions, self.stack, self.served_by = conditions, stack, served_by

    def run_started(self, run: Run, case: Case) -> None:
        names = [each.name for each in self.conditions]
        self.condition = self.conditions[names.index(str(case.levels.get("condition", names[0])))]

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "phase" and event["phase"] == "layout" and event["edge"] == "end":
            Path("/proc/sys/vm/drop_caches").write_text("3")
            self.stack.enter_context(injected(self.condition, self.served_by))

    def run_ended(self, run: Run, record: Record) -> None:
        self.stack.close()


def folder(condition: Condition) -> Path:
    return MOUNT / "drive" if condition.drive_ms else MOUNT


def counted(condition: Condition) -> dict[str, int]:
    """Bytes that the client has counted for the mount, and the server."""
    table = Path("/run/nfsd-statistics")
    table.write_text(in_server("cat", "/proc/net/rpc/nfsd"))
    statistics = transport.mount_statistics(str(folder(condition))) or transport.mount_statistics(str(MOUNT))
    assert statistics
    return statistics.counters | nfs_server_counters(table)


@contextmanager
def mounted(condition: Condition) -> Iterator[None]:
    """The mount, with receive buffers of the server as the condition has them."""
    limit_buffers(condition.receive_buffer or DEFAULT_BUFFER)
    run("mount", "-t", "nfs4", "-o", f"vers=4.2,proto=tcp,actimeo=5,{condition.mount}", f"{SERVER}:/", MOUNT)
    try:
        yield
    finally:
        subprocess.run(["umount", MOUNT / "drive"], check=False, stderr=subprocess.DEVNULL)
        run("umount", MOUNT)


def limit_buffers(largest: int) -> None:
    """Limit the receive buffers of connections that the server accepts from now on."""
    setting = f"net.ipv4.tcp_rmem=4096 {min(largest, FIRST_BUFFER)} {largest}"
    in_server("sysctl", "-q", "-w", setting)


@contextmanager
def injected(condition: Condition, served_by: str) -> Iterator[None]:
    """Limits of network, processes of the server, drive and client while it lasts."""
    if condition.forth:
        run("tc", "qdisc", "add", "dev", "veth0", "root", *condition.forth.split())
    if condition.back:
        in_server("tc", "qdisc", "add", "dev", "veth1", "root", *condition.back.split())
    if condition.drive_ms:
        delay_drive(condition.drive_ms)
    threads = [each.name for each in Path("/proc").glob("[0-9]*") if name_of(each.name) == served_by]
    limit_cpu("server", threads if condition.server_cpu else [], condition.server_cpu)
    client = [str(each.pid) for each in psutil.Process().children(recursive=True)]
    limit_cpu("client", client if condition.client_cpu else [], condition.client_cpu)
    try:
        yield
    finally:
        for pid in (*threads, *client):
            with suppress(ProcessLookupError):
                (CPU / "cgroup.procs").write_text(pid)
        subprocess.run(["tc", "qdisc", "del", "dev", "veth0", "root"], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(
            [*IN_SERVER, "tc", "qdisc", "del", "dev", "veth1", "root"], check=False, stderr=subprocess.DEVNULL
        )
        if condition.drive_ms:
            delay_drive(0)


def limit_cpu(name: str, processes: list[str], share: float) -> None:
    """Give processes a share of the CPU, in periods of 100 ms."""
    if not processes:
        return
    group = CPU / name
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(share * PERIOD_US)))
    for each in processes:
        (group / "cgroup.procs").write_text(each)


def name_of(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def delay_drive(milliseconds: int, *, verb: str = "reload") -> None:
    """Delay reads and writes of the server's drive."""
    delayed = f"/dev/ram0 0 {milliseconds}"
    run("dmsetup", verb, "--noudevsync", "drive", "--table", f"0 {DRIVE_MIB << 11} delay {delayed} {delayed}")
    if verb == "reload":
        run("dmsetup", "suspend", "--noudevsync", "drive")
        run("dmsetup", "resume", "--noudevsync", "drive")


def serve() -> None:
    """Create the namespaces, the exports and the server."""
    prepare()
    in_server("sh", "-c", SERVE)


def prepare() -> None:
    """Create what a server has before it starts: its network, and what it exports."""
    for module in OF_NFS:
        run("modprobe", module)
    connect()
    for name in ("rpc_pipefs", "v4recovery", "nfsdcld"):
        Path("/var/lib/nfs", name).mkdir(parents=True, exist_ok=True)
    for file in ("/var/lib/nfs/rmtab", "/var/lib/nfs/etab", "/etc/exports"):
        Path(file).touch()
    for place in (EXPORT, MOUNT):
        place.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "export", EXPORT)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "/dev/dm-0")
    (EXPORT / "drive").mkdir()
    run("mount", "/dev/dm-0", EXPORT / "drive")


def connect() -> None:
    """Create the namespace of the server, the link to it, a drive, and control groups of the CPU."""
    for module in MODULES:
        run("modprobe", *module.split())
    run("ip", "netns", "add", "server")
    run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", "server")
    for namespace, name, address in ((), "veth0", CLIENT), (("-n", "server"), "veth1", SERVER):
        run("ip", *namespace, "addr", "add", f"{address}/24", "dev", name)
        run("ip", *namespace, "link", "set", name, "up")
    CPU.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "cgroup", "-o", "cpu", "cgroup", CPU)
    delay_drive(0, verb="create")


def disconnect() -> None:
    """Remove what `connect` has created."""
    run("ip", "netns", "del", "server")
    for group in CPU.glob("*/"):
        group.rmdir()
    run("umount", CPU)
    run("dmsetup", "remove", "--noudevsync", "drive")
    run("rmmod", "brd")


IN_SERVER = ("ip", "netns", "exec", "server")


def in_server(*command: str) -> str:
    return run(*IN_SERVER, *command)


if __name__ == "__main__":
    main(sys.argv[1:])
