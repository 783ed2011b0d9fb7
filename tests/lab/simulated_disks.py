"""SCSI disks in memory for tests inside User Mode Linux, which count I/O as real ones do, and programs that use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from iosonde.execution import Observer, resume
from iosonde.plan import Plan, Run
from iosonde.planning import parse
from iosonde.protocol.event import Event
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage.block_layer import block_stack
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.safety.consent import Consent
from iosonde.study.model import Study

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


def is_free(device: Path) -> bool:
    """Return True if no program or kernel driver has claimed it."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_EXCL))
    except OSError:
        return False
    return True


def study(measurement: Mapping[str, Any], factors: Mapping[str, Any] | None = None, **head: Any) -> Study:
    """A study of one part without repeats; `head` has other keys of the study."""
    top = {"name": "inside", "title": "Inside", "question": "?", "repeats": 1, **head}
    part = {"measurement": measurement, "factors": factors or {}}
    lines = [*_assigned(top), "[[parts]]", *_assigned(part), "[profiles.standard]"]
    return parse("\n".join(lines))


def _assigned(values: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_toml(value)}" for name, value in values.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_assigned({json.dumps(name): each for name, each in value.items()})) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


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


class During(Observer):
    """Does something in one interval of the first measurement, and something after its run."""

    def __init__(self, action: Callable[[], object], *, interval: int = 2, after: Callable[[], object] = int) -> None:
        self.action, self.interval, self.after = action, interval, after
        self.run_id = ""
        self.notes: list[str] = []

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval" and event["index"] >= self.interval and not self.run_id:
            self.run_id = run.run_id
            self.action()

    def run_ended(self, run: Run, record: Record) -> None:
        if run.run_id == self.run_id:
            self.after()

    def note(self, text: str) -> None:
        self.notes.append(text)


@contextmanager
def mounted(device: Path, kind: str = "ext4") -> Iterator[None]:
    """A file system on a device, mounted read-only; created unless `kind` is empty."""
    if kind:
        run(f"mkfs.{kind}", "-q", "-F", "-E", "nodiscard", device)
    run("mount", "-o", "ro", device, "/mnt")
    try:
        yield
    finally:
        run("umount", "/mnt")


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed: {done.stderr.strip()}"
    return done.stdout.strip()


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class UntilMeasured(Observer):
    """Leaves a file once an interval was measured."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval":
            (self.directory / "measures").touch()


if __name__ == "__main__":  # A session to kill.
    directory, *targets = map(Path, sys.argv[1:])
    resume(directory, consent=consent_for(*targets), observer=UntilMeasured(directory))
