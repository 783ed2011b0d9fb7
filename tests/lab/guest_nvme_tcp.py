"""NVMe/TCP inside the lab's machine: the study `nvme-tcp`, outages, limits of runs, and a session killed.

Outages of a target of iosonde's own use a drive without limits. For a cut route, and for the limits of network, server and
client, a drive in memory is exported in a network namespace of its own (`network_guest.py`).
"""

from __future__ import annotations

import errno
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import network_guest
from guest_sessions import LAB, During, Session, is_free, run, study
from network_conditions import ON_DEVICE

from iosonde.engine.protocol import Event
from iosonde.execution.session import execute
from iosonde.features.network_storage.setups import nvme_tcp
from iosonde.plan import Case, Plan, Run
from iosonde.planning import expand, load
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of, read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent

DRIVE = LAB / "8"
TARGET = nvme_tcp.TARGET
CONSENT = Consent(destroy=(str(DRIVE),), confirm=("IOSONDE-LAB-8",))
SHORT = {"block_size": "4KiB", "queue_depth": "2", "operation": "read", "span": "8MiB", "duration": "2s"}
BRIEF = {"ramp": "2s", "duration": "4s", "interval": "500ms"}
OPTIONS = "polled queues", "both digests"
"""Cases of the study that are run: each takes ten seconds and more where the processor is emulated."""
OUTAGES = {
    **{"access": "random", "block_size": "4KiB", "span": "4MiB", "read_fraction": 0.0, "durability": "dsync"},
    **{"verify": "after", "layout": "always", "arrival": "constant", "rate": 40, "queue_depth": 32},
    **{"ramp": "500ms", "interval": "100ms", "outage": "server", "outage_after": "1s", "outage_length": "3s"},
}
"""Durable writes, few enough for emulated processors."""
DEVICE = {"fabric": "nvme-tcp", "fabric_queues": 1}
FILE, LINK = {**DEVICE, "file_system": "ext4"}, {"outage": "link"}

OWN = "lab"
NAME = nvme_tcp.NAME + OWN
SERVE = f"""
set -e
cd /sys/kernel/config/nvmet
mkdir -p subsystems/{NAME}/namespaces/1 ports/1
echo 1 >subsystems/{NAME}/attr_allow_any_host
echo DRIVE >subsystems/{NAME}/namespaces/1/device_path
echo 1 >subsystems/{NAME}/namespaces/1/enable
cd ports/1
echo tcp >addr_trtype
echo ipv4 >addr_adrfam
echo {network_guest.SERVER} >addr_traddr
echo 4420 >addr_trsvcid
ln -s ../../subsystems/{NAME} subsystems/{NAME}
"""
STOP = f"""
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/{NAME}
rmdir ports/1 subsystems/{NAME}/namespaces/1 subsystems/{NAME}
"""


def try_nvme_tcp(to_kill: Session) -> dict[str, Any]:
    """Measure, stop servers, cut a route, kill a session; report what each of them leaves."""
    run("ip", "link", "set", "lo", "up")
    drive = open_target(str(DRIVE.resolve()))
    plan = expand(load("nvme-tcp"), drive, profile="quick", repeats=1, settings=SHORT)
    chosen = {case.case_id for case in plan.cases if case.levels.get("option") in OPTIONS}
    runs = [each for each in plan.runs if each.case_id in chosen]
    strangers: dict[str, Any] = {}
    during = During(lambda: strangers.update(tried_by_strangers()))
    execute(plan.model_copy(update={"runs": runs}), Path("nvme-tcp"), consent=CONSENT, observer=during)
    execute(planned(str(DRIVE.resolve()), FILE), Path("nvme-tcp-server"), consent=CONSENT)
    found = {"strangers": strangers, "setups": left(), "killed": _after_a_kill(to_kill)}
    with served() as (node, consent):
        execute(planned(node, LINK), Path("nvme-tcp-link"), consent=consent)
        found["routes"] = run("ip", "route", "show", "type", "blackhole").splitlines()
        failover = expand(load("failover"), open_target(node), profile="quick", settings={"outage": "link"})
        found["failover"] = [case.levels["protocol"] for case in failover.cases]
        measure(node, consent)
    found["link"] = left()
    return found


def measure(node: str, consent: Consent) -> None:
    """A run under each condition, of the connection or of the drive behind it."""
    plan = expand(network_guest.study_of(ON_DEVICE), open_target(node), settings=BRIEF)
    with ExitStack() as stack:
        execute(plan, Path("nvme-tcp-limits"), consent=consent, observer=Injection(ON_DEVICE, stack))


def tried_by_strangers() -> dict[str, Any]:
    """Answers of the target of a study to another host, and files that another user can read."""
    [controller], [subsystem] = connections(), TARGET.glob("subsystems/*")
    [port], [host] = TARGET.glob("ports/*"), TARGET.glob("hosts/*")
    address = f"transport=tcp,traddr={nvme_tcp.ADDRESS},trsvcid={port.name}"
    secret = [str(host.parent), str(subsystem / "allowed_hosts"), str(controller / "hostnqn")]
    return {
        "another host": connect(f"{address},nqn={subsystem.name},hostnqn={host.name}0,hostid={uuid.uuid4()}"),
        "host without a name": connect(f"{address},nqn={subsystem.name}"),
        "readable": [each for each in secret if is_readable(each)],
        "readable address": is_readable(str(controller / "address")),
        "listening": listening(int(port.name)),
    }


def connect(options: str) -> str:
    """Name of the error that the kernel returns."""
    try:
        with nvme_tcp.FABRICS.open("r+b", buffering=0) as fabrics:
            fabrics.write(options.encode())
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


def is_readable(path: str) -> bool:
    """Return True if another user can read a file or list a directory."""
    script = 'if [ -d "$0" ]; then ls "$0"; else cat "$0"; fi'
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, path]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def listening(port: int) -> list[str]:
    """Addresses on which TCP sockets listen on a port, as in `/proc/net/tcp` and `tcp6`."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    return [fields[1] for fields in lines if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")]


class Injection(network_guest.Injection):
    """Brings about a condition before a run, that of the client when its engine runs: commands take seconds here."""

    def run_started(self, run: Run, case: Case) -> None:
        super().run_started(run, case)
        if not self.condition.client_cpu:
            self.stack.enter_context(network_guest.injected(self.condition, self.served_by))

    def event(self, run: Run, event: Event) -> None:
        if self.condition.client_cpu and event["event"] == "phase" and event["edge"] == "begin":
            self.stack.enter_context(network_guest.injected(self.condition, self.served_by))


def planned(target: str, way: Mapping[str, object], length: str = "14s") -> Plan:
    return expand(study({**OUTAGES, **way, "duration": length}), open_target(target))


def _after_a_kill(session: Session) -> dict[str, Any]:
    """Leftovers of a session that was killed during a run, and of the cleanup after it."""
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, planned(str(DRIVE.resolve()), FILE, "60s"))
    session.start(directory)
    was_measuring = session.is_measuring()
    session.kill()
    at_kill = left()
    cleaned = [each.reason for each in cleanup()]
    return {"was_measuring": was_measuring, "at_kill": at_kill, "cleaned": cleaned, "left": left()}


@contextmanager
def served() -> Iterator[tuple[str, Consent]]:
    """A drive in memory, exported by a target in a namespace and connected; the node of the connection."""
    network_guest.connect()
    [drive] = [each.parts[3] for each in Path("/sys/block").glob("dm-*/dm/name") if read(each) == "drive"]
    run("modprobe", "-a", "nvmet-tcp", "nvme-tcp")
    subprocess.run(["mount", "-t", "configfs", "configfs", "/sys/kernel/config"], check=False)  # If it is not yet.
    run("nsenter", "--net=/run/netns/server", "sh", "-c", SERVE.replace("DRIVE", f"/dev/{drive}"))
    try:
        with nvme_tcp.FABRICS.open("r+b", buffering=0) as fabrics:
            address = f"transport=tcp,traddr={network_guest.SERVER},trsvcid=4420"
            fabrics.write(f"{address},nqn={NAME},reconnect_delay=1".encode())
        node = str(nvme_tcp._connected(OWN))
        yield node, Consent(destroy=(node,), confirm=(block_stack.serial(number_of(node)),))
    finally:
        for controller in connections():
            (controller / "delete_controller").write_text("1")
        run("sh", "-c", STOP)
        network_guest.disconnect()


def left() -> dict[str, Any]:
    """Leftovers of setups, sorted by kind."""
    return {
        "mounted": [each.point for each in mounts() if "iosonde-" in each.point],
        "subsystems": [each.name for each in TARGET.glob("subsystems/*")],
        "ports": [each.name for each in TARGET.glob("ports/*")],
        "hosts": len(list(TARGET.glob("hosts/*"))),
        "connected": [each.name for each in connections()],
        "journal": [entry.what for entry in journal.entries()],
        "free": is_free(DRIVE),
    }


def connections() -> list[Path]:
    return [each for each in Path("/sys/class/nvme").glob("*") if read(each / "transport") == "tcp"]
