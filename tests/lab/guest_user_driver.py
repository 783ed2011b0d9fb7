"""Drives an NVMe controller from user space inside the lab's machine, which has an emulated IOMMU.

`guest_user_driver.py OUT`: results go to `OUT`, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from iosonde.execution.engine import find_engine
from iosonde.storage import journal
from iosonde.storage.block_nodes import number_of
from iosonde.storage.claims import Claims
from iosonde.storage.nvme import admin, handover
from iosonde.storage.nvme.handover import Controller

OWN = "iosonde-0a0b0c0d"
PATTERN = bytes(range(256)) * 256


def try_user_driver() -> dict[str, Any]:
    """What each part found, or a traceback."""
    for module in ("vfio_iommu_type1", "vfio-pci"):
        subprocess.run(["modprobe", module], check=True)
    drive = Path(os.environ["IOSONDE_LAB_DEVICES"].split(",")[-1]).resolve()
    parts = {"identified": identified, "killed": killed}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        began = time.monotonic()
        try:
            found[name] = part(drive)
        except Exception:
            found[name] = {"broken": traceback.format_exc()}
        print(f"user-level driver: {name}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def identified(drive: Path) -> dict[str, Any]:
    """Data structures of Identify, by the kernel's driver and by ours."""
    controller = handover.controller_of(number_of(drive))
    kernel = {}
    for name in controller.namespaces:
        with admin.opened(name) as opened:
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
        **state(controller),
    }


def killed(drive: Path) -> dict[str, Any]:
    """A process is killed that has handed the controller over; `cleanup` gives it back, with its data."""
    controller = handover.controller_of(number_of(drive))
    with drive.open("r+b", buffering=0) as device:
        os.pwrite(device.fileno(), PATTERN, 0)
        os.fsync(device.fileno())
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        number = controller.namespaces[drive.name]
        claims = Claims()
        claims.take(number, str(drive))
        handover.hand_over(controller, claims, own=OWN)
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    in_use = [each.reason for each in journal.cleanup()]
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    cleaned = [(each.reason, each.failed) for each in journal.cleanup()]
    with drive.open("rb", buffering=0) as device:
        is_intact = os.pread(device.fileno(), len(PATTERN), 0) == PATTERN
    return {"in_use": in_use, "cleaned": cleaned, "is_intact": is_intact, **state(controller)}


def state(controller: Controller) -> dict[str, Any]:
    """Whether the kernel's driver has the controller with the same namespaces, and what the journal has."""
    now = [each for each in handover.controllers() if each.address == controller.address]
    return {"is_back": now == [controller], "journal": [entry.what for entry in journal.entries()]}


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()  # Not the host's journal.
    Path(sys.argv[1]).write_text(json.dumps(try_user_driver()))
