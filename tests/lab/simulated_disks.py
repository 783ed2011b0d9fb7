"""SCSI disks in memory for tests inside User Mode Linux, which count I/O as real ones do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guest_sessions import During, run, wait_for

from iosonde.execution.session import resume
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.guard import Consent

MODULES = (
    *("sd_mod", "loop", "bcache", "dm-snapshot", "dm-flakey", "dm-cache-smq", "dm-writecache"),
    *("raid0", "raid1", "raid10", "raid456"),
)
COUNT, SIZE_MIB = 4, 232


def disks() -> list[Path]:
    """Four disks without latency, created at the first call."""
    found = attached()
    if not found:
        for module in MODULES:
            run("modprobe", module)
        run("modprobe", "scsi_debug", f"add_host={COUNT}", "per_host_store=1", f"dev_size_mb={SIZE_MIB}", "delay=0")
        wait_for(lambda: len(attached()) == COUNT)
        found = attached()
    return found


def attached() -> list[Path]:
    places = Path("/sys/bus/pseudo/drivers/scsi_debug").glob("adapter*/host*/target*/*/block/sd*")
    return sorted(Path("/dev", place.name) for place in places)


def wipe(*disks_: Path) -> None:
    """Remove every signature that earlier tests have left."""
    run("wipefs", "--all", "--force", *disks_)


def consent_for(*disks_: Path) -> Consent:
    """Consent to overwrite disks and what earlier runs have left on them."""
    serials = [block_stack.serial(number_of(disk)) for disk in disks_]
    return Consent(destroy=tuple(map(str, disks_)), confirm=tuple(serials))


def kill_during_measurement(plan: Plan, directory: Path, *targets: Path) -> None:
    """Start a session of its own, and kill it once it has measured an interval."""
    ResultSet.create(directory, plan)
    with subprocess.Popen([sys.executable, "-B", __file__, directory, *targets]) as session:
        wait_for(lambda: (directory / "measures").exists() or session.poll() is not None)
        assert session.poll() is None
        session.kill()
    (directory / "measures").unlink()


@contextmanager
def mounted(device: Path) -> Iterator[None]:
    """A new file system on a device, mounted read-only."""
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", device)
    run("mount", "-o", "ro", device, "/mnt")
    try:
        yield
    finally:
        run("umount", "/mnt")


if __name__ == "__main__":  # A session to kill.
    directory, *targets = map(Path, sys.argv[1:])
    resume(directory, consent=consent_for(*targets), observer=During((directory / "measures").touch))
