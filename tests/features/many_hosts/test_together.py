"""A study on several hosts that are processes on this machine, each a session of its own; and schedulers with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dask
import pytest
from cryptography import x509
from hosts_in_namespaces import await_
from many_hosts_plans import LOCAL, STUDY, any_skew, measured
from strangers import CLOSED, answers_of_dask, listening
from tls_scheduler import configuration, scheduler, variables

from iosonde.errors import IosondeError, TargetError
from iosonde.execution.session import HostOptions, carrier, execute, resume
from iosonde.features.many_hosts import tls
from iosonde.features.many_hosts.hosts import connected
from iosonde.features.many_hosts.record import Hosts
from iosonde.features.many_hosts.worker import Agent
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.results.schema import ServerReading
from iosonde.storage.safety import journal

pytestmark = pytest.mark.system
READS = {"read_fraction": [0.5]}


def endless_first(place: Path) -> Plan:
    """Two runs, of which the first does not end before something happens to it, however long that takes."""
    second = {"name": "second", "factors": {"read_fraction": [0.5]}, "measurement": {"duration": "1s"}}
    first = {"measurement": {"duration": "1h"}}
    return measured(place, READS, repeats=1, shuffle=False, part=first, further=second, arrival="constant", rate=100)


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
    """Worker, agents and engines that this test started, by process number."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdecimal() else []
            if entry.name != str(os.getpid()) and f"IOSONDE_TEST={place}".encode() in variables:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def of(place: Path, what: str) -> list[int]:
    """Process numbers of workers (`many_hosts.worker`), agents (`many_hosts.agent`) or engines, in order of start."""
    return sorted(pid for pid, command in processes(place).items() if what in command)


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


def test_a_host_that_does_not_answer_ends_the_study_which_is_resumed(place: Path) -> None:
    with (
        once_measuring(place, "many_hosts.worker", signal.SIGSTOP),
        pytest.raises(IosondeError, match=r"host `host\d` was lost"),
    ):
        execute(endless_first(place), place / "set", hosts=LOCAL)
    assert not processes(place), "the other host has stopped too"
    [record] = ResultSet.open(place / "set").records()
    assert record.failure and record.failure.code == "host_lost"
    assert "no answer for" in record.failure.message
    resumed = resume(place / "set", hosts=LOCAL)
    assert [record.outcome for record in resumed.records()] == ["failed", "complete"]
    assert list((place / "data").iterdir()) == [], "also what the lost host had not removed"


def test_a_study_continues_without_a_lost_host_if_it_is_asked_to(place: Path) -> None:
    with once_measuring(place, "many_hosts.agent", signal.SIGSTOP):
        found = execute(endless_first(place), place / "set", hosts=replace(LOCAL, continue_without_lost=True))
    lost, complete = found.records()
    assert lost.failure and lost.failure.code == "host_lost"
    assert "its agent does not report any more" in lost.failure.message
    part = complete.of(Hosts)
    assert part and len(part.shares) == 1
    [warning] = [each for each in complete.warnings if each.code == "lost_hosts"]
    assert warning.message.startswith("1 of 2 hosts took part: host `host")
    assert str(found), "a report"


@pytest.mark.needs("root", "loop devices")
def test_setups_of_a_killed_host_are_removed_by_cleanup(place: Path) -> None:
    mounted = measured(
        place, READS, duration="1h", arrival="constant", rate=100, repeats=1, file_system="ext4", setup_size="64MiB"
    )
    with once_measuring(place, "many_hosts.agent", signal.SIGKILL), pytest.raises(IosondeError, match="status -9"):
        execute(mounted, place / "set", hosts=LOCAL)
    assert {"mount", "loop device"} <= {entry.what for entry in journal.entries()}
    cleaned = carrier().cleanup(LOCAL)
    # The second host finds what was still in use when the first one looked.
    paths = [each["path"] for each in cleaned]
    assert len(set(paths)) == len(paths) > 0, "hosts of one machine have one journal"
    assert not any(each["failed"] for each in cleaned)
    assert list(journal.entries()) == []
    assert list((place / "data").iterdir()) == []


def test_a_run_that_fails_on_one_host_has_failed_and_the_study_continues(place: Path) -> None:
    with once_measuring(place, "--stop-at-eof", signal.SIGKILL):
        found = execute(endless_first(place), place / "set", hosts=LOCAL)
    failed, complete = found.records()
    assert failed.failure and failed.failure.code == "killed"
    assert failed.failure.message.startswith("on host `host")
    assert complete.outcome == "complete"
    assert sorted(len(host.records()) for host in found.hosts()) == [1, 2], "the other one discarded its part"


def test_without_its_coordinator_no_host_continues(place: Path) -> None:
    (place / "study.toml").write_text(STUDY.format(duration="1h", repeats=2))
    words = ["run", str(place / "study.toml"), "--profile", "quick", "--target", str(place / "data")]
    words += ["--output", str(place / "set"), "--hosts", "local:2"]
    with subprocess.Popen([sys.executable, "-m", "iosonde", *words], stderr=subprocess.DEVNULL) as process:
        await_(lambda: process.poll() is not None or len(of(place, "--stop-at-eof")) == 2)
        process.kill()
    await_(lambda: not processes(place))
    assert list((place / "data").iterdir()) == [], "each host has removed its files"


def test_a_host_that_refuses_is_named(place: Path) -> None:
    plan = measured(place, READS)
    ResultSet.create(place / "set", plan.model_copy(update={"hosts": ["host0", "host1"]}))
    ResultSet.create(place / "set" / "hosts" / "host1", measured(place, READS))
    with pytest.raises(IosondeError, match=r"on host `host1`: .* must be of the same study"):
        resume(place / "set", hosts=LOCAL)
    with pytest.raises(IosondeError, match="started on host0, host1; got host0, host1, host2"):
        resume(place / "set", hosts=HostOptions(hosts="local:3"))
    with pytest.raises(IosondeError, match="several hosts: host0, host1"):
        resume(place / "set")
    with pytest.raises(TargetError, match="the parameter `hosts` requires `--hosts`; the study `hosts` uses up to 2"):
        execute(measured(place, READS, hosts=2), place / "refused")
    assert not (place / "refused").exists()


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
            options = HostOptions(hosts=cluster.scheduler_address)
            found = execute(measured(place, READS, duration="5s", repeats=1), place / "set", hosts=options)
            assert found.plan.hosts == ["north", "south"]
            [record] = found.records()
            assert record.outcome == "complete"
            reading = record.of(ServerReading)
            assert reading and [server.host for server in reading.servers] == ["nas"]
            assert 0 < (reading.servers[0].grown("time_ns") or 0) <= 5 * 10**9, "within the measurement"
            assert not of(place, "many_hosts.agent"), "the agents have ended, the workers have not"
            assert len(of(place, "many_hosts.worker")) == 3
        finally:
            for process in workers:
                process.terminate()
                process.wait()


def test_an_agent_without_a_coordinator_ends(place: Path) -> None:
    """A scheduler of the user outlives a coordinator that was killed, and a worker may hang."""

    async def abandoned() -> None:
        agent = await Agent.start(0.1)
        while agent.is_running:
            await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(abandoned(), 120.0))


def worker(address: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """A worker that finds its certificate in variables of Dask's configuration."""
    command = [sys.executable, "-m", "iosonde.features.many_hosts.worker", address, "north"]
    return subprocess.Popen(command, env={**os.environ, **variables(settings)}, stderr=subprocess.PIPE)


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=pytest.mark.needs("IPv6"))])
def test_hosts_with_certificates_of_the_same_authority_are_used(tmp_path: Path, host: str) -> None:
    """And listen where they reach the scheduler, on no other address."""
    settings = configuration(tmp_path / "own")
    with scheduler(settings, tmp_path, host=host) as own, worker(own.scheduler_address, settings) as process:
        try:
            with dask.config.set(settings), connected(own.scheduler_address) as found:
                assert [each.name for each in found.hosts] == ["north"]
                assert found.hosts[0].address.startswith(f"tls://{host}:")
                [port] = [each.port for each in listening([process.pid]) if each.address == host.strip("[]")]
                assert len(listening([process.pid])) == 1
                address = f"{host}:{port}"
                assert answers_of_dask([address]) == {address: CLOSED}
                files = (tmp_path / "own/certificate.pem", tmp_path / "own/key.pem")
                assert answers_of_dask([address], certificate=files)[address]["with a certificate"] == "answered"
        finally:
            process.terminate()


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    own, other = configuration(tmp_path / "own"), configuration(tmp_path / "other")
    with scheduler(own, tmp_path) as running:
        address = running.scheduler_address
        with (
            dask.config.set(other),
            pytest.raises(TargetError, match=r"cannot connect to the Dask scheduler at `tls://.*certificate") as caught,
            connected(address),
        ):
            pass
        assert "the same authority" in caught.value.hint
        errors = _start_worker(other, address)
        assert f"error: cannot connect to the scheduler at `{address}`: " in errors and "certificate" in errors


def test_a_missing_certificate_and_a_scheduler_without_tls_are_named(tmp_path: Path) -> None:
    settings, other = configuration(tmp_path / "own"), configuration(tmp_path / "other")
    for role, run in (("client", _connect), ("worker", _start_worker)):
        message = run({**settings, f"distributed.comm.tls.{role}.cert": ""})
        assert f"requires the setting `distributed.comm.tls.{role}.cert` of Dask to name a file; got none" in message
    key = "distributed.comm.tls.client.key"
    message = _connect({**settings, key: other[key]})
    assert "the certificate and key of `distributed.comm.tls.client` cannot be used: " in message
    assert "`tcp://127.0.0.1:1` has no authentication" in _start_worker({}, "tcp://127.0.0.1:1")


def _connect(settings: dict[str, str]) -> str:
    with dask.config.set(settings), pytest.raises(TargetError) as caught, connected("tls://127.0.0.1:1"):
        pass
    return str(caught.value)


def _start_worker(settings: dict[str, str], address: str = "tls://127.0.0.1:1") -> str:
    with worker(address, settings) as process:
        assert process.stderr
        message = process.stderr.read().decode()
        assert process.wait() == 1
    return message


def test_the_certificate_of_a_session_is_valid_where_a_clock_is_behind() -> None:
    certificate = x509.load_pem_x509_certificate(tls.create()[0].encode())
    assert certificate.not_valid_before_utc < datetime.now(UTC) - tls.CLOCKS_DIFFER / 2
    assert certificate.not_valid_after_utc > datetime.now(UTC) + tls.VALID / 2
