"""Changes of a target while a study runs: names that lead elsewhere, mounts, swapped files. No byte of anything
that was not named changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_stacks import MIB, Loops, run

from iosonde.errors import TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.plan import Setup
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.kernel import Kernel
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.guard import NO_CONSENT, Consent
from iosonde.storage.targets import device_target

Replaced = tuple[Path, Path, Callable[[], None]]
PATTERN = b"\xa5" * 32 * MIB

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]

STUDY = """
name = "writes"
title = "Writes"
question = "?"
repeats = 3
[measurement]
span = "4MiB"
block_size = "64KiB"
read_fraction = 0.0
ramp = 0
duration = "20ms"
interval = "100ms"
[[parts]]
factors.queue_depth = [1]
[profiles.standard]
"""


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path)
    yield made
    made.close()


class After(Observer):
    """Does something once the first record is written, or while the first run measures."""

    def __init__(self, action: Callable[[], object], *, during: bool = False) -> None:
        self.action, self.during, self.is_done = action, during, False

    def event(self, run: Any, event: Any) -> None:
        if self.during and event["event"] == "interval":
            self._act()

    def run_ended(self, run: Any, record: Any) -> None:
        if not self.during:
            self._act()

    def _act(self) -> None:
        if not self.is_done:
            self.is_done = True
            self.action()


def measured(target: Path, results: Path, observer: Any = None, **settings: str) -> ResultSet:
    plan = expand(parse(STUDY), open_target(str(target)), settings=settings)
    return execute(plan, results, observer=observer, consent=Consent(destroy=(str(target),)))


@pytest.mark.parametrize("during", [False, True])
def test_a_link_that_leads_to_another_device_stops_the_study(loops: Loops, tmp_path: Path, during: bool) -> None:
    named, victim = loops.attach(loops.image("named")), loops.image("victim")
    victim.write_bytes(PATTERN)
    other = loops.attach(victim)
    link = tmp_path / "link"
    link.symlink_to(named)

    def relink() -> None:
        link.unlink()
        link.symlink_to(other)

    with pytest.raises(TargetError, match="now leads to the block device"):
        measured(link, tmp_path / "set", After(relink, during=during))
    assert len(ResultSet.open(tmp_path / "set").records()) == (0 if during else 1)
    run("blockdev", "--flushbufs", other)
    assert victim.read_bytes() == PATTERN
    assert loops.directory.joinpath("named").read_bytes()[:MIB] == MARK.ljust(MIB, b"\0"), "what was measured is wiped"


def test_a_mount_during_a_run_stops_the_study_and_the_file_system_survives_the_end(
    loops: Loops, tmp_path: Path
) -> None:
    """An exclusive claim does not prevent it: the loop device above the target is another device."""
    target = loops.attach(loops.image())

    def mount() -> None:
        upper = loops.attach(target, offset=16 * MIB)
        loops.file_system(upper)
        (loops.mount(upper) / "precious").write_text("data")

    with pytest.raises(TargetError, match=r"came into use during the study: `loop[0-9]+` is attached to") as caught:
        measured(target, tmp_path / "set", After(mount, during=True))
    assert "is mounted at" in caught.value.where
    assert ResultSet.open(tmp_path / "set").records() == [], "the run was disturbed"
    assert (tmp_path / "mounted/precious").read_text() == "data"
    run("umount", tmp_path / "mounted")
    run("mount", next(loops.above(target)), tmp_path / "mounted")
    assert (tmp_path / "mounted/precious").read_text() == "data", "it was not wiped at the end"


def test_resume_requires_consent_again_for_the_current_contents(loops: Loops, tmp_path: Path) -> None:
    """Consent is for one session: an existing device is neither written nor wiped without it, also if it was given."""
    target = loops.attach(loops.image())
    plan = expand(parse(STUDY), open_target(str(target)))
    results = execute(plan, tmp_path / "set", time_limit_s=0, consent=Consent(destroy=(str(target),)))
    assert len(results.missing_runs()) == 3
    loops.file_system(target)
    content = loops.directory.joinpath("image").read_bytes()
    size = run("blockdev", "--getsize64", target)
    for consent, missing in (
        (NO_CONSENT, "--destroy"),
        (Consent(destroy=(str(target),)), "--confirm"),
        (Consent(destroy=("/dev/null",), confirm=(size,)), "--destroy"),
        (Consent(confirm=(size,)), "--destroy"),
    ):
        with pytest.raises(TargetError) as caught:
            resume(tmp_path / "set", consent=consent)
        assert missing in str(caught.value), consent
        run("blockdev", "--flushbufs", target)
        assert loops.directory.joinpath("image").read_bytes() == content
    resumed = resume(tmp_path / "set", consent=Consent(destroy=(str(target),), confirm=(size,)))
    assert [record.outcome for record in resumed.records()] == ["complete"] * 3


@pytest.mark.parametrize("kind", ["symlink", "hard link"])
def test_a_file_of_ours_that_became_a_link_is_a_failed_run_and_the_victim_unchanged(tmp_path: Path, kind: str) -> None:
    directory, victim = tmp_path / "data", tmp_path / "victim"
    directory.mkdir()
    victim.write_bytes(b"\xa5" * 4 * MIB)

    def swap() -> None:
        (own,) = directory.iterdir()
        (own / "data").unlink()
        (own / "data").symlink_to(victim) if kind == "symlink" else (own / "data").hardlink_to(victim)

    with pytest.raises(TargetError, match="files that iosonde did not create and did not remove: `data`"):
        measured(directory, tmp_path / "set", After(swap), io_mode="buffered")
    records = ResultSet.open(tmp_path / "set").records()
    assert [record.outcome for record in records] == ["complete", "failed", "failed"]
    assert records[1].failure
    assert "is not what iosonde created there" in records[1].failure.message
    assert victim.read_bytes() == b"\xa5" * 4 * MIB
    assert victim.stat().st_nlink == (2 if kind == "hard link" else 1)


@pytest.fixture
def replaced(loops: Loops) -> Replaced:
    """A loop device, a file with data, and what attaches that file under the same name and number."""
    device, victim = loops.attach(loops.image()), loops.image("victim")
    victim.write_bytes(PATTERN)

    return device, victim, lambda: loops.replace(device, victim)


def test_a_disk_that_got_the_number_of_the_one_that_was_checked_is_not_claimed(
    replaced: Replaced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    replaced: Replaced,
) -> None:
    """The claim is released while a file system holds the device: after an unplug nothing holds its number."""
    device, victim, replace_it = replaced
    target = device_target.open_devices([str(device)])
    with target.claims.held({number_of(device): str(device)}):
        target.provide(Setup(file_system="ext4"))
        replace_it()
        with pytest.raises(TargetError, match="another disk has its name and number"):
            target.release()
        assert number_of(device) not in target.claims.descriptors
    journal.removed(device_target._entry(number_of(device), target.own))
    run("blockdev", "--flushbufs", device)
    assert victim.read_bytes() == PATTERN


def test_a_node_that_vanishes_stops_the_study_and_the_device_is_wiped(loops: Loops, tmp_path: Path) -> None:
    device = loops.attach(loops.image())
    node = loops.node(device)
    with pytest.raises(TargetError, match="no longer leads to a block device"):
        measured(node, tmp_path / "set", After(node.unlink, during=True))
    assert ResultSet.open(tmp_path / "set").records() == []
    run("blockdev", "--flushbufs", device)
    assert loops.directory.joinpath("image").read_bytes()[:MIB] == MARK.ljust(MIB, b"\0")


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
