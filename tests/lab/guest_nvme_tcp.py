"""NVMe/TCP inside the lab's machine: the study `nvme-tcp`, outages with verified writes, and a session killed.

All use a drive without limits. iosonde exports it on 127.0.0.1 itself; for the route to a server that is cut, the target
listens in a network namespace of its own.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guest_md import LAB
from guest_sessions import Session, is_free

from iosonde.execution import execute
from iosonde.features.network_storage.setups import nvme_tcp
from iosonde.plan import Plan
from iosonde.planning import expand, load, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.kernel import read
from iosonde.storage.block_layer.mounts import mounts
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent

DRIVE = LAB / "8"
CONSENT = Consent(destroy=(str(DRIVE),), confirm=("IOSONDE-LAB-8",))
SHORT = {"block_size": "4KiB", "queue_depth": "2", "operation": "read", "span": "8MiB", "duration": "500ms"}
OPTIONS = "polled queues", "both digests"
"""Cases of the study that are run: each takes ten seconds and more where the processor is emulated."""
STUDY = """
name = "outages"
title = "Outages of NVMe/TCP"
question = "Is a write lost?"
repeats = 1

[measurement]
access = "random"
block_size = "4KiB"
span = "4MiB"
read_fraction = 0.0
durability = "dsync"
verify = "after"
arrival = "constant"
rate = 40
queue_depth = 32
layout = "always"
ramp = "500ms"
duration = "LENGTH"
interval = "100ms"
outage = "server"
outage_after = "1s"
outage_length = "3s"

[[parts]]
title = "Outages"
[parts.factors]
way = [ WAYS ]

[profiles.standard]
"""
"""Durable writes, few enough for emulated processors."""
FILE = '{ label = "ext4", set = { fabric = "nvme-tcp", fabric_queues = 1, file_system = "ext4" } }'
LINK = '{ label = "link", set = { outage = "link" } }'

SERVER, OWN = "10.78.0.2", "lab"
NAME = nvme_tcp.NAME + OWN
NETWORK = f"""
set -e
ip netns add target
ip link add client type veth peer name server netns target
ip addr add 10.78.0.1/24 dev client
ip link set client up
ip -n target addr add {SERVER}/24 dev server
ip -n target link set server up
mount -t configfs configfs /sys/kernel/config 2>/dev/null || :
"""
SERVE = f"""
set -e
cd /sys/kernel/config/nvmet
mkdir -p subsystems/{NAME}/namespaces/1 ports/1
echo 1 >subsystems/{NAME}/attr_allow_any_host
echo {DRIVE.resolve()} >subsystems/{NAME}/namespaces/1/device_path
echo 1 >subsystems/{NAME}/namespaces/1/enable
cd ports/1
echo tcp >addr_trtype
echo ipv4 >addr_adrfam
echo {SERVER} >addr_traddr
echo 4420 >addr_trsvcid
ln -s ../../subsystems/{NAME} subsystems/{NAME}
"""
STOP = f"""
cd /sys/kernel/config/nvmet
rm ports/1/subsystems/{NAME}
rmdir ports/1 subsystems/{NAME}/namespaces/1 subsystems/{NAME}
ip netns del target
"""


def try_nvme_tcp(to_kill: Session) -> dict[str, Any]:
    """Measure, stop servers, cut a route, kill a session; report what each of them leaves."""
    run("ip link set lo up")
    drive = open_target(str(DRIVE.resolve()))
    plan = expand(load("nvme-tcp"), drive, profile="quick", repeats=1, settings=SHORT)
    chosen = {case.case_id for case in plan.cases if case.levels.get("option") in OPTIONS}
    runs = [run for run in plan.runs if run.case_id in chosen]
    execute(plan.model_copy(update={"runs": runs}), Path("nvme-tcp"), consent=CONSENT)
    execute(planned(str(DRIVE.resolve()), FILE), Path("nvme-tcp-server"), consent=CONSENT)
    found = {"setups": left(), "killed": _after_a_kill(to_kill)}
    with served() as node:
        consent = Consent(destroy=(node,), confirm=(block_stack.serial(number_of(node)),))
        execute(planned(node, LINK), Path("nvme-tcp-link"), consent=consent)
        found["routes"] = blackholes()
    found["link"] = left()
    return found


def planned(target: str, ways: str, length: str = "14s") -> Plan:
    study = parse(STUDY.replace("LENGTH", length).replace("WAYS", ways))
    return expand(study, open_target(target))


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
def served() -> Iterator[str]:
    """The drive, exported by a target in a namespace and connected; the node of the connection."""
    run(NETWORK)
    run(f"nsenter --net=/run/netns/target sh -c '{SERVE}'")
    try:
        with nvme_tcp.FABRICS.open("r+b", buffering=0) as fabrics:
            fabrics.write(f"transport=tcp,traddr={SERVER},trsvcid=4420,nqn={NAME},reconnect_delay=1".encode())
        yield str(nvme_tcp._connected(OWN))
    finally:
        for controller in connections():
            (controller / "delete_controller").write_text("1")
        run(STOP)


def run(script: str) -> None:
    subprocess.run(["sh", "-c", script], check=True, stdin=subprocess.DEVNULL)


def blackholes() -> list[str]:
    shown = subprocess.run(["ip", "route", "show", "type", "blackhole"], check=True, stdout=subprocess.PIPE, text=True)
    return shown.stdout.splitlines()


def left() -> dict[str, Any]:
    """Leftovers of setups, sorted by kind."""
    target = Path("/sys/kernel/config/nvmet")
    return {
        "mounted": [each.point for each in mounts() if "iosonde-" in each.point],
        "subsystems": [each.name for each in target.glob("subsystems/*")],
        "ports": [each.name for each in target.glob("ports/*")],
        "connected": [each.name for each in connections()],
        "journal": [entry.what for entry in journal.entries()],
        "free": is_free(DRIVE),
    }


def connections() -> list[Path]:
    return [each for each in Path("/sys/class/nvme").glob("*") if read(each / "transport") == "tcp"]
