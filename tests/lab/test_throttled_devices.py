"""Devices of exactly known performance: they hold their rate, and nothing of them stays."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import CHECKOUT, Iosonde
from guest_sessions import study

from iosonde.errors import LabError
from iosonde.execution.session import execute
from iosonde.lab import Limits, ThrottledDevice, throttled_devices
from iosonde.metrics.metrics import run_metrics
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety.guard import Consent

MIB = 1 << 20
IOPS = 100
BANDWIDTH = 10_000_000
"""Low enough for a tenth of a CPU."""
STREAM_BYTES = 512 << 10
SECONDS = 3

pytestmark = pytest.mark.usefixtures("host_devices")


@pytest.fixture(scope="module")
def throttled(host_devices: None) -> Iterator[ThrottledDevice]:
    with throttled_devices(Limits(iops=IOPS, bandwidth=BANDWIDTH), size_bytes=64 * MIB) as devices:
        yield devices[0]


def measured(device: Path, place: Path, **measurement: Any) -> ResultSet:
    """A complete run, which ends with its last I/O."""
    load = {"access": "random", "span": "64MiB", "ramp": 0, "layout": "never", "duration": "10min", **measurement}
    plan = expand(study(load), open_target(str(device)))
    results = execute(plan, place, consent=Consent(destroy=(str(device),)))
    assert [record.failure for record in results.records()] == [None]
    return results


@pytest.mark.parametrize("read_fraction", [1.0, 0.0], ids=["reads", "writes"])
def test_a_device_does_no_more_than_it_is_held_to(
    throttled: ThrottledDevice, tmp_path: Path, read_fraction: float
) -> None:
    """Whatever else the machine does: a burst is what the limit allows in 0.1 s, and I/Os in flight."""
    load = {"queue_depth": 4, "read_fraction": read_fraction}
    small = {"block_size": "4KiB", "limit_operations": SECONDS * IOPS}
    large = {"block_size": "512KiB", "limit_operations": SECONDS * BANDWIDTH // STREAM_BYTES, "access": "sequential"}
    for name, given, limit, burst in (
        ("iops", small, IOPS, 0.1 * IOPS + 2),
        ("bandwidth", large, BANDWIDTH, 0.1 * BANDWIDTH + 2 * STREAM_BYTES),
    ):
        table = run_metrics(measured(throttled.path, tmp_path / name, **load, **given))
        [reached] = table.filter(metric=name, operation="all")["value"]
        assert 0 < reached < limit + burst / SECONDS


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
    load = {"queue_depth": 32, "read_fraction": 0.3, "layout": "always", "verify": "after", "span": "32MiB"}
    with throttled_devices(Limits(iops=2000), size_bytes=64 * MIB) as [device]:
        for size, count in ("4KiB", 2000), ("2MiB", 100):
            results = measured(device.path, tmp_path / size, **load, block_size=size, limit_operations=count)
            [record] = results.records()
            assert record.result and record.result["verification"]["checked_bytes"] > 0
            assert not any(record.result["verification"]["faults"].values())


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
    while attached(paths) or [
        each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE
    ]:
        assert time.monotonic() < deadline, f"leftovers: {attached(paths)}, {processes}"
        time.sleep(0.05)


def attached(paths: list[Path]) -> list[Path]:
    return [path for path in paths if Path("/sys/block", path.name, "loop/backing_file").exists()]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_remains_however_the_owner_exits(how: signal.Signals) -> None:
    """After SIGKILL even while a device is written."""
    with held_by_a_command("--count", "2", "--iops", "100") as (owner, paths, children):
        assert attached(paths) == paths
        assert len(children) == 2
        write = ["dd", "if=/dev/zero", f"of={paths[0]}", "bs=4k"]
        writer = subprocess.Popen(write if how == signal.SIGKILL else ["true"], stderr=subprocess.DEVNULL)
        owner.send_signal(how)
        writer.wait(300)
        wait_until_gone(paths, children)
        assert owner.wait(300) == (-signal.SIGKILL if how == signal.SIGKILL else 0)
    assert "iosonde-lab" not in Path("/proc/self/mounts").read_text()


def test_a_command_runs_with_the_devices_and_returns_its_exit_code(iosonde_process: Iosonde) -> None:
    script = 'test -b "${IOSONDE_LAB_DEVICES#*,}" && echo "$IOSONDE_LAB_DEVICES"; exit 7'
    done = iosonde_process("lab", "device", "--size", "1MiB", "--count", "2", "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    paths = [Path(path) for path in done.stdout.strip().split(",")]
    assert len(paths) == 2
    wait_until_gone(paths, [])
    done = iosonde_process("lab", "device", "--size", "1MiB", "--", "/no/such/program")
    assert "cannot run `/no/such/program`" in done.stderr


@pytest.mark.parametrize(
    ("limits", "size", "message"),
    [
        ({}, {"count": 0, "size_bytes": MIB}, "must be at least 1; got 0"),
        ({}, {"size_bytes": 1000}, "at least 1 MiB .* got 1000 bytes"),
        ({}, {"size_bytes": 2 * MIB + 1}, "a multiple of"),
        ({}, {"count": 64, "size_bytes": 1 << 50}, "no room for 64 x 1 PiB"),
        ({"iops": 0}, {}, "must be at least 1"),
        ({"burst_bandwidth": 5}, {}, "burst"),
        ({"bandwidth": 9, "burst_bandwidth": 5, "burst_length_s": 2}, {}, "burst"),
        ({"bandwidth": 5, "burst_bandwidth": 9, "burst_length_s": 1}, {}, "burst"),
    ],
)
def test_a_device_that_cannot_be_created_is_an_error(
    limits: dict[str, int], size: dict[str, int], message: str
) -> None:
    with pytest.raises(LabError, match=message), throttled_devices(Limits(**limits), **size):
        pass


def test_a_broken_daemon_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "qemu-storage-daemon").write_text("#!/bin/sh\necho 'no fuse here' >&2; exit 1\n")
    (tmp_path / "qemu-storage-daemon").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(LabError, match="did not start: no fuse here"), throttled_devices(Limits(), size_bytes=MIB):
        pass


def test_what_is_in_flight_when_the_measurement_starts_is_not_of_another_process(tmp_path: Path) -> None:
    """16 MiB, a third of what the device moves: the kernel counts them for the engine at submission."""
    with throttled_devices(Limits(bandwidth=BANDWIDTH), size_bytes=64 * MIB) as [device]:
        load = {"access": "sequential", "block_size": "512KiB", "queue_depth": 32, "read_fraction": 0.5}
        done = measured(device.path, tmp_path / "set", **{**load, "ramp": "300ms", "limit_bytes": "48MiB"})
    [record] = done.records()
    assert record.own_io
    assert record.own_io["version"] in (1, 2)
    [moved] = record.own_io["measure"]
    assert moved["read_bytes"] + moved["write_bytes"] > 20 * MIB
    # Less than what was in flight: tools in other tests read a little of every block device.
    assert done.runs["foreign_write_share"].to_list() == [0.0]
    assert moved["read_bytes"] - moved["own_read_bytes"] < 4 * MIB
