"""A study on hosts that OpenSSH reaches, in network namespaces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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

SECOND = 10**9
Process = subprocess.Popen[bytes]
NAMES = ("north", "south", "east")
"""In an order of their own."""
PYTHONPATH = str(Path(__file__).parents[3] / "python")


def pythons(place: Path) -> dict[str, str]:
    """Of hosts that cannot take part, each for another reason."""
    place.mkdir()
    shutil.copy(real_engine(), place / "engine")
    with (place / "engine").open("ab") as file:
        file.write(b"\0")
    old = place / "old" / "distributed-2025.1.0.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: distributed\nVersion: 2025.1.0\n")
    scripts = {
        "plain": f'exec env -u PYTHONPATH {sys.executable} -S "$@"',
        "build": f'IOSONDE_ENGINE={place}/engine exec {sys.executable} "$@"',
        "dask": f'PYTHONPATH={place}/old:{PYTHONPATH} exec {sys.executable} "$@"',
    }
    for name, script in scripts.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    return {name: str(place / name) for name in scripts} | {"none": str(place / "none")}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    place = tmp_path_factory.mktemp("ssh")
    variables = {"PYTHONPATH": PYTHONPATH, "IOSONDE_ENGINE": str(real_engine())}
    with network(place / "network", NAMES, variables) as found:
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


def command(place: Path, hosts: Network, *, spec: str = "", duration: str = "1s", repeats: int = 1) -> list[str]:
    (place / "study.toml").write_text(STUDY.format(duration=duration, repeats=repeats))
    study = [str(place / "study.toml"), "--profile", "quick", "--target", str(place / "data")]
    started = [*hosts.inside, sys.executable, "-c", IOSONDE, "run", *study]
    return [*started, "--output", str(place / "set"), "--hosts", spec or hosts.spec]


def listed(place: Path, hosts: Network, **changed: object) -> str:
    """The value of `--hosts` with one more host than the first, which has these values."""
    first, other = hosts.hosts[:2]
    values = {"name": other.name, "address": other.address, "python": sys.executable, **changed}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    file = place / "other.toml"
    file.write_text(
        f'[[hosts]]\nname = "{first.name}"\naddress = "{first.address}"\n[[hosts]]\n{lines}', encoding="utf-8"
    )
    return f"ssh:{file}"


def finished(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr
    return process.stderr.read().decode()


def run(hosts: Network, words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to standard error."""
    done = subprocess.run(words, env=hosts.environment(), capture_output=True, check=False)
    return done.returncode, done.stderr.decode()


@contextlib.contextmanager
def measuring(place: Path, hosts: Network, *, duration: str = "60s") -> Iterator[Process]:
    """A study of which the first run is in progress on two hosts."""
    words = command(place, hosts, spec=listed(place, hosts), duration=duration)
    with subprocess.Popen(words, env=hosts.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            await_(lambda: process.poll() is not None or all(host.of("--stop-at-eof") for host in hosts.hosts[:2]))
            assert process.poll() is None, finished(process)
            yield process
        finally:
            process.kill()


def test_each_run_has_one_total_and_the_records_of_all_hosts(place: Path, hosts: Network) -> None:
    code, output = run(hosts, command(place, hosts, repeats=2))
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


def test_a_study_is_interrupted_and_resumed(place: Path, hosts: Network) -> None:
    """Its key is on no command line and in no environment meanwhile."""
    with measuring(place, hosts, duration="8s") as process:
        for pid in {pid for host in hosts.hosts for pid in host.processes()} | {process.pid}:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/cmdline").read_bytes()
                assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
        process.send_signal(signal.SIGINT)
        assert "iosonde resume" in finished(process)
        assert process.wait() == 130
    assert not any(host.of("iosonde") for host in hosts.hosts), "workers end before their coordinator does"
    assert ResultSet.open(place / "set").records() == []
    resumed = [*hosts.inside, sys.executable, "-c", IOSONDE, "resume", str(place / "set")]
    resumed += ["--hosts", listed(place, hosts)]
    assert run(hosts, resumed)[0] == 0
    assert [record.outcome for record in ResultSet.open(place / "set").records()] == ["complete"]


def test_hosts_over_ssh_refuse_strangers(place: Path, hosts: Network) -> None:
    """A third host can reach all addresses, and nothing listens on any other."""
    with measuring(place, hosts) as process:
        sockets = sockets_of(process.pid)
        assert {each.address for each in sockets} == {COORDINATOR}
        for host in hosts.hosts[:2]:
            of_host = {each for each in sockets_of(host.of("many_hosts.worker")[0]) if each.port != 22}
            assert {each.address for each in of_host} == {host.address}
            sockets |= of_host
        assert len(sockets) == 3, "the scheduler and two workers"
        answers = answers_of_dask(addresses(sockets), inside=hosts.hosts[2].inside)
        assert answers == dict.fromkeys(addresses(sockets), CLOSED)
        interrupt(process)


def test_hosts_of_this_machine_refuse_other_users(place: Path, hosts: Network) -> None:
    """They cannot be reached from another host."""
    words = command(place, hosts, spec="local:2", duration="60s")
    with subprocess.Popen(words, env=hosts.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            await_(lambda: process.poll() is not None or len(list((place / "data").iterdir())) == 2)
            assert process.poll() is None, finished(process)
            sockets = sockets_of(process.pid)
            assert {(each.kind, each.address) for each in sockets} == {("tcp", "127.0.0.1")}
            assert len(sockets) == 3, "the scheduler and two workers"
            answers = answers_of_dask(addresses(sockets), inside=hosts.inside)
            assert answers == dict.fromkeys(addresses(sockets), CLOSED)
            beyond = [f"{COORDINATOR}:{each.port}" for each in sockets]
            absent = dict.fromkeys(CLOSED, "nothing listens")
            assert answers_of_dask(beyond, inside=hosts.hosts[0].inside) == dict.fromkeys(beyond, absent)
            interrupt(process)
        finally:
            process.kill()


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


def sockets_of(process: int) -> set[Listening]:
    """Addresses in its network namespace, in which only a study and SSH run."""
    return {each for each in listening(sharing_network(process)) if each.kind != "unix"}


def interrupt(process: Process) -> None:
    process.send_signal(signal.SIGINT)
    finished(process)
    assert process.wait() == 130


def addresses(sockets: set[Listening]) -> list[str]:
    return sorted(f"{each.address}:{each.port}" for each in sockets)


def kill_server(host: NamespaceHost, _: Network) -> None:
    for pid in host.of("sshd: root"):
        os.kill(pid, signal.SIGKILL)


def cut(host: NamespaceHost, hosts: Network) -> None:
    hosts.link(host, "down")


@pytest.mark.parametrize("act", [kill_server, cut])
def test_a_lost_connection_ends_the_study_and_what_it_started(
    place: Path, hosts: Network, act: Callable[[NamespaceHost, Network], None]
) -> None:
    """A host without a network ends its part by itself."""
    host = hosts.hosts[1]
    with measuring(place, hosts) as process:
        act(host, hosts)
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
    scripts = pythons(place / "pythons")
    other = hosts.hosts[1]
    for changed, reasons in (
        ({"port": 23}, ["ssh exited with status 255", "Connection refused", "connect without a password"]),
        ({"python": scripts["none"]}, ["ssh exited with status 127", "No such file", "install the same version"]),
        ({"python": scripts["plain"]}, ["ssh exited with status 1", "No module named", "install the same version"]),
        ({"python": scripts["build"]}, ["must have the same `engine_sha256` as this machine"]),
        ({"python": scripts["dask"]}, ["must have the same `distributed` as this machine; got `2025.1.0`"]),
    ):
        code, output = run(hosts, command(place, hosts, spec=listed(place, hosts, **changed)))
        assert code == 1
        assert f"host `{other.name}`" in output
        assert [reason for reason in reasons if reason not in output] == [], output
        assert not (place / "set").exists()


def test_a_host_with_another_key_is_refused(place: Path, hosts: Network) -> None:
    file = hosts.directory / "known_hosts"
    known = file.read_text()
    first, other = (host.address for host in hosts.hosts[:2])
    file.write_text(known.replace(f"{other} ", f"{first}0 ").replace(f"{first} ", f"{first},{other} "))
    try:
        code, output = run(hosts, command(place, hosts, spec=listed(place, hosts)))
    finally:
        file.write_text(known)
    assert code == 1
    assert "no worker on host `south`" in output
    assert "Host key verification failed" in output
    assert not (place / "set").exists()


SHIFTS = {"north": (10 * SECOND, 100), "south": (-10 * SECOND, -100)}
"""Offset in nanoseconds and drift in ppm of the clock of each host."""


@pytest.mark.needs("cc", "tc")
def test_offset_and_drift_of_clocks_are_within_their_errors(place: Path, hosts: Network) -> None:
    """Also where messages to the hosts are delayed and those from them are not."""
    library = place / "shifted.so"
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    epoch_ns = time.time_ns()
    tables = []
    for host, (name, (offset_ns, drift_ppm)) in zip(hosts.hosts, SHIFTS.items(), strict=False):
        python = place / name
        python.write_text(
            f"#!/bin/sh\nexport SHIFTED_OFFSET_NS={offset_ns} SHIFTED_DRIFT_PPM={drift_ppm}\n"
            f'export SHIFTED_EPOCH_NS={epoch_ns} LD_PRELOAD={library}\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        tables.append(f'[[hosts]]\nname = "{name}"\naddress = "{host.address}"\npython = "{python}"\n')
        shape = ["root", "tbf", "rate", "2mbit", "burst", "2kb", "latency", "1s"]
        subprocess.run([*hosts.inside, "tc", "qdisc", "add", "dev", host.name, *shape], check=True)
    (place / "shifted.toml").write_text("".join(tables))
    try:
        code, output = run(hosts, command(place, hosts, spec=f"ssh:{place}/shifted.toml", repeats=3))
    finally:
        for host in hosts.hosts[: len(SHIFTS)]:
            subprocess.run([*hosts.inside, "tc", "qdisc", "del", "dev", host.name, "root"], check=True)
    assert code == 0, output
    records = ResultSet.open(place / "set").records()
    assert len(records) == 3
    for record in records:
        part = record.of(Hosts)
        assert part and [share.host for share in part.shares] == list(SHIFTS)
        for share in part.shares:
            offset_ns, drift_ppm = SHIFTS[share.host]
            own = ResultSet.open(place / "set" / "hosts" / share.host).record(record.run_id)
            assert own and own.result
            at_ns = own.result["start"]["requested_unix_ns"] - share.clock_offset_ns
            true_ns = offset_ns + (at_ns - epoch_ns) * drift_ppm / 1e6
            assert abs(share.clock_offset_ns - true_ns) <= share.clock_bound_ns < SECOND
            assert share.clock_drift_ppm is not None and share.clock_drift_bound_ppm is not None
            assert abs(share.clock_drift_ppm - drift_ppm) <= share.clock_drift_bound_ppm
