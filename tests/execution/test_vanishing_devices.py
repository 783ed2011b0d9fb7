"""Devices and nodes that vanish before, between and after the runs of a study, on the real kernel: an error with a
reason, and no byte of anything else changes."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from loop_stacks import MIB, Loops, remove_partition, run
from test_device_identity import STUDY, After

from iosonde.errors import TargetError
from iosonde.execution import execute, resume
from iosonde.plan import Setup
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer import block_stack, signatures
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.consent import Consent
from iosonde.storage.targets import device_target

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]

PATTERN = b"\xa5" * 32 * MIB


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


@pytest.fixture
def disk(loops: Loops) -> Path:
    """A disk with data, and an empty partition from 8 MiB to 16 MiB that only the kernel knows."""
    image = loops.image()
    image.write_bytes(PATTERN[: 8 * MIB] + bytes(8 * MIB) + PATTERN[16 * MIB :])
    return loops.attach(image)


def rest(loops: Loops, disk: Path) -> bytes:
    """The disk without the partition."""
    run("blockdev", "--flushbufs", disk)
    content = loops.directory.joinpath("image").read_bytes()
    return content[: 8 * MIB] + content[16 * MIB :]


def measured(target: Path, results: Path, observer: Any = None, **settings: str) -> ResultSet:
    plan = expand(parse(STUDY), open_target(str(target)), settings=settings)
    return execute(plan, results, observer=observer, consent=Consent(destroy=(str(target),)))


def test_a_partition_that_vanishes_before_it_is_claimed_is_an_error(
    loops: Loops, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("addpart", disk, 1, 8 * MIB // 512, 8 * MIB // 512)
    part = Path(f"{disk}p1")
    plan = expand(parse(STUDY), open_target(str(part)))

    def vanish(number: str, kernel: Kernel) -> list[str]:
        """The last step before the claim."""
        remove_partition(disk)
        return guard.underlying(number, kernel)

    monkeypatch.setattr(device_target, "underlying", vanish)
    with pytest.raises(TargetError, match=f"cannot open `{part}`") as caught:
        execute(plan, tmp_path / "set", consent=Consent(destroy=(str(part),)))
    assert "was removed since it was checked" in caught.value.hint
    assert rest(loops, disk) == PATTERN[: 24 * MIB]
    assert not (tmp_path / "set").exists()
    with pytest.raises(TargetError):
        open_target(str(part))


def test_the_claim_keeps_a_partition_from_vanishing(loops: Loops, disk: Path, tmp_path: Path) -> None:
    part = loops.partition(disk, 1, 8 * MIB, 8 * MIB)
    refused: list[str] = []

    def remove() -> None:
        refused.append(subprocess.run(["delpart", disk, "1"], capture_output=True, text=True, check=False).stderr)

    measured(part, tmp_path / "set", After(remove, during=True))
    assert "busy" in refused[0]
    assert [each.outcome for each in ResultSet.open(tmp_path / "set").records()] == ["complete"] * 3
    assert rest(loops, disk) == PATTERN[: 24 * MIB]


@pytest.fixture
def replaced(loops: Loops) -> tuple[Path, Path, Callable[[], None]]:
    """A loop device, a file with data, and what attaches that file under the same name and number."""
    device, victim = loops.attach(loops.image()), loops.image("victim")
    victim.write_bytes(PATTERN)

    return device, victim, lambda: loops.replace(device, victim)


def test_a_disk_that_got_the_number_of_the_one_that_was_checked_is_not_claimed(
    replaced: tuple[Path, Path, Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, victim, replace_it = replaced
    plan = expand(parse(STUDY), open_target(str(device)))

    def underlying(number: str, kernel: Kernel) -> list[str]:
        replace_it()
        return guard.underlying(number, kernel)

    monkeypatch.setattr(device_target, "underlying", underlying)
    size = str(len(PATTERN))
    with pytest.raises(TargetError, match="is not the device that was checked"):
        execute(plan, tmp_path / "set", consent=Consent(destroy=(str(device),), confirm=(size,)))
    run("blockdev", "--flushbufs", device)
    assert victim.read_bytes() == PATTERN


def test_a_disk_that_got_the_number_of_one_under_a_setup_is_not_wiped(
    replaced: tuple[Path, Path, Callable[[], None]],
) -> None:
    """The claim is released while a file system holds the device: after an unplug nothing holds its number."""
    device, victim, replace_it = replaced
    target = device_target.open_devices([str(device)])
    devices = device_target.TargetDevices(target=target)
    with target.claims.held({number_of(device): str(device)}):
        devices.provide(Setup(file_system="ext4"))
        replace_it()
        with pytest.raises(TargetError, match="another disk has its name and number"):
            devices.release()
        assert number_of(device) not in target.claims.numbers
    journal.removed(device_target._entry(number_of(device), target.own))
    run("blockdev", "--flushbufs", device)
    assert victim.read_bytes() == PATTERN


@pytest.fixture
def unplugged(
    replaced: tuple[Path, Path, Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Consent]:
    """The result set of a study on ext4 whose drive was replaced before it could be wiped, and the consent."""
    device, _, replace_it = replaced
    release = device_target.TargetDevices.release

    def release_another(devices: device_target.TargetDevices) -> None:
        if devices._given:
            monkeypatch.setattr(device_target.TargetDevices, "release", release)
            replace_it()
        release(devices)

    monkeypatch.setattr(device_target.TargetDevices, "release", release_another)
    plan = expand(parse(STUDY), open_target(str(device)), settings={"file_system": "ext4"})
    consent = Consent(destroy=(str(device),))
    with pytest.raises(TargetError, match="is not the device that was checked"):
        execute(plan, tmp_path / "set", consent=consent)
    assert [entry.what for entry in journal.entries()] == ["device"], "its directory is gone, the drive has our ext4"
    return tmp_path / "set", consent


def plug_in(loops: Loops, device: Path) -> Path:
    """Attach the first file under that name again."""
    image = loops.directory / "image"
    loops.replace(device, image)
    return image


def abandoned() -> None:
    """As if the process of the entries had exited."""
    for entry in journal.entries():
        journal._write(replace(entry, owner=""))


def test_cleanup_removes_the_entry_of_a_drive_that_is_gone_and_leaves_the_other_one(
    replaced: tuple[Path, Path, Callable[[], None]], unplugged: tuple[Path, Consent]
) -> None:
    device, victim, _ = replaced
    abandoned()
    assert not any(each.failed for each in cleanup())
    assert journal.entries() == []
    run("blockdev", "--flushbufs", device)
    assert victim.read_bytes() == PATTERN


def test_cleanup_wipes_a_drive_that_is_back(
    loops: Loops, replaced: tuple[Path, Path, Callable[[], None]], unplugged: tuple[Path, Consent]
) -> None:
    device, victim, _ = replaced
    image = plug_in(loops, device)
    assert signatures.signatures(number_of(device), device.name)
    abandoned()
    assert not any(each.failed for each in cleanup())
    assert journal.entries() == []
    run("blockdev", "--flushbufs", device)
    assert image.read_bytes()[:MIB] == MARK.ljust(MIB, b"\0")
    assert victim.read_bytes() == PATTERN


def test_resume_wipes_a_drive_that_is_back_and_completes_the_study(
    loops: Loops, replaced: tuple[Path, Path, Callable[[], None]], unplugged: tuple[Path, Consent]
) -> None:
    device, victim, _ = replaced
    plug_in(loops, device)
    directory, consent = unplugged
    result_set = resume(directory, retry_failed=True, consent=consent)
    assert {each.outcome for each in result_set.records()} == {"complete"} and not result_set.missing_runs()
    assert journal.entries() == []
    assert victim.read_bytes() == PATTERN


@pytest.mark.parametrize("during", [False, True])
def test_a_node_that_vanishes_stops_the_study_and_the_device_is_wiped(
    loops: Loops, tmp_path: Path, during: bool
) -> None:
    device = loops.attach(loops.image())
    node = loops.node(device)
    with pytest.raises(TargetError, match="no longer leads to a block device"):
        measured(node, tmp_path / "set", After(node.unlink, during=during))
    assert len(ResultSet.open(tmp_path / "set").records()) == (0 if during else 1)
    run("blockdev", "--flushbufs", device)
    assert loops.directory.joinpath("image").read_bytes()[:MIB] == MARK.ljust(MIB, b"\0")


def test_a_run_that_fails_when_its_device_vanishes_is_a_failed_record(loops: Loops, tmp_path: Path) -> None:
    """As when a drive is unplugged: the node is gone, and the engine has failed."""
    node = loops.node(loops.attach(loops.image()))

    def vanish() -> None:
        node.unlink()
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if Path("/proc", child, "comm").read_text().startswith("iosonde-engine"):
                os.kill(int(child), signal.SIGKILL)

    with pytest.raises(TargetError, match="no longer leads to a block device"):
        # Long enough for the engine to be alive when its first interval arrives here.
        measured(node, tmp_path / "set", After(vanish, during=True), duration="60s")
    [record] = ResultSet.open(tmp_path / "set").records()
    assert record.outcome == "failed" and record.failure, record.outcome
    assert record.failure.message.startswith(f"`{node}` no longer leads to a block device"), record.failure


def test_a_device_that_fails_when_its_edges_are_zeroed_is_an_error(loops: Loops, tmp_path: Path) -> None:
    """It accepts the writes of the study, and none at the end: its backing file system is full."""
    memory = tmp_path / "memory"
    memory.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", memory)
    loops.at_end("umount", memory)
    inner = Loops(memory)
    try:
        device = inner.attach(inner.image())

        def fill() -> None:
            with (memory / "other").open("wb") as file, pytest.raises(OSError, match="No space"):
                file.write(bytes(16 * MIB))
                file.flush()

        with pytest.raises(TargetError, match="cannot zero the first and last MiB"):
            measured(device, tmp_path / "set", After(fill))
    finally:
        inner.close()
    assert ResultSet.open(tmp_path / "set").records(), "completed runs are kept"


def test_a_partition_that_vanishes_while_devices_are_listed_is_left_out(
    loops: Loops, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops.partition(disk, 1, 8 * MIB, 8 * MIB)
    number = number_of(disk)
    before = len(block_stack.partitions(number)), len(Kernel().partitions(number))
    monkeypatch.setattr(block_stack, "_read", lambda file: "")
    monkeypatch.setattr("iosonde.storage.block_layer.kernel.read", lambda file: "")
    assert before == (1, 1)
    assert (block_stack.partitions(number), Kernel().partitions(number)) == ([], [])
