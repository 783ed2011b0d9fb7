"""A drive that fails while its array is measured: dm-flakey on top of it fails all I/O from some time on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guest_md import LAB, array, run, send, settings
from lab_load import EngineFailedError, measure

AFTER_S = 2.5
"""Seconds of load before the drive fails: the ramp is over."""


def fail_members(engine: str) -> None:
    """An array with redundancy continues without the drive; one without fails the run with the reason."""
    for level in ("raid1", "raid0"):
        name = f"{level} with a member that fails"
        send(name=name, begins=True)
        with flaky(LAB / "0") as member, array(level, [LAB / "1", member]) as path:
            failing = threading.Timer(AFTER_S, stop_answering, [member])
            failing.start()
            try:
                iops = measure(engine, path, queue_depth=32, read_fraction=0.5, seconds=10).iops
                failure = None
            except EngineFailedError as error:
                iops, failure = 0.0, error.failure
            failing.join()
            degraded = settings(path) / "degraded"
            missing = int(degraded.read_text()) if degraded.exists() else None
            send(name=name, iops=iops, failure=failure, missing=missing)
            recover(member)


@contextmanager
def flaky(drive: Path) -> Iterator[Path]:
    """A device that does what the drive does, until it fails."""
    run("dmsetup", "create", "flaky", "--table", table(drive, up=True))
    run("dmsetup", "mknodes", "flaky")
    try:
        yield Path("/dev/mapper/flaky")
    finally:
        run("dmsetup", "remove", "--retry", "flaky")


def stop_answering(member: Path) -> None:
    load(member, up=False)


def recover(member: Path) -> None:
    load(member, up=True)


def load(member: Path, *, up: bool) -> None:
    run("dmsetup", "load", member.name, "--table", table(LAB / "0", up=up))
    # Without freezing a file system above: there is none.
    run("dmsetup", "suspend", "--noflush", "--nolockfs", member.name)
    run("dmsetup", "resume", member.name)


def table(drive: Path, *, up: bool) -> str:
    sectors = int(Path("/sys/block", drive.resolve().name, "size").read_text())
    return f"0 {sectors} flakey {drive.resolve()} 0 {'3600 0' if up else '0 3600'}"
