"""Each verdict on a database server, provoked: by a slow device, contended rows, cheap commits, and a
client that gets little CPU time.

Servers, and clients that are not the subject, run with the highest priority, so that other work does not decide.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from engines import wrapped_engine
from servers.conftest import KINDS
from servers.test_runs import STUDY, alone
from tiers import skip_paused

from iosonde.execution import execute
from iosonde.lab import Limits, throttled_devices
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target
from iosonde.verdict import verdict

pytestmark = [pytest.mark.alone, pytest.mark.system, pytest.mark.needs("setpriv", "engine", "root")]

PAUSE_S = 0.5
"""Longest wait of a thread of the test, which has the highest priority, that is no pause of the machine."""
OTHERS = 0.2
"""Share of all CPU time that others may use while the server is the limit."""
IN_MEMORY = {
    "postgresql": 'postgresql = { shared_buffers = "256MB", max_connections = 40, fsync = false, synchronous_commit = "off" }',
    "mariadb": 'mariadb = { innodb_buffer_pool_size = "256M", innodb_log_file_size = "64M", innodb_flush_log_at_trx_commit = 0 }',
}  # fmt: skip
SYNCED = {
    "postgresql": 'postgresql = { shared_buffers = "16MB", max_connections = 40, max_wal_size = "64MB" }',
    "mariadb": 'mariadb = { innodb_buffer_pool_size = "32M", innodb_log_file_size = "8M" }',
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def urgent() -> Iterator[None]:
    """Server and client inherit the priority of the test."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    yield
    os.setpriority(os.PRIO_PROCESS, 0, before)


@contextmanager
def mounted(device: Path, directory: Path) -> Iterator[Path]:
    """An ext4 file system on a device, in a directory that servers can enter."""
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", device], check=True)
    subprocess.run(["mount", device, directory], check=True)
    try:
        directory.chmod(0o711)
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@contextmanager
def busy(cpu: int, *, processes: int) -> Iterator[None]:
    """Processes that use a CPU all the time."""
    with ExitStack() as stack:
        for _ in range(processes):
            command = ["taskset", "--cpu-list", str(cpu), sys.executable, "-c", "while True: pass"]
            burner = stack.enter_context(subprocess.Popen(command))
            stack.callback(burner.kill)
        yield


def measured(place: Path, output: Path, *measurement: str, workload: str = "commit") -> Record:
    text = STUDY.format(workload=workload, measurement="\n".join(measurement), factors="").replace('"1s"', '"1500ms"')
    text = text.replace('ramp = "0"', 'ramp = "500ms"')  # Threads that start late have not waited for anything before.
    execute(expand(parse(text, name="limits.toml"), open_target(str(place))), output)
    record = alone(list(ResultSet.open(output).records()))
    assert record.outcome == "complete", record.failure
    return record


@pytest.fixture(autouse=True)
def _other_load_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disturbances of the CPUs, by other machines, other processes, or because all of them are busy, have tests of their own."""
    of_cpus = (verdict._steal_time, verdict._engine_stalled, verdict._cpus_shared)
    rules = tuple(rule for rule in verdict._DISTURBANCES if rule not in of_cpus)
    monkeypatch.setattr(verdict, "_DISTURBANCES", rules)


Judge = Callable[[Record, str], None]


@pytest.fixture
def judge() -> Iterator[Judge]:
    """Asserts the kind of a verdict. While the machine is paused shares decide nothing, and beside others too few are large."""
    ended, gaps = threading.Event(), [0.0]

    def note() -> None:
        before = time.monotonic()
        while not ended.wait(0.05):
            now = time.monotonic()
            gaps.append(now - before)
            before = now

    def judged(record: Record, kind: str) -> None:
        assert record.verdict
        if max(gaps) > PAUSE_S:
            skip_paused(max(gaps))
        of_others = sum(record.verdict.evidence[name] or 0 for name in ("other_cpu_share", "steal_share"))
        is_beside = kind == "server-CPU-limited" and of_others > OTHERS
        assert record.verdict.kind in {kind, "undetermined" if is_beside else kind}, record.verdict

    thread = threading.Thread(target=note)
    thread.start()
    yield judged
    ended.set()
    thread.join()


@pytest.mark.needs("qemu-storage-daemon", "FUSE", "loop devices", "mkfs.ext4")
def test_commits_on_a_slow_device_are_device_limited(kind: str, place: Path, tmp_path: Path, judge: Judge) -> None:
    directory = place / "disk"
    directory.mkdir()
    with throttled_devices(Limits(iops=600), size_bytes=2 << 30) as [device], mounted(device.path, directory) as slow:
        record = measured(slow, tmp_path / "r", f'server = "{kind}"', "clients = 4", SYNCED[kind])
    directory.rmdir()
    judge(record, "device-limited")


def test_many_terminals_on_one_warehouse_are_lock_limited(
    kind: str, place: Path, tmp_path: Path, urgent: None, judge: Judge
) -> None:
    record = measured(
        place, tmp_path / "r", f'server = "{kind}"', "warehouses = 1", "terminals = 32", IN_MEMORY[kind],
        workload="tpcc",
    )  # fmt: skip
    judge(record, "lock-limited")


def test_commits_that_wait_for_nothing_are_limited_by_the_cpu_time_of_the_server(
    kind: str, place: Path, tmp_path: Path, urgent: None, judge: Judge
) -> None:
    record = measured(place, tmp_path / "r", f'server = "{kind}"', "clients = 8", IN_MEMORY[kind])
    judge(record, "server-CPU-limited")


@pytest.mark.needs("taskset")
def test_a_client_that_waits_for_its_cpu_is_the_limit(
    kind: str, place: Path, tmp_path: Path, urgent: None, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may use one CPU, which processes of higher priority use all the time; the server has the others.

    Four of them: beside one, the client ran so often that its connections waited for the server a quarter of the time.

    The engine is confined where it measures, and not where it prints what it can do.
    """
    usable = os.sched_getaffinity(0)
    cpu = min(usable)
    confine = f"renice --priority 0 --pid $$ && taskset --cpu-list --pid {cpu} $$"
    confined = wrapped_engine(tmp_path, f'if [ "$1" = --stop-at-eof ]; then {{ {confine}; }} >/dev/null; fi; exec')
    monkeypatch.setenv("IOSONDE_ENGINE", str(confined))
    os.sched_setaffinity(0, usable - {cpu})
    try:
        with busy(cpu, processes=4):
            record = measured(place, tmp_path / "r", f'server = "{kind}"', "clients = 4", IN_MEMORY[kind])
    finally:
        os.sched_setaffinity(0, usable)
    judge(record, "harness-limited")
