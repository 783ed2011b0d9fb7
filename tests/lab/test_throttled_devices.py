"""Devices of exactly known performance: they hold their rate, and nothing of them stays."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import CHECKOUT, Iosonde
from engines import real_engine
from lab_load import SEQUENTIAL, STREAM_BYTES, Measured, measure
from namespaces import private_mounts
from needs import BTRFS

from iosonde.errors import LabError
from iosonde.execution import execute
from iosonde.features.sustained_load.lasting_drop import lasting_drops
from iosonde.lab import Limits, ThrottledDevice, device, throttled_devices
from iosonde.metrics.facts import Facts
from iosonde.planning import expand, load
from iosonde.storage import open_target
from iosonde.storage.safety.consent import Consent

MIB = 1 << 20
IOPS = 100
BANDWIDTH = 10_000_000
"""Low enough for a tenth of a CPU."""
SECONDS = 5
"""Of I/O in a run that ends with its last one: a pause of the machine makes it longer, and leaves the other seconds as they were."""

pytestmark = pytest.mark.usefixtures("host_devices")


@pytest.fixture(scope="module")
def throttled(host_devices: None) -> Iterator[ThrottledDevice]:
    with throttled_devices(Limits(iops=IOPS, bandwidth=BANDWIDTH), size_bytes=64 * MIB) as devices:
        yield devices[0]


def counted(operations: int) -> dict[str, Any]:
    """A run that ends with its last I/O."""
    return {"ramp_s": 0, "seconds": 120, "operations": operations}


def is_held_to(mean: float, best: float, limit: float) -> bool:
    """A limit is never exceeded by more than its burst, and nearly reached in the best second: others may use the CPU.

    The burst is what the limit allows in 0.1 s: 2 % of a run of `SECONDS`.
    """
    return mean < 1.04 * limit and best > 0.75 * limit


@pytest.mark.parametrize("read_fraction", [1.0, 0.0], ids=["reads", "writes"])
def test_a_device_does_the_iops_that_it_is_held_to(throttled: ThrottledDevice, read_fraction: float) -> None:
    measured = measure(
        real_engine(), throttled.path, queue_depth=4, read_fraction=read_fraction, **counted(SECONDS * IOPS)
    )
    assert is_held_to(measured.iops, measured.best_iops, IOPS), measured


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


@pytest.mark.parametrize("read_fraction", [1.0, 0.0], ids=["reads", "writes"])
def test_a_device_moves_the_bytes_that_it_is_held_to(throttled: ThrottledDevice, read_fraction: float) -> None:
    measured = stream(throttled.path, read_fraction=read_fraction)
    assert is_held_to(measured.bandwidth, measured.best_bandwidth, BANDWIDTH), measured


@pytest.mark.parametrize("queue_depth", [2, 4, 8])
def test_latency_under_load_follows_littles_law(throttled: ThrottledDevice, queue_depth: int) -> None:
    # Of a run that ends at a time, the I/Os in flight then have no latency, and they may wait long where other processes
    # use the CPU.
    measured = measure(real_engine(), throttled.path, queue_depth=queue_depth, **counted(SECONDS * IOPS))
    assert is_held_to(measured.iops, measured.best_iops, IOPS), measured
    # One I/O more or less in flight would be 12 % at least.
    assert measured.latency_s + measured.turnaround_s == pytest.approx(queue_depth / measured.iops, rel=0.06)


def test_data_written_with_many_ios_in_flight_is_read_back(tmp_path: Path) -> None:
    """The daemon alone does not guarantee that: see `ThrottledDevice`."""
    with throttled_devices(Limits(iops=2000), size_bytes=64 * MIB) as devices:
        for block_bytes, operations in (4096, 4000), (2 * MIB, 400):
            measure(
                real_engine(),
                devices[0].path,
                block_bytes=block_bytes,
                queue_depth=32,
                read_fraction=0.3,
                **counted(operations),
                layout="always",
                verify={"when": "after", "journal_directory": str(tmp_path)},
            )


@BTRFS
@pytest.mark.parametrize("read_fraction", [1.0, 0.0], ids=["reads", "writes"])
def test_btrfs_raid0_over_four_devices_moves_four_times_as_much(read_fraction: float) -> None:
    measured = striped(count=4, read_fraction=read_fraction)
    assert is_held_to(measured.bandwidth, measured.best_bandwidth, 4 * BANDWIDTH), measured


def striped(count: int, read_fraction: float) -> Measured:
    """Stream a file on btrfs, which is mounted in a mount namespace of its own: however this ends, nothing stays mounted."""
    script = 'mkfs.btrfs -q -d raid0 -m raid0 "$@" >/dev/null && mount -o nodatacow "$1" /mnt && exec '
    program, blocks = Path(__file__).with_name("stream_file.py"), SECONDS * count * BANDWIDTH // STREAM_BYTES
    inside = f"{sys.executable} {program} {real_engine()} /mnt/data {read_fraction} {blocks}"
    with throttled_devices(Limits(bandwidth=BANDWIDTH), count=count, size_bytes=256 * MIB) as devices:
        done = subprocess.run(
            private_mounts(script + inside, *(each.path for each in devices)),
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return Measured(**json.loads(done.stdout))


def stream(path: Path, read_fraction: float) -> Measured:
    return measure(
        real_engine(),
        path,
        access=SEQUENTIAL,
        block_bytes=STREAM_BYTES,
        queue_depth=4,
        read_fraction=read_fraction,
        **counted(SECONDS * BANDWIDTH // STREAM_BYTES),
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


def test_a_device_in_use_at_the_end_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.storage.setups.loop_devices._DETACH_S", 0.1)
    with pytest.raises(LabError, match="is still in use"), throttled_devices(Limits(), size_bytes=MIB) as devices:
        other = devices[0].path.open("rb")
    other.close()
    wait_until_gone([devices[0].path], [])


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


@pytest.mark.parametrize("limits", [{"iops": 0}, {"bandwidth": -1}])
def test_a_limit_below_one_is_an_error(limits: dict[str, int]) -> None:
    with pytest.raises(LabError, match="must be at least 1"):
        Limits(**limits)


def refuse(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    changes: dict[str, Callable[[], None]] = {
        "needs root": lambda: monkeypatch.setattr(os, "geteuid", lambda: 1000),
        "has no FUSE": lambda: monkeypatch.setattr(device, "FUSE", Path("/dev/no-such-device")),
        "`qemu-storage-daemon` is not installed": lambda: monkeypatch.setattr("shutil.which", lambda *_, **__: None),
    }
    changes[what]()


@pytest.mark.parametrize("what", ["needs root", "has no FUSE", "`qemu-storage-daemon` is not installed"])
def test_what_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    refuse(monkeypatch, what)
    with pytest.raises(LabError, match=what) as raised, throttled_devices(Limits(), size_bytes=MIB):
        pass
    assert raised.value.hint


def test_a_daemon_without_fuse_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "qemu-storage-daemon"
    fake.write_text("#!/bin/sh\necho 'Parameter type does not accept value fuse' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with (
        pytest.raises(LabError, match="did not start: Parameter type does not accept value fuse"),
        throttled_devices(Limits(), size_bytes=MIB),
    ):
        pass


def test_mistakes_on_the_command_line_are_distinguished(iosonde: Iosonde) -> None:
    assert "is not a unit of size" in iosonde("lab", "device", "--size", "5XB").stderr
    assert "is not a unit of size" in iosonde("lab", "device", "--bandwidth", "5XB/s").stderr
    assert iosonde("lab", "device", "--iops", "0").returncode == 2
    assert (
        "cannot run `/no/such/program`" in iosonde("lab", "device", "--size", "1MiB", "--", "/no/such/program").stderr
    )


@pytest.mark.alone
def test_exhausted_burst_credit_lowers_throughput_and_a_short_run_reports_the_time(tmp_path: Path) -> None:
    """Four times the rate until the credit is gone: 2.7 s and 107 MB, from rest."""
    limits = Limits(bandwidth=BANDWIDTH, burst_bandwidth=4 * BANDWIDTH, burst_length_s=2)
    assert limits.burst_bytes == pytest.approx(106.7e6, rel=0.01)
    (tmp_path / "falling.toml").write_text(FALLING)
    with throttled_devices(limits, size_bytes=256 * MIB) as [device]:
        target = open_target(str(device.path))
        plan = expand(load(str(tmp_path / "falling.toml")), target, profile="quick")
        result_set = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device.path),)))
    [record] = result_set.records()
    assert record.verdict, record.failure
    if {"engine_stalled", "cpu_contention", "steal_time"} & {warning.code for warning in record.warnings}:
        assert record.verdict.kind != "device-limited"  # In a pause, credit comes back.
        return
    [drop] = lasting_drops(Facts(result_set))
    credit = limits.burst_bytes * (1 - 1 / 4)
    assert drop.moved_bytes == pytest.approx(credit + BANDWIDTH * drop.at_s, rel=0.15), "more if CPU time was short"
    assert drop.after == pytest.approx(BANDWIDTH, rel=0.1)
    assert 0.2 < drop.fraction < 0.6


FALLING = """
name = "falling"
title = "A device that falls"
question = "When?"
repeats = 1

[measurement]
access = "sequential"
block_size = "128KiB"
queue_depth = 4
read_fraction = 0.0
span = "200MiB"
layout = "never"
ramp = 0
duration = "6s"
interval = "200ms"

[[parts]]
name = "main"

[profiles.quick]
"""


DEEP = """
name = "deep"
title = "Many I/Os in flight on a slow device"
question = "Whose are they?"
repeats = 1

[measurement]
access = "sequential"
block_size = "512KiB"
queue_depth = 32
read_fraction = 0.5
span = "64MiB"
layout = "never"
ramp = "300ms"
limit_bytes = "48MiB"
duration = "120s"

[[parts]]
name = "main"

[profiles.quick]
"""


def test_what_is_in_flight_when_the_measurement_starts_is_not_of_another_process(tmp_path: Path) -> None:
    """16 MiB, a third of what the device moves: the kernel counts them for the engine at submission."""
    (tmp_path / "deep.toml").write_text(DEEP)
    with throttled_devices(Limits(bandwidth=BANDWIDTH), size_bytes=64 * MIB) as [device]:
        plan = expand(load(str(tmp_path / "deep.toml")), open_target(str(device.path)), profile="quick")
        done = execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device.path),)))
    [record] = done.records()
    assert record.failure is None
    assert record.own_io and record.own_io["version"] in (1, 2), record.own_io
    [moved] = record.own_io["measure"]
    assert moved["read_bytes"] + moved["write_bytes"] > 20 * MIB
    # Less than what was in flight: tools in other tests read a little of every block device.
    assert done.runs["foreign_write_share"].to_list() == [0.0]
    assert moved["read_bytes"] - moved["own_read_bytes"] < 4 * MIB


def test_an_invalid_burst_is_refused() -> None:
    for limits in (
        {"burst_bandwidth": 5},
        {"bandwidth": 9, "burst_bandwidth": 5, "burst_length_s": 2},
        {"bandwidth": 5, "burst_bandwidth": 9, "burst_length_s": 1},
    ):
        with pytest.raises(LabError, match="burst"):
            Limits(**limits)
