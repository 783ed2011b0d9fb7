"""Devices of exactly known performance: they hold their rate, and nothing of them stays."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from command_line import CHECKOUT, Iosonde
from engines import real_engine
from lab_load import SEQUENTIAL, STREAM_BYTES, measure

from iosonde.errors import LabError
from iosonde.execution import execute
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.planning import expand, parse
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20
IOPS = 100
BANDWIDTH = 10_000_000
"""Low enough for a tenth of a CPU."""
SECONDS = 3

pytestmark = pytest.mark.usefixtures("host_devices")


@pytest.fixture(scope="module")
def throttled(host_devices: None) -> Iterator[ThrottledDevice]:
    with throttled_devices(Limits(iops=IOPS, bandwidth=BANDWIDTH), size_bytes=64 * MIB) as devices:
        yield devices[0]


# Whatever else the machine does, a limit is never exceeded by more than its burst: what it allows in 0.1 s, and I/Os in flight.
HIGHEST_IOPS = IOPS + (0.1 * IOPS + 2) / SECONDS
HIGHEST_BANDWIDTH = BANDWIDTH + (0.1 * BANDWIDTH + 2 * STREAM_BYTES) / SECONDS


@pytest.mark.parametrize("read_fraction", [1.0, 0.0], ids=["reads", "writes"])
def test_a_device_does_no_more_than_it_is_held_to(throttled: ThrottledDevice, read_fraction: float) -> None:
    device = (real_engine(), throttled.path)
    small = measure(*device, queue_depth=4, read_fraction=read_fraction, operations=SECONDS * IOPS)
    assert small.iops < HIGHEST_IOPS
    # Each I/O is in flight or between two of its job: with one more or less in flight, the sum would differ by 25 %.
    assert small.latency_s + small.turnaround_s == pytest.approx(4 / small.iops, rel=0.12)
    streams = {"access": SEQUENTIAL, "block_bytes": STREAM_BYTES, "queue_depth": 4, "read_fraction": read_fraction}
    large = measure(*device, **streams, operations=SECONDS * BANDWIDTH // STREAM_BYTES)
    assert large.bandwidth < HIGHEST_BANDWIDTH


def test_limits_can_be_changed_while_a_device_is_open() -> None:
    """One read at a time: a limit is a lower bound of the time, whatever else the machine does."""
    burst = Limits(bandwidth=BANDWIDTH, burst_bandwidth=4 * BANDWIDTH, burst_length_s=2)
    with throttled_devices(burst, size_bytes=MIB) as [device]:
        reader = os.open(device.path, os.O_RDONLY | os.O_DIRECT)
        try:
            device.change(Limits(iops=20))
            begin, page = time.monotonic(), mmap.mmap(-1, 4096)
            for block in range(22):
                os.preadv(reader, [page], block * 4096)
            assert time.monotonic() - begin > 0.9, "2 reads are the burst of a tenth of a second"
            with pytest.raises(LabError, match="refused"):
                device._command("no-such-command")
        finally:
            os.close(reader)


def test_data_written_with_many_ios_in_flight_is_read_back(tmp_path: Path) -> None:
    """The daemon alone does not guarantee that: see `ThrottledDevice`."""
    with throttled_devices(Limits(iops=2000), size_bytes=64 * MIB) as devices:
        for block_bytes, operations in (4096, 2000), (2 * MIB, 100):
            measure(
                real_engine(),
                devices[0].path,
                block_bytes=block_bytes,
                queue_depth=32,
                read_fraction=0.3,
                operations=operations,
                layout="always",
                verify={"when": "after", "journal_directory": str(tmp_path)},
            )


def test_a_device_that_fails_gives_errors_from_then_on() -> None:
    """Another device remains a target: nothing that is written to the failed one reaches it."""
    with throttled_devices(Limits(), count=2, size_bytes=MIB) as devices:
        assert devices[0].path.read_bytes() == bytes(MIB)
        devices[0].fail()
        assert open_target(str(devices[1].path)).name == str(devices[1].path)
        handle = os.open(devices[0].path, os.O_RDONLY | os.O_DIRECT)
        try:
            with pytest.raises(OSError, match="Input/output error"):
                os.readv(handle, [mmap.mmap(-1, 4096)])  # An anonymous mapping is aligned as direct I/O wants it.
        finally:
            os.close(handle)


@contextmanager
def held_by_a_command(*options: str) -> Iterator[tuple[psutil.Process, list[Path], list[psutil.Process]]]:
    """`iosonde lab device`, the devices that it printed, and the processes that it started."""
    command = [sys.executable, "-m", "iosonde", "lab", "device", "--size", "1MiB", *options]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as owner:
        try:
            assert owner.stdout is not None and owner.stderr is not None
            line = owner.stderr.readline()
            assert line.startswith("limit of each: "), line + owner.stderr.read()
            count = int(options[options.index("--count") + 1])
            paths = [Path(owner.stdout.readline().strip()) for _ in range(count)]
            process = psutil.Process(owner.pid)
            yield process, paths, process.children(recursive=True)
        finally:
            owner.kill()


def wait_until_gone(paths: list[Path], processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        attached = [path for path in paths if is_attached(path)]
        running = [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        if not attached and not running:
            return
        time.sleep(0.05)
    raise AssertionError(f"leftovers: {attached}, {running}")


def is_attached(path: Path) -> bool:
    return Path("/sys/block", path.name, "loop/backing_file").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_remains_however_the_owner_exits(how: signal.Signals) -> None:
    with held_by_a_command("--count", "2", "--iops", "100") as (owner, paths, children):
        assert all(path.is_block_device() and is_attached(path) for path in paths)
        assert len(children) == 2
        owner.send_signal(how)
        wait_until_gone(paths, children)
        assert owner.wait(300) == (-signal.SIGKILL if how == signal.SIGKILL else 0)
    assert "iosonde-lab" not in Path("/proc/self/mounts").read_text()


def test_signals_that_end_it_are_blocked_before_the_devices_are_printed() -> None:
    """The reader of the paths may send SIGTERM at once, and it must not kill then. The reader here is never ready."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    command = [sys.executable, "-m", "iosonde", "lab", "device", "--size", "1MiB"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.DEVNULL, env=environment) as owner:
        try:
            deadline = time.monotonic() + 300
            while not Path(f"/proc/{owner.pid}/syscall").read_text().startswith("1 0x1 "):  # write(1, ...)
                assert owner.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            status = Path(f"/proc/{owner.pid}/status").read_text()
            [blocked] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:")]
            assert all(blocked & 1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM))
        finally:
            owner.kill()
            os.close(reading)
            os.close(writing)


def test_a_killed_owner_leaves_no_device_even_while_it_is_written() -> None:
    with held_by_a_command("--count", "1", "--iops", "10") as (owner, paths, children):
        writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={paths[0]}", "bs=4k"], stderr=subprocess.DEVNULL)
        owner.kill()
        writer.wait(300)
        wait_until_gone(paths, children)


def test_a_command_runs_with_the_devices_and_hands_back_its_exit_code(iosonde_process: Iosonde) -> None:
    script = 'test -b "${IOSONDE_LAB_DEVICES#*,}" && echo "$IOSONDE_LAB_DEVICES"; exit 7'
    done = iosonde_process("lab", "device", "--size", "1MiB", "--count", "2", "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    paths = [Path(path) for path in done.stdout.strip().split(",")]
    assert len(paths) == 2
    wait_until_gone(paths, [])


@pytest.mark.parametrize(
    ("count", "size_bytes", "message"),
    [
        (0, MIB, "must be at least 1; got 0"),
        (1, 1000, "at least 1 MiB .* got 1000 bytes"),
        (1, 2 * MIB + 1, "a multiple of"),
        (64, 1 << 50, "no room for 64 x 1 PiB"),
    ],
)
def test_a_device_that_cannot_be_created_is_an_error(count: int, size_bytes: int, message: str) -> None:
    with pytest.raises(LabError, match=message), throttled_devices(Limits(), count=count, size_bytes=size_bytes):
        pass


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"iops": 0}, "must be at least 1"),
        ({"bandwidth": -1}, "must be at least 1"),
        ({"burst_bandwidth": 5}, "burst"),
        ({"bandwidth": 9, "burst_bandwidth": 5, "burst_length_s": 2}, "burst"),
        ({"bandwidth": 5, "burst_bandwidth": 9, "burst_length_s": 1}, "burst"),
    ],
)
def test_impossible_limits_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(LabError, match=message):
        Limits(**limits)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "`qemu-storage-daemon` is not installed"),
        ("echo 'no fuse here' >&2; exit 1", "did not start: no fuse here"),
    ],
)
def test_a_missing_or_broken_daemon_is_an_error(
    script: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if script:
        (tmp_path / "qemu-storage-daemon").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "qemu-storage-daemon").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    else:
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(LabError, match=message), throttled_devices(Limits(), size_bytes=MIB):
        pass


def test_mistakes_on_the_command_line_are_distinguished(iosonde: Iosonde) -> None:
    assert "is not a unit of size" in iosonde("lab", "device", "--size", "5XB").stderr
    assert "is not a unit of size" in iosonde("lab", "device", "--bandwidth", "5XB/s").stderr
    assert iosonde("lab", "device", "--iops", "0").returncode == 2
    done = iosonde("lab", "device", "--size", "1MiB", "--", "/no/such/program")
    assert "cannot run `/no/such/program`" in done.stderr


DEEP = """
name = "deep"
title = "Many I/Os in flight on a slow device"
question = "Whose are they?"
repeats = 1

[measurement]
access = "sequential"
layout = "never"
block_size = "512KiB"
queue_depth = 32
read_fraction = 0.5
span = "64MiB"
ramp = "300ms"
limit_bytes = "48MiB"
duration = "10min"

[[parts]]
name = "main"

[profiles.standard]
"""


def test_what_is_in_flight_when_the_measurement_starts_is_not_of_another_process(tmp_path: Path) -> None:
    """16 MiB, a third of what the device moves: the kernel counts them for the engine at submission."""
    with throttled_devices(Limits(bandwidth=BANDWIDTH), size_bytes=64 * MIB) as [device]:
        plan = expand(parse(DEEP), open_target(str(device.path)))
        done = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device.path),)))
    [record] = done.records()
    assert record.failure is None
    assert record.own_io
    assert record.own_io["version"] in (1, 2)
    [moved] = record.own_io["measure"]
    assert moved["read_bytes"] + moved["write_bytes"] > 20 * MIB
    # Less than what was in flight: tools in other tests read a little of every block device.
    assert done.runs["foreign_write_share"].to_list() == [0.0]
    assert moved["read_bytes"] - moved["own_read_bytes"] < 4 * MIB
