"""Linux md for real, inside User Mode Linux: states of iosonde's arrays, members that fail in a run, and killed sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine
from lab_load import SEQUENTIAL, measure
from simulated_disks import During, consent_for, disks, is_free, kill_during_measurement, run, study, wipe

from iosonde.errors import TargetError
from iosonde.execution import Observer, execute, resume
from iosonde.features.arrays import md, mdstat
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan import Plan, Run
from iosonde.planning import expand
from iosonde.protocol.event import Event
from iosonde.report.content.report import collect
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.safety.consent import Consent

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

NAME = "iosonde-0a0b0c0d"
NOTHING = {"superblocks": [""] * 4, "running": [], "journal": [], "free": [True] * 4}
LOAD = {"span": "8MiB", "block_size": "4KiB", "access": "random", "queue_depth": 8, "ramp": 0, "duration": "1s"}
ARRAY = {"interval": "100ms", "chunk": "64KiB", "array_state": "clean"}


def left() -> dict[str, Any]:
    """What exists of any array."""
    return {
        "superblocks": [md.name_on(disk) for disk in disks()[:4]],
        "running": [path.name for path in Path("/sys/block").glob("md*")],
        "journal": [entry.path for entry in journal.entries()],
        "free": [is_free(disk) for disk in disks()[:4]],
    }


def planned(*members: Path, **factors: list[Any]) -> Plan:
    measurement = {**LOAD, **ARRAY, "devices": len(members)}
    return expand(study(measurement, factors), open_target(",".join(map(str, members))))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    wipe(*disks()[:4])
    yield
    assert left() == NOTHING


@pytest.mark.parametrize(
    ("level", "asked", "degraded", "status"),
    [
        ("raid0", {"state": "clean"}, None, "active raid0"),
        ("raid1", {"state": "clean"}, 0, "[4/4] [UUUU]"),
        ("raid10", {"state": "degraded", "failed_members": 2}, 2, "[4/2] [U_U_]"),
        ("raid5", {"state": "rebuilding", "failed_members": 1}, 1, "[4/3] [UUU_]"),
    ],
)
def test_an_array_has_the_requested_state_until_it_is_removed(
    level: str, asked: dict[str, Any], degraded: int | None, status: str
) -> None:
    setup = ArraySetup(level=level, chunk=64 << 10, **asked)  # type: ignore[arg-type]
    built = md.build(disks()[:4], setup, NAME)
    state, kernel = built.state(), Path("/proc/mdstat").read_text()
    with pytest.raises(TargetError, match=f"there is an array `/dev/md/{NAME}` already"):
        md.build(disks()[:4], setup, NAME)
    if level == "raid1":
        [entry] = journal.entries()
        journal.undo(Path(entry.path))  # As `iosonde cleanup` does after a kill.
    else:
        journal.undo(built.key)
    assert (state["level"], state["raid_disks"], state.get("degraded")) == (level, 4, degraded)
    assert status in kernel
    assert mdstat.is_synchronising(state) == ("recovery" in kernel) == (asked["state"] == "rebuilding")
    assert level != "raid0" or state["chunk_bytes"] == 64 << 10


class FailsAMember(Observer):
    """Fails a member of each array in the middle of the first run on it."""

    def __init__(self, member: Path) -> None:
        self.member = member
        self.failed: list[str] = []
        self.notes: list[str] = []

    def event(self, run_: Run, event: Event) -> None:
        if event["event"] == "interval" and event["phase"] == "measure" and event["index"] == 2:
            [array] = left()["running"]
            if Path("/sys/block", array, "md/degraded").read_text().strip() == "0":
                run("mdadm", f"/dev/{array}", "--fail", self.member)
                self.failed.append(run_.run_id)

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_study_continues_without_a_failed_member_and_its_records_have_it(tmp_path: Path) -> None:
    """Two runs on each of two arrays, which lose a member in the first."""
    members = disks()[:3]
    observer = FailsAMember(members[2])
    plan = planned(*members, array=["raid1", "raid5"], read_fraction=[0.0, 0.5])
    results = execute(plan, tmp_path / "set", observer=observer, consent=consent_for(*members))
    records = results.records()
    assert [record.outcome for record in records] == ["complete"] * 4
    assert len(observer.failed) == 2
    for record in records:
        check(record, members[2].name, fails_in_it=record.run_id in observer.failed)
    [chapter] = collect([results]).chapters
    sentences = "\n".join(finding.sentence for _, found in chapter.findings for finding in found)
    assert f"A member of the array failed during the run: `{members[2].name}`" in sentences
    assert "The array was degraded before the run started" in sentences
    assert len([note for note in observer.notes if note.endswith("; the study continues")]) == 2
    threads = results.runs["array_thread"].drop_nulls()
    assert sum(name.endswith("_raid5") for name in threads) == 2


def check(record: Record, member: str, *, fails_in_it: bool) -> None:
    """A run in which a member fails, or the next one on the same array."""
    array, warnings = record.parts["array"], {each.code: each.message for each in record.warnings}
    if not fails_in_it:
        assert array["before"]["degraded"] == 1
        assert "1 of 3 members were missing" in warnings["member_missing"]
        assert "member_failed" not in warnings
        return
    assert (array["before"]["degraded"], array["after"]["degraded"]) == (0, 1)
    assert array["before"]["members"][member] == "in_sync"
    assert "in_sync" not in array["after"]["members"].get(member, "")
    assert array["member_failed"]["phase"] == "measure"
    assert array["member_failed"]["interval"] >= 2
    assert array["before"]["at"] < array["member_failed"]["at"] < array["after"]["at"]
    assert f"`{member}`; 1 of 3 are missing, first seen in" in warnings["member_failed"]
    assert "member_missing" not in warnings


def test_a_failed_member_of_a_stripe_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    """dm-flakey on top of a disk fails all I/O from some time on, until the run has ended."""
    good, bad = disks()[:2]
    flaky = Path("/dev/mapper/flaky")
    run("dmsetup", "create", "flaky", "--noudevsync", "--table", flakey(bad, up=True))
    run("dmsetup", "mknodes", "flaky")
    try:
        observer = During(lambda: load(bad, up=False), after=lambda: load(bad, up=True))
        consent = Consent(destroy=(str(good), str(flaky)))
        plan = planned(good, flaky, array=["raid0"], read_fraction=[0.5], duration=["10min"])
        results = execute(plan, tmp_path / "set", observer=observer, consent=consent)
    finally:
        run("dmsetup", "remove", "--noudevsync", "--retry", "flaky")
    [record] = results.records()
    assert record.outcome == "failed"
    assert record.failure
    assert "Input/output error" in record.failure.message


def load(disk: Path, *, up: bool) -> None:
    run("dmsetup", "load", "flaky", "--table", flakey(disk, up=up))
    # Without freezing a file system above: there is none.
    run("dmsetup", "suspend", "--noudevsync", "--noflush", "--nolockfs", "flaky")
    run("dmsetup", "resume", "--noudevsync", "flaky")


def flakey(disk: Path, *, up: bool) -> str:
    sectors = int(Path("/sys/block", disk.name, "size").read_text())
    return f"0 {sectors} flakey {disk} 0 {'3600 0' if up else '0 3600'}"


@pytest.mark.parametrize(
    ("level", "count", "data", "most"), [("raid0", 4, 4, 1.01), ("raid5", 4, 3, 2.0), ("raid6", 4, 2, 3.0)]
)
def test_members_get_data_and_parity_of_full_stripes_and_each_is_read(
    level: str, count: int, data: int, most: float
) -> None:
    """Counted, not timed. Without a full stripe at once, every write of a chunk would write its parity too."""
    members = disks()[:count]
    built = md.build(members, ArraySetup(level=level, chunk=64 << 10, state="clean"), NAME)  # type: ignore[arg-type]
    try:
        before = [counted(each) for each in members]
        load = {"block_bytes": data << 16, "queue_depth": 4, "span_bytes": data << 23}
        for read_fraction in (0.0, 1.0):
            measure(real_engine(), built.device, access=SEQUENTIAL, read_fraction=read_fraction, operations=64, **load)
        moved = [[now - then for now, then in zip(counted(each), first, strict=True)]
                 for each, first in zip(members, before, strict=True)]  # fmt: skip
    finally:
        journal.undo(built.key)
    reads, writes = ([each[place] for each in moved] for place in (0, 1))
    assert min(reads) > 0.5 * sum(reads) / count > 0
    assert 0.999 * count / data < sum(writes) / (64 * data << 16) < most


def counted(disk: Path) -> list[int]:
    """Bytes read and written (`Documentation/block/stat.rst`)."""
    fields = Path("/sys/block", disk.name, "stat").read_text().split()
    return [512 * int(fields[2]), 512 * int(fields[6])]


@pytest.mark.parametrize("then", ["cleanup", "resume"])
def test_after_a_kill_the_array_is_stopped_and_its_members_are_free(then: str, tmp_path: Path) -> None:
    members = disks()[:3]
    plan = planned(*members, array=["raid5"], duration=["2s"])
    kill_during_measurement(plan, tmp_path / "set", *members)
    existed = left()
    assert len(existed["running"]) == 1
    assert existed["free"][:3] == [False] * 3
    assert all(name.startswith("iosonde-") for name in existed["superblocks"][:3])
    assert existed["journal"]
    if then == "cleanup":
        assert [each.failed for each in cleanup() if each.failed] == []
    else:
        resume(tmp_path / "set", consent=consent_for(*members))
        assert [each.outcome for each in ResultSet.open(tmp_path / "set").records()] == ["complete"]
