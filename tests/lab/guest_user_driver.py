"""Drives an NVMe controller from user space inside the lab's machine, which has an emulated IOMMU."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

from guest_sessions import LAB, Session, study_of, wait_for

from iosonde.errors import IosondeError
from iosonde.execution.engine import find_engine
from iosonde.execution.engine_programs import probe_backends
from iosonde.execution.session import execute
from iosonde.features.nvme_driver import handover
from iosonde.features.nvme_driver.handover import Controller
from iosonde.features.nvme_driver.run import handed_over
from iosonde.plan import Plan
from iosonde.planning import expand, load
from iosonde.results import ResultSet
from iosonde.storage import nvme, open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Claims, Consent
from iosonde.storage.targets.workspace import journal_directory

SLOW, DRIVE = LAB / "7", LAB / "12"
"""A drive with limits, and the one with two namespaces."""
OWN = "iosonde-0a0b0c0d"
MIB = 1 << 20
MEASUREMENT = {
    **{"access": "random", "read_fraction": 0.5, "block_size": 4096, "span": "8MiB", "limit_operations": 300},
    **{"ramp": 0, "duration": "10min", "interval": "100ms"},
}
"""The number of I/Os and not the time ends a run, so that it does the same at any speed of the machine."""
BACKENDS = ["sync", "preadv2", "libaio", "uring", "uring_nvme", "nvme_user"]
POLLED: dict[str, dict[str, Any]] = {
    "uring sqpoll": {"backend": "uring", "submission_polling": True},
    "uring iopoll": {"backend": "uring", "completion_polling": True},
    "uring_nvme iopoll": {"backend": "uring_nvme", "completion_polling": True},
}
"""Backends that poll. `preadv2` always requests that (RWF_HIPRI), as far as the kernel has it."""
CROSSED = [*BACKENDS[:-1], *POLLED, BACKENDS[-1]]
SIZES = "512/10:1KiB/10:1536/10:4KiB/10:4608/10:8KiB/10:64KiB/10:68KiB/10:508KiB/20"
"""A command of the kernel's driver has 127 memory segments at most, so larger ones need huge pages."""
LARGEST = 512 << 10
"""Bytes that a command of QEMU's controller transfers at most."""
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
BACKENDS_STUDY = {"operation": "read", "interface": "sync,uring,nvme_user", "queue_depth": "4", "span": "16MiB"}
"""Settings of the shipped study."""
ENDLESS = 100_000_000
PATIENCE_S = 300
PATTERN = bytes(range(256)) * 4096
DEALLOCATED, KEPT = 16 * MIB, 17 * MIB
"""Offsets of the pattern: one that the driver deallocates, and one that nothing may change."""


def parts_of_user_driver(
    to_kill: Session, failing_byte: int, sizes_program: str
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Each part, by name."""
    slow, drive = SLOW.resolve(), DRIVE.resolve()
    second = Path(str(drive)[:-1] + "2")
    return {
        "identified": lambda: identified(drive),
        "killed": lambda: killed(to_kill, drive),
        "crossed": lambda: crossed(drive, CROSSED),
        "session": lambda: session(drive, failing_byte),
        "large-commands": lambda: large_commands(drive),
        "sizes": lambda: all_sizes(sizes_program, drive, 512),
        "sizes-of-4096": lambda: all_sizes(sizes_program, second, 4096),
        "study": lambda: shipped_study(drive),
        "timed-out": lambda: timed_out(slow),
        "fatal": lambda: fatal(drive),
        "removed": lambda: removed(drive),
    }


def identified(drive: Path) -> dict[str, Any]:
    """Data structures of Identify, by the kernel's driver and by ours."""
    for module in ("vfio_iommu_type1", "vfio-pci"):
        subprocess.run(["modprobe", module], check=True)
    controller = handover.controller_of(number_of(drive))
    probed = {each.name: each.is_available for each in probe_backends(find_engine(), drive)}
    kernel = {}
    for name in controller.namespaces:
        with nvme.opened(name) as opened:
            kernel[str(opened.namespace)] = opened.identify_namespace().hex()
            whole = opened.identify_controller().hex()
    claims = Claims()
    number = controller.namespaces[drive.name]
    with claims.held({number: str(drive)}):
        handover.check(controller, claimed=number)
        handover.hand_over(controller, claims, own=OWN)
        try:
            journaled = [entry.what for entry in journal.entries()]
            command = [str(find_engine()), "--identify-nvme", controller.address]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            handover.give_back(controller)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return {
        "controller": [whole, answer.pop("identify")],
        "namespaces": [kernel, {str(each["number"]): each["identify"] for each in answer["namespaces"]}],
        "formats": [each["format"] for each in answer.pop("namespaces")],
        "answer": answer,
        "journaled": journaled,
        "probed": probed,
        **state(controller),
    }


def killed(session: Session, drive: Path) -> dict[str, Any]:
    """Session and engine are killed during writes; `cleanup` returns the controller, and nothing else has changed."""
    controller = handover.controller_of(number_of(drive))
    write(drive, PATTERN, KEPT)
    writes = {"read_fraction": 0.0, "block_size": 65536, "queue_depth": 32, "limit_operations": ENDLESS}
    directory = Path(tempfile.mkdtemp()) / "set"
    ResultSet.create(directory, planned(drive, writes=(writes, {"backend": ["nvme_user"]})))
    session.start(directory)
    has_measured = session.is_measuring()
    in_use = [each.reason for each in journal.cleanup()]
    session.kill()
    for each in engines():
        with suppress(ProcessLookupError):  # It may end with its session.
            os.kill(each, signal.SIGKILL)
    wait_for(lambda: not engines())
    remaining = [entry.what for entry in journal.entries()]
    cleaned = [(each.reason, each.failed) for each in journal.cleanup()]
    return {
        "has_measured": has_measured,
        "in_use": in_use,
        "remaining": remaining,
        "cleaned": cleaned,
        "is_intact": read(drive, len(PATTERN), KEPT) == PATTERN,
        **state(controller),
    }


def crossed(drive: Path, backends: Sequence[str]) -> dict[str, Any]:
    """Each backend writes a MiB of its own; then every backend reads and checks what all of them have written."""
    controller = handover.controller_of(number_of(drive))
    shared = {"access": "sequential", "block_size": 65536, "layout": "never", "verify": "during"}
    ways = [{"label": name, "set": POLLED.get(name, {"backend": name})} for name in backends]
    factors = {"way": ways, "read_fraction": [0.0, 1.0]}
    plan = planned(drive, all=({**shared, "span": len(backends) * MIB}, factors))
    specs = dict(zip(product(backends, (0.0, 1.0)), plan.specs(), strict=True))
    for number, name in enumerate(backends):
        stream = specs[name, 0.0]["workload"]["streams"][0]
        stream |= {"span": {**stream["span"], "offset_bytes": number * MIB, "bytes": MIB}, "limit_operations": 16}
        specs[name, 1.0]["workload"]["streams"][0]["limit_operations"] = 16 * len(backends)
    kernel = backends[:-1]
    # The first lays all of it out, and the journals of verification know that.
    specs[kernel[0], 0.0]["workload"]["layout"] = "always"
    journals = journal_directory(str(drive))
    journals.mkdir(parents=True, exist_ok=True)
    ended = {f"{name} writes": carried_out(specs[name, 0.0]) for name in kernel}
    with driven(drive, specs["nvme_user", 0.0]) as writing:
        ended["nvme_user writes"] = carried_out(writing)
        reading = {**specs["nvme_user", 1.0], "observe": writing["observe"]}
        reading["workload"]["backend"] = writing["workload"]["backend"]
        ended["nvme_user reads"] = carried_out(reading)
    ended |= {f"{name} reads": carried_out(specs[name, 1.0]) for name in kernel}
    shutil.rmtree(journals)
    return {"ended": ended, "backends": backends, **state(controller)}


def session(drive: Path, failing_byte: int) -> dict[str, Any]:
    """A study of several parts, and what the kernel reads after it."""
    controller = handover.controller_of(number_of(drive))
    user_level = {"backend": ["nvme_user"]}
    # Several times around rings of 256 and 64 entries. The first has the most in flight of the study `jo2024-driver`.
    most = {"jobs": 4, "queue_depth": 128, "span": "16MiB", "limit_operations": 4000}
    fewer = {"jobs": 2, "queue_depth": 32, "limit_operations": 1000}
    ways = [
        {"data_pointers": "prp", "interrupts": False, "durability": "dsync", **most},
        {"data_pointers": "sgl", "interrupts": True, "durability": "flush:8", **fewer},
    ]
    deep = {"backend": "nvme_user", "verify": "during"}
    failing = {"offset": failing_byte, "span": 512, "block_size": 512, "read_fraction": 1.0, "layout": "never"}
    trims = {"read_fraction": 0.0, "trim_fraction": 1.0, "access": "sequential", "layout": "never"}
    trimmed = {"offset": DEALLOCATED, "span": MIB, "block_size": 65536, "limit_operations": 16}
    parts: dict[str, Part] = {
        "sizes": ({"verify": "during", "block_size": SIZES}, {"backend": ["uring_nvme", "nvme_user"]}),
        "deep": (deep, {"way": [{"label": way["data_pointers"], "set": way} for way in ways]}),
        "failing": ({**failing, "limit_operations": 1}, {"backend": ["uring", "nvme_user"]}),
        "deallocated": ({**trims, **trimmed}, user_level),
    }
    write(drive, PATTERN, DEALLOCATED)
    plan = planned(drive, **parts)
    part_of = {case.case_id: case.part for case in plan.cases}
    directory, error = Path(tempfile.mkdtemp()) / "set", ""
    try:
        execute(plan, directory, consent=consent_for(drive, controller))
    except IosondeError as raised:
        error = str(raised)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in parts}
    for record in ResultSet.open(directory).records():
        result = record.result or {}
        found[part_of[record.case_id]].append(
            {
                "backend": record.parameters["backend"],
                "data_pointers": record.parameters.get("data_pointers"),
                "in_flight": [record.parameters["jobs"], record.parameters["queue_depth"]],
                "outcome": record.outcome,
                "failure": [record.failure.code, record.failure.message] if record.failure else None,
                "verification": result.get("verification"),
                "in_effect": result.get("backend"),
            }
        )
    return {
        "error": error,
        "parts": found,
        "is_zero": read(drive, MIB, DEALLOCATED) == bytes(MIB),
        "is_intact": read(drive, len(PATTERN), KEPT) == PATTERN,
        **state(controller),
    }


def large_commands(drive: Path) -> dict[str, Any]:
    """The largest command with huge pages for its buffers, by passthrough and by our driver; passthrough also without."""
    controller = handover.controller_of(number_of(drive))
    large = {"block_size": LARGEST, "span": "2MiB", "queue_depth": 4, "layout": "always", "verify": "during"}
    part: Part = ({**large, "limit_operations": 16}, {"backend": ["uring_nvme", "nvme_user"]})
    passthrough, own = planned(drive, large=part).specs()
    own["workload"]["layout"] = "never"
    journals = journal_directory(str(drive))
    journals.mkdir(parents=True, exist_ok=True)
    without = carried_out(passthrough)
    HUGE_PAGES.write_text("4")
    ended = {"uring_nvme": carried_out(passthrough)}
    with driven(drive, own) as spec:
        ended["nvme_user"] = carried_out(spec)
    HUGE_PAGES.write_text("0")
    shutil.rmtree(journals)
    return {"without": without, "with": ended, **state(controller)}


def all_sizes(program: str, drive: Path, block_bytes: int) -> dict[str, Any]:
    """Transfers of every size between the kernel's driver and ours, both with PRP lists and with SGLs."""
    controller = handover.controller_of(number_of(drive))
    with nvme.opened(drive.name) as opened:
        namespace = opened.namespace
    through_kernel = [str(drive), str(block_bytes), str(LARGEST)]
    subprocess.run([program, "fill", *through_kernel], check=True)
    claims, number = Claims(), controller.namespaces[drive.name]
    with claims.held({number: str(drive)}):
        handover.hand_over(controller, claims, own=OWN)
        try:
            command = [program, "drive", controller.address, str(namespace)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            handover.give_back(controller)
    assert done.returncode == 0, done.stderr
    subprocess.run([program, "check", *through_kernel], check=True)
    return {**json.loads(done.stdout), **state(controller)}


def shipped_study(drive: Path) -> dict[str, Any]:
    """The study of all backends with three of them; the result set goes out as `jo2024-driver`."""
    controller = handover.controller_of(number_of(drive))
    target = open_target(str(drive))
    plan = expand(load("jo2024-driver"), target, profile="quick", repeats=3, settings=BACKENDS_STUDY)
    execute(plan, "jo2024-driver", consent=consent_for(drive, controller))
    return state(controller)


def timed_out(slow: Path) -> dict[str, Any]:
    """Reads of 32 MiB at 2.5 MB/s, by commands that may take 1 s: they are aborted, and then the controller is reset."""
    controller = handover.controller_of(number_of(slow))
    with driven(slow, reads(slow, block_size=LARGEST, queue_depth=64, span="32MiB", command_timeout="1s")) as spec:
        ended = carried_out(spec)
    return {"ended": ended, **state(controller)}


def fatal(drive: Path) -> dict[str, Any]:
    """The controller loses its access to memory during a run: QEMU's then sets CSTS.CFS, since it cannot read its queues."""
    controller = handover.controller_of(number_of(drive))
    ended = disturbed(drive, lambda: set_bus_master(controller, is_enabled=False))
    set_bus_master(controller, is_enabled=True)
    return {"ended": ended, **state(controller)}


def disturbed(drive: Path, disturb: Callable[[], object], *, at_end: Callable[[], object] = int) -> dict[str, Any]:
    """The last event of an engine with something done in its first interval, and when it has ended."""
    with driven(drive, reads(drive)) as spec:
        events = carry_out(spec)
        next(event for event in events if event["event"] == "interval")
        disturb()
        ended = list(events)[-1]
        at_end()
    return ended


def set_bus_master(controller: Controller, *, is_enabled: bool) -> None:
    """Bus Master Enable in the command register of its configuration space."""
    with (controller.device / "config").open("r+b", buffering=0) as space:
        command = int.from_bytes(os.pread(space.fileno(), 2, 4), "little")
        os.pwrite(space.fileno(), (command | 4 if is_enabled else command & ~4).to_bytes(2, "little"), 4)


def removed(drive: Path) -> dict[str, Any]:
    """The controller is removed during a run; its removal waits until the engine has closed it."""
    controller = handover.controller_of(number_of(drive))
    remove = threading.Thread(target=lambda: (controller.device / "remove").write_text("1"))
    ended = disturbed(drive, remove.start, at_end=lambda: remove.join(PATIENCE_S))
    is_gone = not controller.device.exists()
    Path("/sys/bus/pci/rescan").write_text("1")
    wait_for(lambda: any(each.address == controller.address for each in handover.controllers()))
    return {"ended": ended, "is_gone": is_gone, "journal": [entry.what for entry in journal.entries()]}


def reads(drive: Path, **measurement: Any) -> dict[str, Any]:
    """The spec of reads that do not end, by the user-level driver."""
    endless = {"read_fraction": 1.0, "layout": "never", "limit_operations": ENDLESS, **measurement}
    [spec] = planned(drive, reads=(endless, {"backend": ["nvme_user"]})).specs()
    return spec


@contextmanager
def driven(drive: Path, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The spec for an engine while the controller is handed over, with the checks of a session."""
    target = open_target(str(drive))
    consent = consent_for(drive, handover.controller_of(number_of(drive)))
    with (
        target.claimed(consent, keep=True),
        handed_over(spec, target, consent) as changed,
    ):
        yield changed


def carried_out(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The last event of an engine."""
    return list(carry_out(spec))[-1]


def carry_out(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of an engine."""
    with subprocess.Popen([find_engine()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdin and engine.stdout
        engine.stdin.write(json.dumps(spec))
        engine.stdin.close()
        yield from map(json.loads, engine.stdout)


def engines() -> list[int]:
    """Processes of engines."""
    found = []
    for each in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if each.read_text().strip() == "iosonde-engine":
                found.append(int(each.parent.name))
    return found


Part = tuple[Mapping[str, Any], Mapping[str, Sequence[Any]]]
"""Parameters and factors."""


def planned(drive: Path, **parts: Part) -> Plan:
    """A study that carries out its cases in order."""
    tables = [
        {"name": name, "measurement": MEASUREMENT | dict(measurement), "factors": factors}
        for name, (measurement, factors) in parts.items()
    ]
    return expand(study_of(*tables, name="driven", shuffle=False), open_target(str(drive)))


def consent_for(drive: Path, controller: Controller | None = None) -> Consent:
    """All options that a run with the user-level driver needs."""
    controller = controller or handover.controller_of(number_of(drive))
    return Consent(destroy=(str(drive), controller.address), confirm=(controller.serial,))


def write(drive: Path, data: bytes, offset: int) -> None:
    """Through the kernel."""
    with drive.open("r+b", buffering=0) as device:
        os.pwrite(device.fileno(), data, offset)
        os.fsync(device.fileno())


def read(drive: Path, size: int, offset: int) -> bytes:
    """From the drive and not from the page cache."""
    with drive.open("rb", buffering=0) as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(device.fileno(), size, offset)


def state(controller: Controller) -> dict[str, Any]:
    """State of the controller: back with the kernel's driver and the same namespaces, and its journal entries."""
    now = [each for each in handover.controllers() if each.address == controller.address]
    return {"is_back": now == [controller], "journal": [entry.what for entry in journal.entries()]}
