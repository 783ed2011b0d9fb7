"""Studies on block devices: what is refused, which consent is required, and that no byte of a refused device changes.

The devices are loop devices, and their users are real: mounts, swap, file systems over several devices.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Iosonde
from engines import real_engine
from leftovers import killed_once
from loop_stacks import remove_partition
from namespaces import private_mounts
from needs import BTRFS, XFS

from iosonde.errors import TargetError
from iosonde.execution import execute, resume
from iosonde.plan import Plan
from iosonde.planning import Against, expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target, tools
from iosonde.storage.block_layer.signatures import EDGE_BYTES, MARK
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.setups import file_systems
from iosonde.storage.setups.loop_devices import LoopDevice

MIB = 1 << 20

STUDY = """
name = "on-devices"
title = "On devices"
question = "?"
repeats = 1

[measurement]
span = "8MiB"
block_size = "64KiB"
queue_depth = 4
ramp = 0
duration = "20ms"
interval = "100ms"

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


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Callable[..., Disk]]:
    made: list[Disk] = []

    def make(size_bytes: int = 32 * MIB, *, sector_bytes: int = 512) -> Disk:
        made.append(Disk(tmp_path / f"disk-{len(made)}", size_bytes, sector_bytes))
        return made[-1]

    yield make
    for disk in made:
        disk.loop.close()
    assert journal.entries() == []


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def run(*command: str | Path) -> str:
    words = list(map(str, command))
    words[0] = str(tools.find(words[0]))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)} failed: {done.stderr.strip()}"
    return done.stdout.strip()


def planned(*disks: Disk, **settings: str) -> Plan:
    return expand(parse(STUDY), open_target(",".join(disk.path for disk in disks)), settings=settings)


def consent(*disks: Disk) -> Consent:
    """Consent to everything."""
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


@contextmanager
def mounted(disk: Disk, point: Path, *, kind: str = "ext4") -> Iterator[None]:
    run(f"mkfs.{kind}", "-q", disk.path)
    point.mkdir()
    run("mount", "-o", "ro", disk.path, point)  # The kernel writes to a file system mounted for writing at any time.
    try:
        yield
    finally:
        subprocess.run(["umount", point], check=True)


def test_the_missing_options_of_several_devices_are_named_at_once(disks: Callable[..., Disk], tmp_path: Path) -> None:
    """One error for each device would need as many attempts as there are devices."""
    one, other = disks(), disks()
    one.write(b"data", 8 * MIB)
    options = f"--destroy {one.path} --confirm {32 * MIB} --destroy {other.path}"
    both = ",".join(each.path for each in (one, other))
    several = expand(parse(STUDY), open_target(both), settings={"files": "per_device"})
    compared = expand(parse(STUDY), open_target(one.path), against=Against(target=open_target(other.path), settings={}))
    for plan in (several, compared):
        with pytest.raises(TargetError, match="2 devices would be overwritten") as caught:
            execute(plan, tmp_path / "refused")
        assert caught.value.hint == f"to overwrite them, add {options}"
        assert caught.value.where.count("no serial, 32 MiB") == 2


def test_a_device_is_measured_only_if_it_is_named_twice(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    text = refusal(tmp_path, disk, given=Consent())
    assert f"`{disk.path}` would be overwritten (32 MiB)" in text
    assert f"to overwrite it, add --destroy {disk.path}" in text
    records = execute(planned(disk), tmp_path / "set", consent=Consent(destroy=(disk.path,))).records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2
    for record in records:
        assert record.spec["workload"]["target"]["path"] == disk.path
        assert record.target["devices"][0]["kind"] == "loop"


def test_data_is_overwritten_only_if_the_size_is_repeated(disks: Callable[..., Disk], tmp_path: Path) -> None:
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


def test_data_of_no_known_kind_is_something_too(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    disk.write(b"a database of somebody" * 100, 4096)
    assert "unrecognized data" in refusal(tmp_path, disk, given=Consent(destroy=(disk.path,)))


def test_a_file_system_behind_a_lost_partition_table_is_data(disks: Callable[..., Disk], tmp_path: Path) -> None:
    """The first and last MiB are zero. Test data of iosonde is no contents, unless its mark is lost as well."""
    disk = disks(64 * MIB)
    run("mkfs.ext4", "-q", "-E", f"offset={MIB}", disk.path, "60m")
    disk.write(bytes(MIB), 0)
    disk.write(bytes(MIB), 63 * MIB)
    named = Consent(destroy=(disk.path,))
    assert "unrecognized data" in refusal(tmp_path, disk, given=named)
    execute(planned(disk, layout="always"), tmp_path / "set", consent=consent(disk))
    assert open_target(disk.path).asks() == [f"--destroy {disk.path}"]
    disk.write(bytes(len(MARK)), 0)
    assert "unrecognized data" in refusal(tmp_path, disk, given=named)


def test_data_in_the_middle_of_a_device_is_noticed(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks(64 * MIB)
    disk.write(b"a database of somebody" * 100_000, 31 * MIB)
    assert "unrecognized data" in refusal(tmp_path, disk, given=Consent(destroy=(disk.path,)))


def test_nothing_is_left_that_looks_like_something(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    execute(planned(disk, layout="always"), tmp_path / "set", consent=consent(disk))
    content = disk.image.read_bytes()
    assert content.startswith(MARK)
    assert not any(content[len(MARK) : EDGE_BYTES]) and not any(content[-EDGE_BYTES:])
    assert any(content[EDGE_BYTES : 8 * MIB])
    assert {
        record.outcome
        for record in execute(planned(disk), tmp_path / "again", consent=Consent(destroy=(disk.path,))).records()
    } == {"complete"}


def test_a_plan_lists_every_byte_that_will_be_lost(
    disks: Callable[..., Disk], iosonde: Iosonde, tmp_path: Path
) -> None:
    disk = disks()
    (tmp_path / "study.toml").write_text(STUDY)
    before = disk.digest()
    text = iosonde("plan", tmp_path / "study.toml", "--target", disk.path).stdout
    lost = f"{disk.path}: bytes 0 to {8 * MIB - 1} are lost (8 MiB of 32 MiB), and zeros go to bytes"
    assert lost in " ".join(text.split())
    assert f"requires  --destroy {disk.path}" in text
    assert disk.digest() == before
    assert "are lost (8 MiB of 32 MiB)" in planned(disk, devices="1").destroys[0].what
    assert [each.what for each in planned(disk, file_system="ext4").destroys] == [
        f"bytes 0 to {32 * MIB - 1} are lost (all of it)"
    ]


def test_the_command_line_carries_it_out(disks: Callable[..., Disk], iosonde: Iosonde, tmp_path: Path) -> None:
    disk = disks()
    (tmp_path / "study.toml").write_text(STUDY)
    words = ("run", tmp_path / "study.toml", "--target", disk.path, "--output", tmp_path / "set", "--no-report")
    refused = iosonde(*words)
    assert refused.returncode == 1 and "--destroy" in refused.stderr
    done = iosonde(*words, "--destroy", disk.path)
    assert done.returncode == 0, done.stderr


def test_a_mounted_device_is_refused(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    with mounted(disk, tmp_path / "point"):
        assert f"is mounted at `{tmp_path}/point`" in refusal(tmp_path, disk)


def test_a_device_that_was_mounted_after_the_plan_is_refused(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    plan = planned(disk)
    with mounted(disk, tmp_path / "point"):
        before = disk.digest()
        with pytest.raises(TargetError, match="is mounted at"):
            execute(plan, tmp_path / "set", consent=consent(disk))
        assert disk.digest() == before


def test_a_device_that_is_mounted_in_another_namespace_is_refused(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    run("mkfs.ext4", "-q", disk.path)
    (tmp_path / "point").mkdir()
    script = f"mount {disk.path} {tmp_path}/point && echo ready && read line"
    inside = subprocess.Popen(private_mounts(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert inside.stdout and inside.stdout.readline() == b"ready\n"
        assert f"is mounted at `{tmp_path}/point`" in refusal(tmp_path, disk)
    finally:
        inside.communicate(b"\n")


def test_an_alias_makes_no_difference(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    alias = tmp_path / "by-id"
    alias.symlink_to(disk.path)
    with mounted(disk, tmp_path / "point"), pytest.raises(TargetError, match="is mounted at"):
        open_target(str(alias))
    with pytest.raises(TargetError, match="are the same device"):
        open_target(f"{disk.path},{alias}")
    run("wipefs", "--all", disk.path)
    disk.write(bytes(MIB), 0)
    given = Consent(destroy=(str(alias),), confirm=(str(32 * MIB),))
    assert {record.outcome for record in execute(planned(disk), tmp_path / "set", consent=given).records()} == {
        "complete"
    }


def test_swap_is_refused(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    run("mkswap", disk.path)
    run("swapon", disk.path)
    try:
        # The kernel may write to it meanwhile, because other tests limit memory: its contents are not compared.
        with pytest.raises(TargetError) as refused:
            execute(planned(disk), tmp_path / "refused", consent=consent(disk))
        assert f"`{Path(disk.path).name}` is active swap" in str(refused.value)
        assert not (tmp_path / "refused").exists()
    finally:
        subprocess.run([str(tools.find("swapoff")), disk.path], check=True)


def test_a_mounted_partition_is_refused_with_its_disk(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    disk.write(partition_table(begin=2048, sectors=30 * 2048), 0)
    _allow_partitions(disk)
    run("addpart", disk.path, "1", "2048", str(30 * 2048))  # Also where the kernel reads no partition tables.
    part = Path(f"{disk.path}p1")
    known = Path("/sys/class/block", part.name, "dev")
    assert known.exists(), "the kernel has no partitions on loop devices"
    if is_bare := not part.is_block_device():  # `/dev` is no devtmpfs.
        os.mknod(part, 0o600 | stat.S_IFBLK, os.makedev(*map(int, known.read_text().split(":"))))
    run("mkfs.ext4", "-q", part)
    (tmp_path / "point").mkdir()
    run("mount", "-o", "ro", part, tmp_path / "point")
    try:
        name = part.name
        assert f"`{name}` is mounted at" in refusal(tmp_path, disk)
    finally:
        subprocess.run(["umount", tmp_path / "point"], check=True)
    text = refusal(tmp_path, disk, given=Consent(destroy=(disk.path,)))
    assert "a partition table (dos)" in text and f"ext4 on `{name}`" in text
    with pytest.raises(TargetError, match="overlap"):
        open_target(f"{disk.path},{part}")
    disk.write(bytes(512), 0)
    remove_partition(disk.path)
    if is_bare:
        part.unlink()


def partition_table(*, begin: int, sectors: int) -> bytes:
    """A master boot record with one partition."""
    entry = struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0x83, 0, 0, 0, begin, sectors)
    return bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa"


def _allow_partitions(disk: Disk) -> None:
    """A loop device has none unless it scans for them."""
    with Path(disk.path).open("rb") as device:
        status = bytearray(232)
        fcntl.ioctl(device, 0x4C05, status)  # LOOP_GET_STATUS64
        (flags,) = struct.unpack_from("=I", status, 52)
        struct.pack_into("=I", status, 52, flags | 8)  # LO_FLAGS_PARTSCAN
        fcntl.ioctl(device, 0x4C04, bytes(status))  # LOOP_SET_STATUS64


@BTRFS
def test_members_of_a_btrfs_over_two_devices_are_refused_mounted_or_not(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
    first, second = disks(128 * MIB), disks(128 * MIB)
    run("mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1", first.path, second.path)
    run("btrfs", "device", "scan", first.path, second.path)
    (tmp_path / "point").mkdir()
    run("mount", "-o", "ro", first.path, tmp_path / "point")
    try:
        for disk in (first, second):
            assert "is mounted at" in (text := refusal(tmp_path, disk)) or "member of the mounted btrfs" in text
    finally:
        subprocess.run(["umount", tmp_path / "point"], check=True)
    assert "is a member of an array or pool (btrfs over several devices)" in refusal(tmp_path, second)
    run("btrfs", "device", "scan", "--forget", first.path)
    run("btrfs", "device", "scan", "--forget", second.path)


def test_a_physical_volume_is_refused_although_nothing_is_active(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    disk.write(lvm_label(), 512)
    assert "is a member of an array or pool (LVM2_member)" in refusal(tmp_path, disk)


def lvm_label() -> bytes:
    """Second sector of a disk after `pvcreate`: a label with its checksum, and the volume's identity."""
    rest = struct.pack("<I8s32sQ", 32, b"LVM2 001", b"iosondeTestTestTestTestTestTest0", 32 * MIB).ljust(492, b"\0")
    checksum = ~zlib.crc32(rest, ~0xF597A6CF & 0xFFFFFFFF) & 0xFFFFFFFF
    return struct.pack("<8sQI", b"LABELONE", 1, checksum) + rest


def test_a_loop_device_on_the_node_is_seen(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    upper = LoopDevice(Path(disk.path), sector_bytes=512)
    try:
        assert f"`{upper.path.name}` is attached to `{Path(disk.path).name}`" in refusal(tmp_path, disk)
    finally:
        upper.close()


def test_who_holds_it_exclusively_keeps_it(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    holder = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    try:
        assert "is claimed exclusively by another program" in refusal(tmp_path, disk)
    finally:
        os.close(holder)


def test_a_device_that_is_read_only_is_refused(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    run("blockdev", "--setro", disk.path)
    try:
        assert "is read-only" in refusal(tmp_path, disk)
    finally:
        run("blockdev", "--setrw", disk.path)


def test_a_file_under_a_loop_device_is_no_target(disks: Callable[..., Disk], tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="exists already"):
        open_target(str(disks().image))
    kept = tmp_path / "kept"
    journal.created(kept, "file", keep=True)
    kept.write_bytes(bytes(MIB))
    journal.identify(kept)
    loop = LoopDevice(kept, sector_bytes=512)
    try:
        with pytest.raises(TargetError, match="is the backing file of the loop device"):
            open_target(str(kept))
    finally:
        loop.close()
        journal.remove(kept)


def test_no_serial_number_is_kept_with_the_plan(disks: Callable[..., Disk]) -> None:
    plan = planned(disks())
    assert plan.required_options and "required_options" not in plan.model_dump()


def test_the_edges_of_a_device_are_listed_as_overwritten(disks: Callable[..., Disk]) -> None:
    (lost,) = planned(disks(), span="64KiB").destroys
    assert f"bytes 0 to {EDGE_BYTES - 1} are lost" in lost.what


class Tries:
    """Somebody else who tries to claim the device while the study runs."""

    def __init__(self, *disks: Disk) -> None:
        self.disks = disks
        self.claimed: list[str] = []
        self.tries = 0

    def _try(self) -> None:
        for disk in self.disks:
            self.tries += 1
            try:
                os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
            except OSError:
                continue
            self.claimed.append(disk.path)

    def run_started(self, *_: Any) -> None:
        self._try()

    def event(self, *_: Any) -> None:
        self._try()

    def run_ended(self, *_: Any) -> None:
        self._try()

    def note(self, text: str) -> None: ...


@pytest.mark.parametrize("settings", [{}, {"devices": "1"}, {"file_system": "ext4"}], ids=["raw", "setup", "ext4"])
def test_no_other_process_can_claim_it_while_a_study_runs(
    disks: Callable[..., Disk], tmp_path: Path, settings: dict[str, str]
) -> None:
    disk = disks()
    tries = Tries(disk)
    execute(planned(disk, **settings), tmp_path / "set", observer=tries, consent=consent(disk))
    assert tries.tries > 5 and tries.claimed == []
    os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))


@pytest.mark.parametrize(
    ("settings", "size_bytes"),
    [
        ({"file_system": "ext4"}, 64 * MIB),
        ({"file_system": "ext4", "journal": "external"}, 64 * MIB),
        pytest.param({"file_system": "xfs"}, 320 * MIB, marks=XFS),
        pytest.param({"file_system": "btrfs"}, 256 * MIB, marks=BTRFS),
    ],
    ids=["ext4", "journal apart", "xfs", "btrfs"],
)
def test_a_file_system_is_created_on_a_device_and_wiped(
    disks: Callable[..., Disk], tmp_path: Path, settings: dict[str, str], size_bytes: int
) -> None:
    used = [disks(size_bytes) for _ in range(1 + ("journal" in settings))]
    records = execute(planned(*used, **settings), tmp_path / "set", consent=consent(*used)).records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2
    assert {record.target["file_system"]["kind"] for record in records} == {settings["file_system"]}
    for disk in used:
        assert planned(disk).required_options == [f"--destroy {disk.path}"]


def test_a_journal_apart_takes_a_device_more(disks: Callable[..., Disk]) -> None:
    with pytest.raises(TargetError, match="needs 2 devices, and the target has 1"):
        planned(disks(), file_system="ext4", journal="external")


def test_devices_of_different_sizes_are_reported(disks: Callable[..., Disk]) -> None:
    plan = planned(disks(32 * MIB), disks(48 * MIB), file_system="ext4")
    assert "differ in size" in plan.notes[0] and "the smallest counts" in plan.notes[0]


def test_several_devices_need_a_setup(disks: Callable[..., Disk]) -> None:
    with pytest.raises(TargetError, match="measures one device, and the target is 2"):
        planned(disks(), disks())


def test_of_several_targets_each_is_a_block_device(disks: Callable[..., Disk], tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is not a block device"):
        open_target(f"{disks().path},{tmp_path}")


def test_every_job_cannot_have_a_file_of_a_raw_device(disks: Callable[..., Disk]) -> None:
    with pytest.raises(TargetError, match="every job needs a file of its own"):
        planned(disks(), files="per_job")


def test_direct_io_below_the_sector_size_is_reported(disks: Callable[..., Disk]) -> None:
    with pytest.raises(TargetError, match="only of multiples of 4 KiB"):
        planned(disks(sector_bytes=4096), block_size="512")


def test_a_resumed_study_requires_consent_again(disks: Callable[..., Disk], tmp_path: Path) -> None:
    disk = disks()
    result_set = ResultSet.create(tmp_path / "set", planned(disk))
    before = disk.digest()
    with pytest.raises(TargetError, match="would be overwritten"):
        resume(result_set.directory)
    assert disk.digest() == before
    ended = resume(result_set.directory, consent=consent(disk))
    assert {record.outcome for record in ended.records()} == {"complete"}


def test_after_a_kill_cleanup_wipes_what_was_created_and_nothing_else(
    disks: Callable[..., Disk], tmp_path: Path
) -> None:
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


def test_cleanup_keeps_what_others_created_since(disks: Callable[..., Disk]) -> None:
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
        import json

        file.write_text(json.dumps(json.loads(file.read_text()) | dead))
    run("mkfs.ext4", "-q", "-L", "mine", disk.path)
    before = disk.digest()
    assert [each.failed for each in cleanup()] == [False]
    assert disk.digest() == before


def test_devices_lists_usable_devices_and_reasons(disks: Callable[..., Disk], iosonde: Iosonde, tmp_path: Path) -> None:
    free, held, full = disks(), disks(), disks()
    run("mkfs.ext4", "-q", "-L", "data", full.path)
    with mounted(held, tmp_path / "point"):
        text = iosonde("devices").stdout
    of = {block.split()[0]: block for block in text.split("\n\n") if block.strip()}
    names = [Path(disk.path).name for disk in (free, held, full)]
    assert f"overwrite    yes, with `--target {free.path} --destroy {free.path}`" in of[names[0]]
    assert "overwrite    no, " in of[names[1]] and "is mounted at" in of[names[1]]
    assert f'--confirm {32 * MIB}`; it contains ext4 "data" on' in of[names[2]]


def test_records_of_raw_runs_name_no_inherited_claim(disks: Callable[..., Disk], tmp_path: Path) -> None:
    """A spec by itself, as a record keeps it, has the engine claim the device."""
    disk = disks()
    records: list[Record] = execute(planned(disk), tmp_path / "set", consent=consent(disk)).records()
    assert all("is_claimed" not in record.spec["workload"]["target"] for record in records)


@BTRFS
def test_an_array_of_devices_is_created_and_wiped(disks: Callable[..., Disk], tmp_path: Path) -> None:
    used = [disks(256 * MIB), disks(256 * MIB)]
    tries = Tries(*used)
    plan = planned(*used, array="raid1", array_kind="btrfs")
    records = execute(plan, tmp_path / "set", observer=tries, consent=consent(*used)).records()
    assert [(record.outcome, record.failure) for record in records] == [("complete", None)] * 2
    assert tries.tries > 5 and tries.claimed == []
    for record in records:
        names = {device["name"] for device in record.target["devices"]}
        assert {Path(disk.path).name for disk in used} <= names
    for disk in used:
        assert planned(disk).required_options == [f"--destroy {disk.path}"]


def test_what_was_written_to_a_device_can_be_verified(
    disks: Callable[..., Disk], tmp_path: Path, iosonde: Iosonde
) -> None:
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
    assert done.returncode == 1
    assert f"{3 * MIB}, 512 bytes flipped" in done.stdout
    [kept] = journal.entries()
    assert Path(kept.path).name == f"{Path(disk.path).name}.verify"
    journal.remove(Path(kept.path))
