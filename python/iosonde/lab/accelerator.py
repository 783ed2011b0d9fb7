"""Choice of the accelerator: KVM if this machine can run the guest itself, else emulation (TCG).

That `/dev/kvm` opens and creates machines proves little: under some hypervisors no kernel starts in them. So a trial
start decides, once after each boot of the host.
"""

from __future__ import annotations

import os
import select
import tempfile
import time
from pathlib import Path

from iosonde.lab.archive import archive
from iosonde.lab.bound_process import end
from iosonde.lab.image import Image
from iosonde.lab.qemu import Accelerator, Drives, qemu_command, start_qemu

_KVM = Path("/dev/kvm")
_TRIAL_S = 10


def best_accelerator(image: Image) -> Accelerator:
    """KVM if a guest starts with it, else TCG. The answer is kept next to the image."""
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return "tcg"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    answer = image.directory / f"accelerator-{boot}"
    if not answer.exists():
        for old in image.directory.glob("accelerator-*"):
            old.unlink(missing_ok=True)
        answer.write_text("kvm" if _starts(image) else "tcg", encoding="utf-8")
    return "kvm" if answer.read_text(encoding="utf-8") == "kvm" else "tcg"


def _starts(image: Image) -> bool:
    """Return True if a guest under KVM exits in time."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as initrd, tempfile.TemporaryFile() as stderr:
        initrd.write(image.initrd.read_bytes() + archive("job", {"settings": "DRIVES=none\n"}))
        initrd.flush()
        command = qemu_command(image, initrd.fileno(), "kvm", {"console": writing}, [], cpus=1, memory=512 << 20)
        qemu = start_qemu(command, [initrd.fileno(), writing], drives=Drives(count=0), stderr=stderr.fileno())
        os.close(writing)
        try:
            return b"iosonde-lab: exit 0" in _read_until_end(reading)
        finally:
            end(qemu)
            os.close(reading)


def _read_until_end(descriptor: int) -> bytes:
    heard = b""
    deadline = time.monotonic() + _TRIAL_S
    while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(descriptor, 1 << 16)
        heard += data
        if not data:
            break
    return heard
