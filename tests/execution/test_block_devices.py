"""Studies on block devices: what is refused, which consent is required, and that no byte of a refused device changes.

The devices are loop devices, and their users are real: mounts, swap, file systems over several devices.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Iosonde
from fills import fills
from leftovers import killed_once
from loop_stacks import MIB, run
from namespaces import mounted_apart
from needs import BTRFS, XFS

from iosonde.errors import TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.features.rate_limits.sharing import SharingConclusion
from iosonde.plan import Plan
from iosonde.planning import Against, expand, load, parse
from iosonde.planning.procedure import conclusions
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.signatures import EDGE_BYTES, MARK
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import Consent
from iosonde.storage.setups import file_systems
from iosonde.storage.targets.loop_devices import LoopDevice

STUDY = """
name = "on-devices"
title = "On devices"
question = "?"
repeats = 1
measurement = { span = "8MiB", block_size = "64KiB", queue_depth = 4, ramp = 0, duration = "20ms", interval = "100ms" }
[[parts]]
[parts.factors]
read_fraction = [1.0, 0.0]
[profiles.standard]
"""


class Disk:
    """A loop device, and the file that is its content."""

    def __init__(self, image: Path, size_bytes: int, sector_bytes: int) -> None:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        self.image = image
        self.loop = LoopDevice(image, sector_bytes=sector_bytes)
        self.path = str(self.loop.path)

    def digest(self) -> str:
        with Path(self.path).open("rb") as device:
            os.fsync(device.fileno())
        return hashlib.sha256(self.image.read_bytes()).hexdigest()

    def write(self, data: bytes, at: int) -> None:
        with Path(self.path).open("r+b", buffering=0) as device:
            os.pwrite(device.fileno(), data, at)
            os.fsync(device.fileno())


Disks = Callable[..., Disk]


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    made: list[Disk] = []

    def make(size_bytes: int = 32 * MIB, *, sector_bytes: int = 512) -> Disk:
        made.append(Disk(tmp_path / f"disk-{len(made)}", size_bytes, sector_bytes))
        return made[-1]

    yield make
    for disk in made:
        disk.loop.close()
    assert journal.entries() == []


def planned(*disks: Disk, **settings: str) -> Plan:
    return expand(parse(STUDY), open_target(",".join(disk.path for disk in disks)), settings=settings)


def consent(*disks: Disk) -> Consent:
    sizes = tuple(str(disk.image.stat().st_size) for disk in disks)
    return Consent(destroy=tuple(disk.path for disk in disks), confirm=sizes)


def refusal(directory: Path, *disks: Disk, given: Consent | None = None, **settings: str) -> str:
    """Reason for refusing a study on these disks; checks that not a byte of them, nor a file, is written."""
    before = [disk.digest() for disk in disks]
    with pytest.raises(TargetError) as caught:
        execute(planned(*disks, **settings), directory / "refused", consent=given or consent(*disks))
    assert [disk.digest() for disk in disks] == before
    assert not (directory / "refused").exists()
    return str(caught.value)


def test_the_missing_options_of_several_devices_are_named_at_once(disks: Disks, tmp_path: Path) -> None:
    """One error for each device would need as many attempts as there are devices."""
    one, other = disks(), disks()
    one.write(b"data", 8 * MIB)
    several = expand(parse(STUDY), open_target(f"{one.path},{other.path}"), settings={"files": "per_device"})
    compared = expand(parse(STUDY), open_target(one.path), against=Against(target=open_target(other.path), settings={}))
    for plan in (several, compared):
        with pytest.raises(TargetError, match="2 devices would be overwritten") as caught:
            execute(plan, tmp_path / "refused")
        options = f"--destroy {one.path} --confirm {32 * MIB} --destroy {other.path}"
        assert caught.value.hint == f"to overwrite them, add {options}"


def test_a_device_is_measured_only_if_it_is_named_twice(disks: Disks, iosonde: Iosonde, tmp_path: Path) -> None:
    disk = disks()
    text = refusal(tmp_path, disk, given=Consent())
    assert f"`{disk.path}` would be overwritten (32 MiB)" in text
    assert f"to overwrite it, add --destroy {disk.path}" in text
    (tmp_path / "study.toml").write_text(STUDY)
    words = ("run", tmp_path / "study.toml", "--target", disk.path, "--output", tmp_path / "set", "--no-report")
    refused = iosonde(*words)
    assert refused.returncode == 1 and "--destroy" in refused.stderr
    done = iosonde(*words, "--destroy", disk.path)
    assert done.returncode == 0, done.stderr
    records = ResultSet.open(tmp_path / "set").records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2
    for record in records:
        assert record.spec["workload"]["target"]["path"] == disk.path
        # A spec by itself, as a record keeps it, has the engine claim the device.
        assert "is_claimed" not in record.spec["workload"]["target"]
        assert record.target["devices"][0]["kind"] == "loop"


def test_data_is_overwritten_only_if_the_size_is_repeated(disks: Disks, tmp_path: Path) -> None:
    disk = disks()
    run("mkfs.ext4", "-q", "-L", "precious", disk.path)
    named = Consent(destroy=(disk.path,))
    text = refusal(tmp_path, disk, given=named)
    assert f'`{disk.path}` contains ext4 "precious" on `{Path(disk.path).name}`, which would be lost' in text
    assert f"--confirm {32 * MIB}" in text
    assert "--confirm" in refusal(tmp_path, disk, given=Consent(destroy=(disk.path,), confirm=("31MiB", "serial")))
    assert "--destroy" in refusal(tmp_path, disk, given=Consent(confirm=("32MiB",)))
    plan = planned(disk)
    assert any("precious" in note for note in plan.notes)
    confirmed = Consent(destroy=(disk.path,), confirm=("32MiB",))
    assert {record.outcome for record in execute(plan, tmp_path / "set", consent=confirmed).records()} == {"complete"}


def test_data_of_no_known_kind_is_data(disks: Disks, tmp_path: Path) -> None:
    """A file system whose partition table is lost; the first and last MiB are zero. Test data of iosonde is no contents,
    unless its mark is lost as well."""
    disk, other = disks(64 * MIB), disks(64 * MIB)
    run("mkfs.ext4", "-q", "-E", f"offset={MIB}", disk.path, "60m")
    disk.write(bytes(MIB), 0)
    disk.write(bytes(MIB), 63 * MIB)
    other.write(b"a database of somebody" * 100_000, 31 * MIB)
    for each in (disk, other):
        assert "unrecognized data" in refusal(tmp_path, each, given=Consent(destroy=(each.path,)))
    execute(planned(disk, layout="always"), tmp_path / "set", consent=consent(disk))
    content = disk.image.read_bytes()
    assert content.startswith(MARK) and any(content[EDGE_BYTES : 8 * MIB])
    assert not any(content[len(MARK) : EDGE_BYTES]) and not any(content[-EDGE_BYTES:])
    assert open_target(disk.path).asks() == [f"--destroy {disk.path}"]
    disk.write(bytes(len(MARK)), 0)
    assert "unrecognized data" in refusal(tmp_path, disk, given=Consent(destroy=(disk.path,)))


def test_a_plan_lists_every_byte_that_will_be_lost(disks: Disks, iosonde: Iosonde, tmp_path: Path) -> None:
    disk = disks()
    (tmp_path / "study.toml").write_text(STUDY)
    before = disk.digest()
    text = iosonde("plan", tmp_path / "study.toml", "--target", disk.path).stdout
    assert disk.digest() == before
    lost = f"{disk.path}: bytes 0 to {8 * MIB - 1} are lost (8 MiB of 32 MiB), and zeros go to bytes"
    assert lost in " ".join(text.split())
    assert f"requires  --destroy {disk.path}" in text
    for settings, what in (
        ({"devices": "1"}, "are lost (8 MiB of 32 MiB)"),
        ({"file_system": "ext4"}, f"bytes 0 to {32 * MIB - 1} are lost (all of it)"),
        ({"span": "64KiB"}, f"bytes 0 to {EDGE_BYTES - 1} are lost"),
    ):
        (destroyed,) = planned(disk, **settings).destroys
        assert what in destroyed.what
    plan = planned(disk)
    assert plan.required_options and "required_options" not in plan.model_dump(), "no serial number is kept"


def test_what_devices_cannot_be_is_refused_in_the_plan(disks: Disks) -> None:
    small, large, advanced = disks(32 * MIB), disks(48 * MIB), disks(sector_bytes=4096)
    assert "differ in size" in planned(small, large, file_system="ext4").notes[0]
    for used, settings, message in (
        ((small,), {"file_system": "ext4", "journal": "external"}, "needs 2 devices, and the target has 1"),
        ((small, large), {}, "measures one device, and the target is 2"),
        ((small,), {"files": "per_job"}, "every job needs a file of its own"),
        ((advanced,), {"block_size": "512"}, "only of multiples of 4 KiB"),
    ):
        with pytest.raises(TargetError, match=message):
            planned(*used, **settings)
    with pytest.raises(TargetError, match="is not a block device"):
        open_target(f"{small.path},{small.image.parent}")


def test_an_alias_makes_no_difference_and_a_mount_after_the_plan_is_refused(disks: Disks, tmp_path: Path) -> None:
    disk = disks()
    plan = planned(disk)
    alias = tmp_path / "by-id"
    alias.symlink_to(disk.path)
    run("mkfs.ext4", "-q", disk.path)
    (tmp_path / "point").mkdir()
    # One mounted for writing may be written at any time.
    with mounted_apart(disk.path, tmp_path / "point", "-o", "ro"):
        before = disk.digest()
        with pytest.raises(TargetError, match="is mounted at"):
            execute(plan, tmp_path / "set", consent=consent(disk))
        with pytest.raises(TargetError, match="is mounted at"):
            open_target(str(alias))
        assert disk.digest() == before
    with pytest.raises(TargetError, match="are the same device"):
        open_target(f"{disk.path},{alias}")
    run("wipefs", "--all", disk.path)
    disk.write(bytes(MIB), 0)
    given = Consent(destroy=(str(alias),), confirm=(str(32 * MIB),))
    records = execute(planned(disk), tmp_path / "set", consent=given).records()
    assert {record.outcome for record in records} == {"complete"}


class Tries(Observer):
    def __init__(self, *disks: Disk) -> None:
        self.disks = disks
        self.claimed: list[str] = []
        self.tries = 0

    def run_started(self, *_: Any) -> None:
        for disk in self.disks:
            self.tries += 1
            with suppress(OSError):
                os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
                self.claimed.append(disk.path)

    event = run_ended = run_started


@pytest.mark.parametrize(
    ("settings", "size_bytes"),
    [
        ({}, 32 * MIB),
        ({"devices": "1"}, 32 * MIB),
        ({"file_system": "ext4", "journal": "external"}, 64 * MIB),
        pytest.param({"file_system": "xfs"}, 320 * MIB, marks=XFS),
        pytest.param({"file_system": "btrfs"}, 256 * MIB, marks=BTRFS),
        pytest.param({"array": "raid1", "array_kind": "btrfs"}, 256 * MIB, marks=BTRFS),
    ],
    ids=["raw", "setup", "ext4 with its journal apart", "xfs", "btrfs", "btrfs over two devices"],
)
def test_devices_are_claimed_while_a_study_runs_with_or_without_file_systems_and_wiped(
    disks: Disks, tmp_path: Path, settings: dict[str, str], size_bytes: int
) -> None:
    used = [disks(size_bytes) for _ in range(1 + bool({"journal", "array"} & settings.keys()))]
    tries = Tries(*used)
    records = execute(planned(*used, **settings), tmp_path / "set", observer=tries, consent=consent(*used)).records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2
    if kind := settings.get("file_system", settings.get("array_kind")):
        assert {record.target["file_system"]["kind"] for record in records} == {kind}
    assert tries.tries > 5 and tries.claimed == []
    if "array" in settings:
        names = {device["name"] for record in records for device in record.target["devices"]}
        assert {Path(disk.path).name for disk in used} <= names
    for disk in used:
        assert planned(disk).required_options == [f"--destroy {disk.path}"]
        os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))


def test_after_a_kill_cleanup_wipes_what_was_created_and_nothing_else(disks: Disks, tmp_path: Path) -> None:
    disk = disks()
    result_set = ResultSet.create(tmp_path / "set", planned(disk, file_system="ext4", duration="20s"))
    killed_once(
        result_set.directory,
        lambda: any(entry.what == "mount" for entry in journal.entries()),
        destroy=[disk.path],
    )
    cleaned = cleanup()
    assert cleaned and not any(each.failed for each in cleaned), cleaned
    assert open_target(disk.path).asks() == [f"--destroy {disk.path}"]


def test_cleanup_keeps_what_others_created_since(disks: Disks) -> None:
    disk = disks()
    facts = {
        "device": disk.path,
        "identity": f" /  / {32 * MIB}",
        "own": "iosonde-00000000",
        "uuids": [file_systems.uuid_of("iosonde-00000000", "data")],
    }
    dead = {"owner": "another boot 1 1"}
    journal.created(Path("/run/iosonde/iosonde-00000000/on-disk"), "device", facts=facts)
    for file in journal._directory().glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | dead))
    run("mkfs.ext4", "-q", "-L", "mine", disk.path)
    before = disk.digest()
    assert [each.failed for each in cleanup()] == [False]
    assert disk.digest() == before


def test_what_was_written_to_a_device_can_be_verified(disks: Disks, tmp_path: Path, iosonde: Iosonde) -> None:
    """Its journal is in iosonde's state directory: a device has no directory."""
    disk = disks()
    plan = planned(disk, verify="after")
    results = execute(plan.model_copy(update={"keep": True}), tmp_path / "set", consent=consent(disk))
    assert [(record.outcome, record.failure) for record in results.records()] == [("complete", None)] * 2
    assert results.sql("SELECT DISTINCT verified_bytes, wrong_sectors FROM runs").rows() == [(8 * MIB, 0)]
    done = iosonde("verify", disk.path)
    assert (done.returncode, "no wrong sectors" in done.stdout) == (0, True), done.stderr
    disk.write(b"\xff" * 16, at=3 * MIB + 200)
    done = iosonde("verify", disk.path)
    assert done.returncode == 4
    assert f"{3 * MIB}, 512 bytes flipped" in done.stdout
    [kept] = journal.entries()
    assert Path(kept.path).name == f"{Path(disk.path).name}.verify"
    journal.remove(Path(kept.path))


def test_a_lower_level_leaves_free_what_the_higher_one_before_it_wrote(disks: Disks, tmp_path: Path) -> None:
    disk = disks(32 * MIB)
    disk.write(os.urandom(MIB), at=20 * MIB)
    plan = expand(fills(75, 25), open_target(disk.path))
    result_set = execute(plan, tmp_path / "set", consent=consent(disk))
    records = result_set.records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 6
    assert {record.parameters["purge"] for record in records} == {"trim"}
    disk.digest()  # Everything has reached the image.
    content = disk.image.read_bytes()
    assert len(zlib.compress(content[MIB : 8 * MIB], 1)) > 0.99 * 7 * MIB
    assert not any(content[9 * MIB : 24 * MIB]), "what 75 % and others wrote there was discarded"
    assert disk.image.stat().st_blocks * 512 < 12 * MIB, "and its space is free again"


SHARED = {"span": "8MiB", "read_fraction": "0", "procedure.probe": "1s", "procedure.drain": "1s"}


def together(devices: list[Disk]) -> Plan:
    target = open_target(",".join(each.path for each in devices))
    return expand(load("shared-limits"), target, profile="quick", settings=SHARED)


def test_devices_side_by_side_are_claimed_and_written_within_the_span(disks: Disks, tmp_path: Path) -> None:
    devices = [disks() for _ in range(3)]
    plan = together(devices)
    assert [each.path for each in plan.destroys] == [each.path for each in devices]
    assert all(f"bytes 0 to {8 * MIB - 1} are lost (8 MiB of 32 MiB)" in each.what for each in plan.destroys)
    tries = Tries(*devices)
    results = execute(plan, tmp_path / "set", consent=consent(*devices), observer=tries)
    records = results.records()
    assert {record.outcome for record in records} == {"complete"}
    assert tries.tries > 5 and tries.claimed == []
    assert records[0].spec["workload"]["target"]["beside"] == [devices[1].path, devices[2].path]
    [(_, conclusion)] = conclusions(results)
    assert isinstance(conclusion, SharingConclusion) and all(each.value > 0 for each in conclusion.found.together)
    written = results.usage.filter(pl.col("phase") == "measure", pl.col("write_bytes") > 0)
    assert set(written["device"].to_list()) >= {number_of(Path(each.path)) for each in devices}
    for each in devices:
        content = each.image.read_bytes()
        assert content.startswith(MARK)
        assert any(content[EDGE_BYTES : 8 * MIB]) and not any(content[8 * MIB :])


def test_consent_and_a_claim_of_every_device_are_required(disks: Disks, tmp_path: Path) -> None:
    devices = [disks() for _ in range(3)]
    plan, names = together(devices), [each.path for each in devices]
    for place in range(3):
        with pytest.raises(TargetError, match=names[place]):
            execute(plan, tmp_path / "set", consent=Consent(destroy=(*names[:place], *names[place + 1 :])))
    holder = os.open(names[1], os.O_RDWR | os.O_EXCL)
    try:
        with pytest.raises(TargetError, match=f"`{names[1]}`"):
            execute(plan, tmp_path / "set", consent=Consent(destroy=tuple(names)))
    finally:
        os.close(holder)
    assert not any(any(each.image.read_bytes()) for each in devices)
