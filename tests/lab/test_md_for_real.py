"""Linux md for real, inside User Mode Linux: states of iosonde's arrays, members that fail in a run, and killed sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest_sessions import is_free, run, study
from simulated_disks import consent_for, disks, kill_during_measurement, wipe

from iosonde.engine.protocol import Event
from iosonde.errors import TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.features.arrays import md
from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan import Plan, Run
from iosonde.planning import expand
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.safety import journal
from iosonde.storage.tools import wait_until

pytestmark = pytest.mark.usefixtures("inside_user_mode_linux")

NAME = "iosonde-0a0b0c0d"
NOTHING = {"superblocks": [""] * 4, "running": [], "journal": [], "free": [True] * 4}
LOAD = {"span": "8MiB", "block_size": "4KiB", "access": "random", "queue_depth": 8, "ramp": 0, "duration": "1s"}
ARRAY = {"interval": "100ms", "chunk": "64KiB", "array_state": "clean"}


def left() -> dict[str, Any]:
    """Parts of any array that exist."""
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
    is_rebuilding = asked["state"] == "rebuilding"
    fastest = Path("/proc/sys/dev/raid/speed_limit_max")
    usual = fastest.read_text()
    fastest.write_text("1000")  # KiB/s: a rebuild takes minutes. It does not hold for the first synchronisation.
    try:
        built = md.build(disks()[:4], setup, NAME)
        state = built.state()
        # The list has a rebuild once its first sectors are read, which is after it has started.
        wait_until(
            lambda: ("recovery" in Path("/proc/mdstat").read_text()) == is_rebuilding, 60, "it is not in the list"
        )
        kernel = Path("/proc/mdstat").read_text()
    finally:
        fastest.write_text(usual)
    with pytest.raises(TargetError, match=f"there is an array `/dev/md/{NAME}` already"):
        md.build(disks()[:4], setup, NAME)
    if level == "raid1":
        [entry] = journal.entries()
        journal.undo(Path(entry.path))  # As `iosonde cleanup` does after a kill.
    else:
        journal.undo(built.key)
    assert (state["level"], state["raid_disks"], state.get("degraded")) == (level, 4, degraded)
    assert status in kernel
    assert md.is_synchronising(state) == is_rebuilding
    assert level == "raid1" or state["chunk_bytes"] == 64 << 10


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
    observer, name = FailsAMember(members[2]), members[2].name
    plan = planned(*members, array=["raid1", "raid5"], read_fraction=[0.0, 0.5])
    results = execute(plan, tmp_path / "set", observer=observer, consent=consent_for(*members))
    assert [record.outcome for record in results.records()] == ["complete"] * 4
    assert len(observer.failed) == len([note for note in observer.notes if note.endswith("; the study continues")]) == 2
    for record in results.records():
        array, warnings = record.parts["array"], {each.code: each.message for each in record.warnings}
        if record.run_id not in observer.failed:
            assert array["before"]["degraded"] == 1
            assert "1 of 3 members were missing" in warnings["member_missing"]
            assert "member_failed" not in warnings
            continue
        assert (array["before"]["degraded"], array["after"]["degraded"]) == (0, 1)
        assert array["before"]["members"][name] == "in_sync" != array["after"]["members"].get(name)
        assert array["member_failed"]["phase"] == "measure"
        assert array["member_failed"]["interval"] >= 2
        assert array["before"]["at"] < array["member_failed"]["at"] < array["after"]["at"]
        assert f"`{name}`; 1 of 3 are missing, first seen in" in warnings["member_failed"]
        assert "member_missing" not in warnings
    threads = results.runs["array_thread"].drop_nulls()
    assert sum(name.endswith("_raid5") for name in threads) == 2


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
