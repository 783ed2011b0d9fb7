"""Fleets with real sessions: failing targets, stopping, killing and resuming, consent, sharing, and targets on hosts."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import fleet_samples
import pytest
from command_line import Iosonde
from engines import FAKE
from fleet_samples import STUDY
from hosts_in_namespaces import Network, await_, network
from loop_stacks import MIB, loop_devices
from loop_stacks import run as run_program
from namespaces import mounted_apart
from strangers import listening, sharing_network

from iosonde.base import ssh_hosts
from iosonde.base.ssh_hosts import SshHost
from iosonde.collections.fleet import directory as fleets
from iosonde.collections.fleet import hosts as fleet_hosts
from iosonde.collections.fleet import model
from iosonde.collections.fleet.directory import Planned
from iosonde.collections.fleet.messages import Checked
from iosonde.collections.fleet.model import UNKNOWN
from iosonde.collections.fleet.report import collect
from iosonde.collections.fleet.session import FleetSession, Outcome
from iosonde.collections.library.indexing import Index
from iosonde.errors import ResultsError, StudyError, TargetError
from iosonde.execution.environment import require_same_software
from iosonde.planning import load
from iosonde.results import ResultSet
from iosonde.storage.safety.guard import NO_CONSENT, Consent

MODELS = Path(__file__).parents[2] / "python/iosonde/features/simulated_drives/models"
LISTED = '[[targets]]\nname = "{}"\ntarget = "{}"\n'


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY)
    return path


def listed(path: Path, targets: dict[str, str]) -> Path:
    path.write_text("".join(LISTED.format(name, target) for name, target in targets.items()))
    return path


def planned(study: Path, targets: dict[str, str]) -> Planned:
    fleet = model.Fleet.model_validate({"targets": [{"name": key, "target": each} for key, each in targets.items()]})
    return fleets.plan_fleet(fleet, load(str(study)), {"profile": "standard"})


def carried_out(fleet: fleets.FleetDirectory, notes: list[str]) -> Outcome:
    options = {"parallel": 2, "consent": NO_CONSENT, "retry_failed": False, "time_limit_s": None}
    return FleetSession(fleet, fleet.remaining(), [], **options, note=notes.append).carry_out()  # type: ignore[arg-type]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.engine
def test_simulated_drives_one_slow_one_with_another_firmware(iosonde: Iosonde, study: Path, tmp_path: Path) -> None:
    drive = (MODELS / "p900.toml").read_text()
    for name, firmware, read_time in (("good", "1.0", "3.5us"), ("slow", "1.0", "4.7us"), ("new", "1.1", "3.5us")):
        text = drive.replace('class = "3D', f'firmware = "{firmware}"\nclass = "3D').replace(
            '"3.5us"', f'"{read_time}"'
        )
        (tmp_path / f"{name}.toml").write_text(text)
    kinds = {2: "slow", 5: "new"}
    targets = {f"slot-{slot}": f"sim:{tmp_path}/{kinds.get(slot, 'good')}.toml" for slot in range(8)}
    file = listed(tmp_path / "fleet.toml", targets | {"absent": "/dev/no-such-device"})
    directory = tmp_path / "results"
    stopped = iosonde("fleet", study, "--targets", file, "-o", directory, "--time-limit", "1ms", "--parallel", 2)
    assert f"iosonde resume {directory}" in stopped.stderr
    assert "skipped   absent: there is no block device" in stopped.stderr
    done = iosonde("resume", directory, "--json")
    assert done.returncode == 3 and "error: absent: not measured: there is no block device" in done.stderr
    document = json.loads(done.stdout)
    [found] = document["studies"]
    named = {each["drive"] for each in found["named"] if each["kind"] == "drive"}
    assert (named, found["drives"], document["simulated"]) == ({"slot-2"}, 8, "simulated")
    assert any("slot-5: firmware 1.1, and 7 drives have 1.0; none of" in each for each in found["answer"])
    assert document["missing"] == {"absent": "there is no block device `/dev/no-such-device`"}
    assert document["notes"] == []
    again = iosonde("report", directory, "--format", "md")
    assert again.returncode == 0 and "slot-2" in again.stdout
    written = (directory / "report.md").read_text()
    assert "| slot-2 |" in written and "1 target without a complete run" in written
    for slot in range(8):
        results = ResultSet.open(directory / f"slot-{slot}")
        assert sorted(each.run_id for each in results.records()) == sorted(each.run_id for each in results.plan.runs)


@pytest.mark.engine
def test_a_target_that_fails_is_named_and_the_others_are_measured(study: Path, tmp_path: Path) -> None:
    gone = tmp_path / "mounted"
    gone.mkdir()
    targets = dict.fromkeys("abc", "sim:p900") | {"gone": str(gone)}
    fleet = fleets.create(tmp_path / "results", planned(study, targets), NO_CONSENT, print)
    shutil.rmtree(gone)
    notes: list[str] = []
    done = carried_out(fleet, notes)
    assert sorted(done.ended) == ["a", "b", "c"] and list(done.failed) == ["gone"]
    assert len({(fleet.path / name / "lock").read_text() for name in done.ended}) <= 2, "simulated targets share"
    assert str(gone) in done.failed["gone"]
    assert any(each.startswith("gone: failed: ") for each in notes)
    assert list(fleet.remaining()) == ["gone"]
    assert fleet.missing == {"gone": "no run was carried out"}
    fleet.keep_failed(done.failed)
    assert fleets.FleetDirectory.open(fleet.path).missing == done.failed
    (fleet.path / fleets.FAILED).write_text("damaged")
    assert fleet.missing == {"gone": "no run was carried out"}


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_session_outlives_a_fleet_that_is_stopped_or_killed(
    iosonde: Iosonde, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    directory, file = tmp_path / "results", tmp_path / "fleet.toml"
    listed(file, {"a": "null:1GiB", "b": "null:1GiB"})
    monkeypatch.setenv("IOSONDE_ENGINE", str(FAKE))
    monkeypatch.setenv("FAKE_ENGINE", json.dumps({"c0001-r2": "hang"}))
    command = ["fleet", study, "--targets", file, "-o", directory, "--parallel", 2]
    with subprocess.Popen(
        [sys.executable, "-m", "iosonde", *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        records = "records/c*/record.json"
        while process.poll() is None and not all(any((directory / name).glob(records)) for name in ("a", "b")):
            time.sleep(0.005)
        pids = [int(text) for path in directory.glob("*/lock") if (text := path.read_text())]
        process.send_signal(number)
        process.wait(300)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert len(pids) == 2
    await_(lambda: not any(map(is_running, pids)))
    monkeypatch.delenv("FAKE_ENGINE")
    kept = {path: path.read_bytes() for path in directory.glob("*/records/c*/record.json")}
    assert iosonde("resume", directory).returncode == 0
    assert {path: path.read_bytes() for path in kept} == kept
    assert not fleets.FleetDirectory.open(directory).remaining()


@pytest.mark.system
@pytest.mark.needs("loop devices")
def test_each_device_requires_consent_and_those_on_one_disk_take_turns(
    iosonde: Iosonde, study: Path, tmp_path: Path
) -> None:
    study.write_text(STUDY.replace("read_fraction = 1.0", "read_fraction = 0.0"))
    directory = tmp_path / "results"
    with loop_devices(tmp_path, 32 * MIB, 32 * MIB) as devices:
        file = listed(tmp_path / "fleet.toml", {f"disk-{place}": str(each) for place, each in enumerate(devices)})
        command = ("fleet", study, "--targets", file, "-o", directory)
        shown = iosonde(*command, "--plan")
        required = f"--destroy {devices[0]} --destroy {devices[1]}"
        assert shown.returncode == 0 and f"requires  {required}" in shown.stdout
        assert f"disk-1: {devices[1]}\n  2 runs, about" in shown.stdout and "bytes 0 to " in shown.stdout
        assert iosonde(*command, "--plan", "--json").stdout.count('"required"') == 1
        refused = iosonde(*command)
        assert (
            refused.returncode == 1 and f"to overwrite them, add {required}; `--destroy-all-listed`" in refused.stderr
        )
        refused = iosonde(*command, "--destroy", devices[0])
        assert refused.returncode == 1 and f"add --destroy {devices[1]}" in refused.stderr
        assert "1 of 2 targets are refused, so none is measured" in refused.stderr and not directory.exists()
        run_program("mkfs.ext4", "-q", devices[1])
        (tmp_path / "mounted").mkdir()
        with mounted_apart(devices[1], tmp_path / "mounted"):
            planned_with = iosonde(*command, "--plan")
            assert (
                planned_with.returncode == 3 and f"refused: `{devices[1]}` must not be written" in planned_with.stdout
            )
            refused = iosonde(*command, "--destroy-all-listed")
        assert refused.returncode == 1 and not directory.exists()
        for text in ("1 of 2 targets are refused, so none is measured", f"is mounted at `{tmp_path}/mounted`"):
            assert text in refused.stderr
        with devices[0].open("rb") as device:
            assert not any(device.read()), "it was not overwritten"
        done = iosonde(*command, "--destroy-all-listed", "--confirm", 32 * MIB)
        assert done.returncode == 0, done.stderr
        assert "disk-0, disk-1 share" in done.stderr
    first, second = (ResultSet.open(directory / f"disk-{place}").records() for place in range(2))
    spans = sorted((min(each.started_at for each in records), max(each.ended_at for each in records))
                   for records in (first, second))  # fmt: skip
    assert spans[0][1] < spans[1][0], "they overlapped"


@pytest.mark.engine
def test_targets_on_one_drive_are_named_in_the_report(study: Path, tmp_path: Path) -> None:
    targets = planned(study, {"slot-0": "null:1GiB", "slot-1": "null:1GiB"})
    fleets.create(tmp_path / "results", targets, NO_CONSENT, print)
    one, other = fleet_samples.fleet(2, seed=1)
    same = other.model_copy(update={"devices": one.devices, "started_at": "2026-02-01T00:00:00+00:00"})
    report = collect(tmp_path / "results", Index.of(tmp_path / "results", [one, same], []))
    assert report.notes == ["slot-0: on the same drive as another target, whose newer session is compared"]


@pytest.mark.unit
def test_what_targets_share_is_stated_once_for_the_same_targets() -> None:
    root, port = "PCIe function 0000:00:01.0", "PCIe function 0000:02:00.0"
    hardware = {
        "a": frozenset([root, port, "device nvme0n1"]),
        "b": frozenset([root, port, "device nvme1n1"]),
        "c": frozenset([root, "device nvme2n1"]),
        "d": frozenset({"device nvme3n1"}),
    }
    shared = model.shared_by(hardware)
    assert shared == {root: ["a", "b", "c"], port: ["a", "b"]}
    assert model.sentences(shared)[1] == f"a, b share {port} and are measured one after the other"
    assert model.hardware_of("sim:p900") == frozenset()


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LISTED.format("a", "sim:p900"), "two targets are called `a`"),
        (LISTED.format("../a", "sim:p900"), "should match pattern"),
        ('host = "north"', "which is not listed in `..hosts..`"),
        ('[[hosts]]\naddress = "x"\nrole = "server"', "remove `role`"),
        ('hosts = "c"', "there is no key `targets.0.hosts`"),
    ],
)
def test_a_wrong_list_of_targets_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "fleet.toml").write_text(LISTED.format("a", "sim:p900") + text)
    with pytest.raises(StudyError, match=what):
        model.load(tmp_path / "fleet.toml")


@pytest.mark.engine
def test_a_received_fleet_that_was_edited_is_refused(study: Path, tmp_path: Path) -> None:
    fleet = fleets.create(tmp_path / "fleet", planned(study, {"a": "sim:p900", "b": "sim:p900"}), NO_CONSENT, print)
    with pytest.raises(ResultsError, match="Directory not empty"):
        fleets.create(fleet.path, planned(study, {"a": "sim:p900"}), NO_CONSENT, print)
    shutil.rmtree(fleet.path / "a")
    (fleet.path / "a").symlink_to(fleet.path / "b")
    with pytest.raises(ResultsError, match="missing or not a directory"):
        fleets.FleetDirectory.open(fleet.path)
    (fleet.path / "fleet.json").write_text('{"format": 1, "study": "tiny", "targets": []}')
    with pytest.raises(ResultsError, match="is damaged"):
        fleets.FleetDirectory.open(fleet.path)
    with pytest.raises(ResultsError, match="not the directory of a fleet"):
        fleets.FleetDirectory.open(tmp_path)


@pytest.mark.unit
def test_hosts_of_a_fleet_are_those_that_the_command_line_names(tmp_path: Path) -> None:
    """A received directory decides neither who is contacted nor which program is started there."""
    file, directory = tmp_path / "fleet.toml", Path("received")
    file.write_text('[[hosts]]\naddress = "a"\n[[hosts]]\nname = "b"\naddress = "10.0.0.2"\npython = "/opt/python"\n')
    trusted = f"ssh:{file}"
    file.write_text(file.read_text() + LISTED.format("x", "sim:p900"))
    [found] = model.named_hosts(trusted, ["b"], directory)
    assert (found.address, found.python) == ("10.0.0.2", "/opt/python")
    assert model.named_hosts(None, [], directory) == []
    for spec, text in (
        (None, "the fleet has targets on `b`, `c`, which must be named again.*resume received --hosts ssh:FILE"),
        ("local:2", "must be `ssh:FILE`; got `local:2`"),
        (trusted, "has no host `c`"),
    ):
        with pytest.raises(TargetError, match=f"(?s){text}"):
            model.named_hosts(spec, ["b", "c"], directory)


NAMES = ("north", "south")
on_hosts = pytest.mark.needs("root", "ssh", "sshd", "ssh-keygen", "ip", "nsenter", "unshare")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Network]:
    with network(tmp_path / "network", NAMES) as found:
        yield found


def fleet_file(path: Path, hosts: Network, targets: Mapping[str, tuple[str, object]]) -> Path:
    listed = (hosts.directory / "hosts.toml").read_text()
    for name, (host, target) in targets.items():
        listed += f'[[targets]]\nname = "{name}"\nhost = "{host}"\ntarget = "{target}"\n'
    path.write_text(listed)
    return path


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
        resume = ("-m", "iosonde", "resume", out / "fleet")
        fleet = ("-m", "iosonde", "fleet", study, "--targets", file, "--output", out / "fleet")
        code, output = hosts.run(fleet)
        assert code == 1 and f"add --destroy north:{device}" in " ".join(output.split()), output
        code, output = hosts.run([*fleet, "--destroy", device])
        assert code == 1 and "must name a device of the target" in output, "it is another host's device"
        assert list(out.iterdir()) == list(north.iterdir()) == []
        code, output = hosts.run([*fleet, "--destroy", f"north:{device}"])
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
        code, output = hosts.run(resume)
        assert code == 1 and "the fleet has targets on `south`, which must be named again" in output, output
        assert f"iosonde resume {out}/fleet --hosts ssh:FILE" in output
        code, output = hosts.run([*resume, "--hosts", f"ssh:{file}"])
        assert code == 3, output
        assert contents(out / "fleet" / "files") == before, "collected, not measured again"
        code, output = hosts.run(fleet)
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
    words = [*hosts.inside, sys.executable, "-m", "iosonde", "fleet", study, "--targets", file, "-o", out]
    words += ["--parallel", "1"]
    with subprocess.Popen(words, env=hosts.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
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
def test_consent_hardware_and_software_are_those_of_a_host() -> None:
    listed = [SshHost(address="10.0.0.1", name="north"), SshHost(address="south")]
    consent = Consent(destroy=("/dev/sda", "north:/dev/sda", "south:/dev/sdb"), confirm=("serial",))
    assert fleet_hosts.here(listed, consent.destroy) == ["/dev/sda"]
    assert fleet_hosts.consent_on("north", consent) == Consent(destroy=("/dev/sda",), confirm=("serial",))
    a, b = (fleet_hosts.hardware(["drive sda", UNKNOWN], machine) for machine in ("north", "south"))
    assert a & b == {UNKNOWN}, "hosts share a server and no drives"
    assert fleet_hosts.hardware(["drive sda"], "") == {"drive sda"}, "a host that is this machine"
    own = {"iosonde": "1", "engine": "1", "engine_sha256": "a"}
    require_same_software("north", own, own)
    with pytest.raises(TargetError, match=r"`north` must have the same `engine_sha256` .*; got `b` instead of `a`"):
        require_same_software("north", own | {"engine_sha256": "b"}, own)
    with pytest.raises(TargetError, match="cannot determine `engine` of host `north`: no answer within 60 s"):
        require_same_software("north", own | {"engine": None}, own)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo Welcome to north\necho '{}'", "another program: `Welcome to north`"),
        ("exec sleep 1000", "no answer within 1 s"),
        ("exec cat /dev/zero", "the answer of host `north` is larger than 1 MiB"),
        ("exec cat /dev/zero >&2", "north"),
    ],
)
def test_a_host_that_does_not_answer_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    monkeypatch.setattr(ssh_hosts, "MOST_BYTES", 1 << 20)
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    sleeps = "sleep" in script
    request = {"north": {"do": "describe"}}
    found = fleet_hosts.ask([SshHost(address="north")], request, answer_s=1.0 if sleeps else 300.0)["north"]
    with pytest.raises(TargetError, match=problem):
        fleet_hosts.answered(Checked, "north", found, {})
