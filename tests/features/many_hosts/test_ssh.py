"""A study on hosts that OpenSSH reaches, in network namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from engines import real_engine
from hosts_in_namespaces import COORDINATOR, NamespaceHost, Network, await_, network
from many_hosts_plans import IOSONDE, STUDY
from strangers import CLOSED, Listening, answers_of_dask, listening, sharing_network

from iosonde.features.many_hosts.record import Hosts
from iosonde.results import ResultSet

pytestmark = [
    pytest.mark.system,
    *(pytest.mark.needs(each) for each in ("root", "ssh", "sshd", "ssh-keygen", "ip", "nsenter", "unshare")),
]

NAMES = ("north", "south", "east")
"""In an order of their own."""


def another_engine(place: Path) -> str:
    """The Python of a host whose engine is another one than that of the coordinator."""
    engine, script = place / "engine", place / "python"
    shutil.copy(real_engine(), engine)
    with engine.open("ab") as file:
        file.write(b"\0")
    script.write_text(f'#!/bin/sh\nIOSONDE_ENGINE={engine} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    place = tmp_path_factory.mktemp("ssh")
    with network(place / "network", NAMES) as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, hosts: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing of a test may be left on a host or here."""
    (tmp_path / "data").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    yield tmp_path
    await_(lambda: not any(host.processes() for host in hosts.hosts))
    assert list((tmp_path / "temporary").iterdir()) == []
    for host in hosts.hosts:
        assert list((host.directory / "temporary").iterdir()) == [], host.name
    assert list((tmp_path / "data").iterdir()) == []


def arguments(place: Path, hosts: Network, *, spec: str = "", duration: str = "1s", repeats: int = 1) -> list[str]:
    """Those of Python for a study."""
    (place / "study.toml").write_text(STUDY.format(duration=duration, repeats=repeats))
    study = [str(place / "study.toml"), "--profile", "quick", "--target", str(place / "data")]
    return ["-c", IOSONDE, "run", *study, "--output", str(place / "set"), "--hosts", spec or hosts.spec]


def listed(place: Path, hosts: Network, **changed: object) -> str:
    """The value of `--hosts` with one more host than the first, which has these values."""
    first, other = hosts.hosts[:2]
    values = {"name": other.name, "address": other.address, "python": sys.executable, **changed}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    file = place / "other.toml"
    file.write_text(f'[[hosts]]\nname = "{first.name}"\naddress = "{first.address}"\n[[hosts]]\n{lines}')
    return f"ssh:{file}"


def finished(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr
    return process.stderr.read().decode()


@contextlib.contextmanager
def measuring(place: Path, hosts: Network, spec: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A study of which the first run is in progress on two hosts, and does not end by itself."""
    own = arguments(place, hosts, spec=spec or listed(place, hosts), duration="1h")
    words = [*hosts.inside, sys.executable, *own]
    with subprocess.Popen(words, env=hosts.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            engines = [host.of for host in hosts.hosts[:2]]

            def is_measuring() -> bool:
                files = len([*(place / "data").iterdir()])
                return files == 2 if spec else all(of("--stop-at-eof") for of in engines)

            await_(lambda: process.poll() is not None or is_measuring())
            assert process.poll() is None, finished(process)
            yield process
        finally:
            process.kill()


def test_each_run_has_one_total_and_the_records_of_all_hosts(place: Path, hosts: Network) -> None:
    code, output = hosts.run(arguments(place, hosts, repeats=2))
    assert code == 0, output
    total = ResultSet.open(place / "set")
    assert [record.outcome for record in total.records()] == ["complete", "complete"]
    assert total.plan.hosts == list(NAMES)
    for record in total.records():
        part = record.of(Hosts)
        assert part and len({share.machine for share in part.shares}) == len(NAMES)
        for share in part.shares:
            # The clock of this machine, so the offset is within its error of 0.
            assert share.clock_bound_ns > 0 and abs(share.clock_offset_ns) <= share.clock_bound_ns
    for name in NAMES:
        assert len(ResultSet.open(place / "set" / "hosts" / name).records()) == 2


def test_hosts_over_ssh_refuse_strangers_and_end_on_an_interrupt(place: Path, hosts: Network) -> None:
    """A third host can reach all addresses, and nothing listens on any other."""
    with measuring(place, hosts) as process:
        for pid in {pid for host in hosts.hosts for pid in host.processes()} | {process.pid}:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/cmdline").read_bytes()
                assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
        sockets = sockets_of(process.pid)
        assert {each.address for each in sockets} == {COORDINATOR}
        for host in hosts.hosts[:2]:
            of_host = {each for each in sockets_of(host.of("many_hosts.worker")[0]) if each.port != 22}
            assert {each.address for each in of_host} == {host.address}
            sockets |= of_host
        assert len(sockets) == 3, "the scheduler and two workers"
        refuse(sockets, inside=hosts.hosts[2].inside)
        assert f"iosonde resume {place / 'set'}" in interrupted(process)
    assert not any(host.of("iosonde") for host in hosts.hosts), "workers end before their coordinator does"
    assert ResultSet.open(place / "set").records() == []


def test_hosts_of_this_machine_refuse_other_users(place: Path, hosts: Network) -> None:
    """They cannot be reached from another host."""
    with measuring(place, hosts, "local:2") as process:
        sockets = sockets_of(process.pid)
        assert {(each.kind, each.address) for each in sockets} == {("tcp", "127.0.0.1")}
        assert len(sockets) == 3, "the scheduler and two workers"
        refuse(sockets, inside=hosts.inside)
        beyond = [f"{COORDINATOR}:{each.port}" for each in sockets]
        absent = dict.fromkeys(CLOSED, "nothing listens")
        assert answers_of_dask(beyond, inside=hosts.hosts[0].inside) == dict.fromkeys(beyond, absent)
        interrupted(process)


def sockets_of(process: int) -> set[Listening]:
    """Addresses in its network namespace, in which only a study and SSH run."""
    return {each for each in listening(sharing_network(process)) if each.kind != "unix"}


def refuse(sockets: set[Listening], inside: Sequence[str]) -> None:
    addresses = [f"{each.address}:{each.port}" for each in sockets]
    assert answers_of_dask(addresses, inside=inside) == dict.fromkeys(addresses, CLOSED)


def interrupted(process: subprocess.Popen[bytes]) -> str:
    process.send_signal(signal.SIGINT)
    output = finished(process)
    assert process.wait() == 130
    return output


def test_a_scheduler_without_tls_answers_strangers(place: Path, hosts: Network) -> None:
    """So the questions of the tests above find what is open."""
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1:8786"]
    scheduler += ["--dashboard-address", "127.0.0.1:8787"]
    own = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen([*hosts.inside, *scheduler], env=own, stderr=subprocess.DEVNULL) as process:
        try:
            await_(lambda: len(sockets_of(process.pid)) == 2)
            answers = answers_of_dask(["127.0.0.1:8786", "127.0.0.1:8787"], inside=hosts.inside)
            assert answers["127.0.0.1:8786"]["in the clear"] == "answered"
            assert answers["127.0.0.1:8787"]["over HTTP"] == "answered"
        finally:
            process.terminate()


def test_a_lost_connection_ends_the_study_and_what_it_started(place: Path, hosts: Network) -> None:
    """A host without a network ends its part by itself."""
    host = hosts.hosts[1]
    with measuring(place, hosts) as process:
        hosts.link(host, "down")
        output = finished(process)
        assert process.wait() == 1
    try:
        assert f"host `{host.name}` was lost: " in output, output
        [record] = ResultSet.open(place / "set").records()
        assert record.failure and record.failure.code == "host_lost"
        assert not any(each.of("iosonde") for each in hosts.hosts if each is not host)
        await_(lambda: not host.of("iosonde"))
    finally:
        hosts.link(host, "up")


def test_leftovers_of_a_killed_host_are_removed(place: Path, hosts: Network) -> None:
    """The agent, which restores the host, is killed with all else."""
    host = hosts.hosts[1]
    with measuring(place, hosts) as process:
        host.signal(signal.SIGKILL)
        assert "was lost" in finished(process)
    assert list((place / "data").iterdir()), "the files of that host"
    words = [*hosts.inside, sys.executable, "-m", "iosonde", "cleanup", "--json", "--hosts", listed(place, hosts)]
    done = subprocess.run(words, env=hosts.environment(), stdout=subprocess.PIPE, check=True)
    assert {entry["host"] for entry in json.loads(done.stdout) if str(place / "data") in entry["path"]} == {host.name}
    assert list((place / "data").iterdir()) == []
    assert json.loads(subprocess.run(words, env=hosts.environment(), stdout=subprocess.PIPE, check=True).stdout) == []


def test_a_host_that_cannot_take_part_is_named_before_anything_is_written(place: Path, hosts: Network) -> None:
    other = hosts.hosts[1]
    for changed, reasons in (
        ({"port": 23}, ["ssh exited with status 255", "Connection refused", "connect without a password"]),
        ({"python": another_engine(place)}, ["must have the same `engine_sha256` as this machine"]),
    ):
        code, output = hosts.run(arguments(place, hosts, spec=listed(place, hosts, **changed)))
        assert code == 1
        assert f"host `{other.name}`" in output
        assert [reason for reason in reasons if reason not in output] == [], output
        assert not (place / "set").exists()
    file = hosts.directory / "known_hosts"
    known = file.read_text()
    first, second = (host.address for host in hosts.hosts[:2])
    file.write_text(known.replace(f"{second} ", f"{first}0 ").replace(f"{first} ", f"{first},{second} "))
    try:
        code, output = hosts.run(arguments(place, hosts, spec=listed(place, hosts)))
    finally:
        file.write_text(known)
    assert code == 1 and f"no worker on host `{other.name}`" in output and "Host key verification failed" in output


def test_each_host_checks_room_before_anything_is_written(place: Path, hosts: Network) -> None:
    other = hosts.hosts[1]
    full = other.hide(place / "data", size="64k")
    code, output = hosts.run(arguments(place, hosts, spec=listed(place, hosts)))
    assert code == 1 and f"on host `{other.name}`: no room on `{place}/data`: 1 MiB are needed and 64 KiB" in output, (
        output
    )
    assert not (place / "set").exists()
    assert list(full.iterdir()) == list((place / "data").iterdir()) == []


FAILURES: dict[str, Callable[[NamespaceHost, Network], None]] = {
    "all processes killed": lambda host, _: host.signal(signal.SIGKILL),
    "link cut": lambda host, hosts: hosts.link(host, "down"),
    "connection killed": lambda host, _: host.signal(signal.SIGKILL, "sshd: root"),
    "engine killed": lambda host, _: host.signal(signal.SIGKILL, "iosonde-engine"),
    "coordinator killed": lambda host, hosts: None,
}


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(len(FAILURES)))
def test_after_a_failure_at_a_random_moment_resume_completes_a_study(place: Path, hosts: Network, seed: int) -> None:
    """Each run is then complete once, in the total and on each host. One failure takes up to a minute."""
    chance, name = random.Random(seed), list(FAILURES)[seed]
    host = chance.choice(hosts.hosts)
    words = [*hosts.inside, sys.executable, *arguments(place, hosts, repeats=3)]
    with subprocess.Popen(
        words, env=hosts.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        await_(lambda: process.poll() is not None or any(each.of("many_hosts.worker") for each in hosts.hosts))
        time.sleep(chance.uniform(0.0, 15.0))
        FAILURES[name](host, hosts)
        if name == "coordinator killed":
            process.kill()
    await_(lambda: not any(each.of("iosonde") for each in hosts.hosts if each is not host))
    await_(lambda: not any(each.of("iosonde") for each in hosts.hosts))
    hosts.link(host, "up")
    if (place / "set").exists():
        resume_and_check(place, hosts)
    for of_hosts in ([], ["--hosts", listed(place, hosts)]):
        assert hosts.run(["-m", "iosonde", "cleanup", *of_hosts])[0] == 0


def resume_and_check(place: Path, hosts: Network) -> None:
    """Resume with what the failure left; `cleanup` comes after it."""
    code, output = hosts.run(["-c", IOSONDE, "resume", "--retry-failed", place / "set", "--hosts", hosts.spec])
    assert code == 0, output
    total = ResultSet.open(place / "set")
    for found in (total, *total.hosts()):
        assert not found.problems, found.problems
        complete = [record.run_id for record in found.records() if record.outcome == "complete"]
        assert sorted(complete) == sorted(run.run_id for run in total.plan.runs), found.directory
