"""A study on several hosts: processes on this machine, each a session of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import many_hosts_plans
import pytest
from hosts_in_namespaces import await_
from many_hosts_plans import STUDY, any_skew
from tls_scheduler import configuration, scheduler, variables

from iosonde.errors import IosondeError
from iosonde.execution import execute, resume
from iosonde.execution.carrier import HostOptions
from iosonde.execution.session import cleanup
from iosonde.features.many_hosts import relay
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.results.server_reading import ServerReading
from iosonde.storage.safety import journal

pytestmark = pytest.mark.system

SECOND = 10**9


def planned(place: Path, *, duration: str = "1s", **measurement: Any) -> Plan:
    return many_hosts_plans.planned(
        place / "data", {"read_fraction": [0.5]}, io_mode="buffered", ramp="0s", interval="100ms", duration=duration,
        **measurement,
    )  # fmt: skip


def endless_first(place: Path) -> Plan:
    """Two runs, of which the first does not end before something happens to it, however long that takes."""
    second = {"name": "second", "factors": {"read_fraction": [0.5]}, "measurement": {"duration": "1s"}}
    return planned(
        place, repeats=1, shuffle=False, part={"measurement": {"duration": "1h"}}, further=second, arrival="constant",
        rate=100,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory as target; nothing of this test may be left on it, in the journal, or running."""
    any_skew(monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("IOSONDE_TEST", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield tmp_path
    assert not processes(tmp_path)
    assert list((tmp_path / "temporary").iterdir()) == []


def processes(place: Path) -> dict[int, str]:
    """Worker, agents and engines that this test started, by process number.

    The server of a live page is none of them: it answers its last browser for some seconds, and then ends.
    """
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            mark = f"IOSONDE_TEST={place}".encode()
            if (
                entry.name.isdecimal()
                and int(entry.name) != os.getpid()
                and mark in (entry / "environ").read_bytes().split(b"\0")
            ):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return {pid: command for pid, command in found.items() if "iosonde.live.server" not in command}


def of(place: Path, what: str) -> list[int]:
    """Process numbers of workers (`many_hosts.worker`), agents (`many_hosts.agent`) or engines, in order of start."""
    return sorted(pid for pid, command in processes(place).items() if what in command)


def local(count: int) -> HostOptions:
    return HostOptions(hosts=f"local:{count}")


@contextlib.contextmanager
def once_measuring(place: Path, what: str, number: signal.Signals) -> Iterator[None]:
    """Send a signal to the second worker, agent or engine once both engines exist."""

    def act() -> None:
        await_(lambda: len(of(place, "--stop-at-eof")) == 2)
        os.kill(of(place, what)[-1], number)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_host_that_does_not_answer_fails_the_run_and_ends_the_study(place: Path) -> None:
    with (
        once_measuring(place, "many_hosts.worker", signal.SIGSTOP),
        pytest.raises(IosondeError, match=r"host `host\d` was lost"),
    ):
        execute(planned(place, duration="1h", arrival="constant", rate=100), place / "set", hosts=local(2))
    assert not processes(place), "the other host has stopped too"
    [record] = ResultSet.open(place / "set").records()
    assert record.failure and record.failure.code == "host_lost"
    assert "no answer for" in record.failure.message


def test_a_study_continues_without_a_lost_host_if_it_is_asked_to(place: Path) -> None:
    with once_measuring(place, "many_hosts.agent", signal.SIGSTOP):
        found = execute(endless_first(place), place / "set", hosts=replace(local(2), continue_without_lost=True))
    lost, complete = found.records()
    assert lost.failure and lost.failure.code == "host_lost"
    assert "its agent does not report any more" in lost.failure.message
    part = complete.of(Hosts)
    assert part and len(part.shares) == 1
    [warning] = [each for each in complete.warnings if each.code == "lost_hosts"]
    assert warning.message.startswith("1 of 2 hosts took part: host `host")
    assert str(found), "a report"


def test_a_study_that_lost_a_host_is_resumed(place: Path) -> None:
    with (
        once_measuring(place, "many_hosts.worker", signal.SIGKILL),
        pytest.raises(IosondeError, match=r"host `host\d` was lost"),
    ):
        execute(endless_first(place), place / "set", hosts=local(2))
    assert not processes(place), "the other host has stopped too"
    resumed = resume(place / "set", hosts=local(2))
    assert [record.outcome for record in resumed.records()] == ["failed", "complete"]
    assert list((place / "data").iterdir()) == [], "also what the lost host had not removed"


@pytest.mark.needs("root", "loop devices")
def test_setups_of_a_killed_host_are_removed_by_cleanup(place: Path) -> None:
    mounted = planned(
        place, duration="1h", arrival="constant", rate=100, repeats=1, file_system="ext4", setup_size="64MiB"
    )
    with once_measuring(place, "many_hosts.agent", signal.SIGKILL), pytest.raises(IosondeError, match="status -9"):
        execute(mounted, place / "set", hosts=local(2))
    assert {"mount", "loop device"} <= {entry.what for entry in journal.entries()}
    cleaned = cleanup(local(2))
    assert {each["host"] for each in cleaned} == {"host0"}, "hosts of one machine have one journal"
    assert not any(each["failed"] for each in cleaned)
    assert list(journal.entries()) == []
    assert list((place / "data").iterdir()) == []


def test_a_run_that_fails_on_one_host_has_failed_and_the_study_continues(place: Path) -> None:
    with once_measuring(place, "--stop-at-eof", signal.SIGKILL):
        found = execute(endless_first(place), place / "set", hosts=local(2))
    failed, complete = found.records()
    assert failed.failure and failed.failure.code == "killed"
    assert failed.failure.message.startswith("on host `host")
    assert complete.outcome == "complete"
    assert sorted(len(host.records()) for host in found.hosts()) == [1, 2], "the other one discarded its part"


@contextlib.contextmanager
def command(place: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`iosonde run` on two hosts, which both measure."""
    (place / "study.toml").write_text(STUDY.format(duration="1h", repeats=2))
    words = ["run", str(place / "study.toml"), "--profile", "quick", "--target", str(place / "data")]
    words += ["--output", str(place / "set"), "--hosts", "local:2", *options]
    process = subprocess.Popen([sys.executable, "-m", "iosonde", *words], stderr=subprocess.PIPE)
    try:
        await_(lambda: process.poll() is not None or len(of(place, "--stop-at-eof")) == 2)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def test_ctrl_c_stops_all_hosts(place: Path) -> None:
    with command(place, "--live") as process:
        assert process.stderr
        page = next(line for line in process.stderr if line.startswith(b"Live page:")).decode().split()[-1]
        await_rate(page, process)
        process.send_signal(signal.SIGINT)
        output = process.stderr.read().decode()
        assert process.wait() == 130, output
        assert f"iosonde resume {place / 'set'} --hosts HOSTS" in output
    assert not processes(place)
    assert list((place / "data").iterdir()) == []
    assert ResultSet.open(place / "set").records() == []


def await_rate(page: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the live page shows the rate of both hosts."""
    while process.poll() is None:
        with urllib.request.urlopen(f"{page}state") as answer:
            state = json.load(answer)
        if any(rate > 0 for _, rate, _ in state["points"]):
            return
        time.sleep(0.1)
    pytest.fail("the study ended before the page showed a rate")


def test_without_its_coordinator_no_host_continues(place: Path) -> None:
    with command(place) as process:
        process.kill()
        process.wait()
        await_(lambda: not processes(place))
    assert not processes(place)
    assert list((place / "data").iterdir()) == [], "each host has removed its files"


def test_a_host_that_refuses_is_named(place: Path) -> None:
    plan = planned(place)
    ResultSet.create(place / "set", plan.model_copy(update={"hosts": ["host0", "host1"]}))
    ResultSet.create(place / "set" / "hosts" / "host1", planned(place))
    with pytest.raises(IosondeError, match=r"on host `host1`: .* must be of the same study"):
        resume(place / "set", hosts=local(2))
    with pytest.raises(IosondeError, match="started on host0, host1; got host0, host1, host2"):
        resume(place / "set", hosts=local(3))
    with pytest.raises(IosondeError, match="several hosts: host0, host1"):
        resume(place / "set")


def test_a_running_scheduler_is_used(place: Path) -> None:
    settings = configuration(place / "certificates")
    with scheduler(settings, place) as cluster:
        worker = [sys.executable, "-m", "iosonde.features.many_hosts.worker", cluster.scheduler_address]
        workers = [
            subprocess.Popen([*worker, name, "--role", role], env={**os.environ, **variables(settings)})
            for name, role in (("north", "client"), ("south", "client"), ("nas", "server"))
        ]
        try:
            await_(lambda: len(cluster.scheduler_info["workers"]) == 3 or any(each.poll() for each in workers))
            found = execute(
                planned(place, duration="5s", repeats=1),
                place / "set",
                hosts=HostOptions(hosts=cluster.scheduler_address),
            )
            assert found.plan.hosts == ["north", "south"]
            [record] = found.records()
            assert record.outcome == "complete"
            reading = record.of(ServerReading)
            assert reading and [server.host for server in reading.servers] == ["nas"]
            assert 0 < (reading.servers[0].grown("time_ns") or 0) <= 5 * SECOND, "within the measurement"
            assert not of(place, "many_hosts.agent"), "the agents have ended, the workers have not"
            assert len(of(place, "many_hosts.worker")) == 3
        finally:
            for process in workers:
                process.terminate()
                process.wait()


def test_an_agent_without_a_coordinator_ends(place: Path) -> None:
    """A scheduler of the user outlives a coordinator that was killed, and a worker may hang."""

    async def abandoned() -> bool:
        agent = await relay.Agent.start(0.1)
        await agent.ended()
        return agent.is_running

    assert not asyncio.run(abandoned())
