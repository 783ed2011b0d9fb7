"""A fleet with targets on other machines, which OpenSSH reaches in network namespaces."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from engines import real_engine
from fleet_samples import STUDY
from hosts_in_namespaces import Network, await_, network
from loop_stacks import MIB, loop_devices
from strangers import listening, sharing_network

from iosonde.errors import ResultsError, TargetError
from iosonde.fleet import hosts as fleet_hosts
from iosonde.fleet.sharing import UNKNOWN
from iosonde.results import ResultSet
from iosonde.results.schema import MANIFEST
from iosonde.ssh_hosts import SshHost
from iosonde.storage.safety.consent import Consent

NAMES = ("north", "south")
on_hosts = pytest.mark.needs("root", "ssh", "sshd", "ssh-keygen", "ip", "nsenter", "unshare")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    variables = {"PYTHONPATH": str(Path(__file__).parents[2] / "python"), "IOSONDE_ENGINE": str(real_engine())}
    with network(tmp_path / "network", NAMES, variables) as found:
        yield found


def fleet_file(path: Path, hosts: Network, targets: Mapping[str, tuple[str, object]]) -> Path:
    listed = (hosts.directory / "hosts.toml").read_text()
    for name, (host, target) in targets.items():
        listed += f'[[targets]]\nname = "{name}"\nhost = "{host}"\ntarget = "{target}"\n'
    path.write_text(listed)
    return path


def command(hosts: Network, *words: object) -> list[str]:
    return [*hosts.inside, sys.executable, "-m", "iosonde", *map(str, words)]


def run(hosts: Network, *words: object) -> tuple[int, str]:
    """The exit code of iosonde, and what it wrote to standard error."""
    environment = hosts.environment() | {"IOSONDE_ENGINE": str(real_engine())}
    done = subprocess.run(command(hosts, *words), env=environment, capture_output=True, check=False)
    return done.returncode, done.stderr.decode()


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.system
@pytest.mark.needs("loop devices")
@on_hosts
def test_each_host_checks_its_devices_and_its_records_are_collected(hosts: Network, tmp_path: Path) -> None:
    study, out = tmp_path / "tiny.toml", tmp_path / "out"
    study.write_text(STUDY.replace("read_fraction = 1.0", "read_fraction = 0.5"))
    out.mkdir()
    north, south = (host.hide(out) for host in hosts.hosts)
    with loop_devices(tmp_path, 8 * MIB) as [device]:
        (tmp_path / "data").mkdir()
        targets = {"disk": ("north", device), "files": ("south", tmp_path / "data"), "here": ("", tmp_path / "data")}
        file = fleet_file(tmp_path / "fleet.toml", hosts, targets | {"absent": ("south", "/dev/none")})
        fleet = ("fleet", study, "--targets", file, "--output", out / "fleet")
        code, output = run(hosts, *fleet)
        assert code == 1 and f"add --destroy north:{device}" in " ".join(output.split()), output
        code, output = run(hosts, *fleet, "--destroy", device)
        assert code == 1 and "must name a device of the target" in output, "it is another host's device"
        assert list(out.iterdir()) == list(north.iterdir()) == []
        code, output = run(hosts, *fleet, "--destroy", f"north:{device}")
        assert code == 3, output
        assert f"requires  --destroy north:{device}\n" in output
        assert "error: absent: not measured: on host `south`: there is no block device `/dev/none`" in output
        assert "skipped   absent: on host `south`: there is no block device `/dev/none`" in output
        collected = out / "fleet" / "disk" / "records"
        assert contents(collected) == contents(north / "fleet" / "disk" / "records")
        assert not (south / "fleet" / "disk").exists() and not (north / "fleet" / "here").exists()
        for name in targets:
            assert [each.outcome for each in ResultSet.open(out / "fleet" / name).records()] == ["complete"] * 2
        [lost, *_] = sorted((out / "fleet" / "files" / "records").iterdir())
        before = contents(out / "fleet" / "files")
        shutil.rmtree(lost)
        code, output = run(hosts, "resume", out / "fleet")
        assert code == 3, output
        assert contents(out / "fleet" / "files") == before, "collected, not measured again"
        code, output = run(hosts, "fleet", study, "--targets", file, "--output", tmp_path / "out" / "fleet")
        assert code == 1 and f"`{out}/fleet/files` exists" in output
        assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.system
@on_hosts
def test_a_host_that_dies_is_named_and_the_others_are_measured(hosts: Network, tmp_path: Path) -> None:
    study, out = tmp_path / "tiny.toml", tmp_path / "out"
    study.write_text(STUDY.replace('"200ms"', '"10s"\narrival = "constant"\nrate = 100'))
    (tmp_path / "data").mkdir()
    targets = {"a": ("north", "null:1GiB"), "b": ("south", "null:1GiB"), "waiting": ("south", "null:1GiB")}
    file = fleet_file(tmp_path / "fleet.toml", hosts, targets)
    words = command(hosts, "fleet", study, "--targets", file, "--output", out, "--parallel", 1)
    environment = hosts.environment() | {"IOSONDE_ENGINE": str(real_engine())}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            await_(lambda: process.poll() is not None or bool(hosts.hosts[1].of("--stop-at-eof")))
            assert listening(sharing_network(process.pid)) == set()
            on_host = listening(sharing_network(hosts.hosts[1].of("--stop-at-eof")[0]))
            assert {each.port for each in on_host} == {22}, "only the SSH server listens"
            hosts.hosts[1].kill()
            assert process.stderr
            output = process.stderr.read().decode()
            assert process.wait() == 3, output
        finally:
            process.kill()
    for name in ("b", "waiting"):
        assert f"error: {name}: host `south` was lost: its process exited with status 255" in output, output
    assert len(ResultSet.open(out / "a").records()) == 2
    assert (out / "report.html").exists()
    await_(lambda: not hosts.hosts[0].of("iosonde"))


@pytest.mark.unit
def test_consent_hardware_software_and_records_are_those_of_a_host(tmp_path: Path) -> None:
    listed = [SshHost(address="10.0.0.1", name="north"), SshHost(address="south")]
    consent = Consent(destroy=("/dev/sda", "north:/dev/sda", "south:/dev/sdb"), confirm=("serial",))
    assert fleet_hosts.here(listed, consent.destroy) == ["/dev/sda"]
    assert fleet_hosts.consent_on("north", consent) == Consent(destroy=("/dev/sda",), confirm=("serial",))
    a, b = (fleet_hosts.hardware(["drive sda", UNKNOWN], machine) for machine in ("north", "south"))
    assert a & b == {UNKNOWN}, "hosts share a server and no drives"
    assert fleet_hosts.hardware(["drive sda"], "") == {"drive sda"}, "a host that is this machine"
    own = {"iosonde": "1", "engine": "1", "engine_sha256": "a"}
    fleet_hosts.require_same_software("north", own, own)
    with pytest.raises(TargetError, match=r"`north` must have the same `engine_sha256` .*; got `b` instead of `a`"):
        fleet_hosts.require_same_software("north", own | {"engine_sha256": "b"}, own)
    files = {"record.json": "e30=", MANIFEST: base64.b64encode(b"wrong").decode()}
    with pytest.raises(ResultsError, match="`c1` was damaged"):
        fleet_hosts.keep(tmp_path, {"kind": "records", "name": "c1", "files": files})
    assert list((tmp_path / "records").iterdir()) == []


@pytest.mark.engine
@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("echo Welcome to north\necho '{}'", "text of another program: `Welcome to north`"),
        ("exec sleep 1000", "host `north` (`north`) gave no answer within 1 s, in the request `describe` of the fleet"),
    ],
)
def test_a_host_without_an_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, what: str
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    patience_s = 1.0 if "sleep" in script else 300.0
    request = {"north": {"do": "describe"}}
    found = fleet_hosts.ask([SshHost(address="north")], request, answer_s=patience_s)["north"]
    assert isinstance(found, TargetError)
    assert what.partition(",")[0] in str(found) and what.partition(", ")[2] in str(found)
