"""Object daemons of Ceph on raw devices: consent, claims, a run with an outage, a kill, and that the devices are blank again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from leftovers import killed_once
from loop_stacks import loop_devices

from iosonde.engine.protocol import Event
from iosonde.errors import IosondeError, TargetError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute
from iosonde.plan import Plan, Run
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import cleanup, open_target
from iosonde.storage.block_layer.block_nodes import number_of
from iosonde.storage.block_layer.signatures import EDGE_BYTES, MARK
from iosonde.storage.safety import guard, journal
from iosonde.storage.safety.guard import Consent
from iosonde.storage.safety.journal import MOUNTS
from iosonde.storage.setups import file_systems
from iosonde.storage.targets import device_target

GIB = 1 << 30

pytestmark = [pytest.mark.system, pytest.mark.needs("loop devices")]
CEPH = pytest.mark.needs(
    "ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "librados", "engine"
)

STUDY = """
name = "raw-daemons"
title = "Object daemons on raw devices"
question = "How fast?"
workload = "objects"
repeats = 1
[measurement]
osds = 2
replication = 2
placement_groups = 4
osd_size = "4GiB"
file_system = "bluestore"
operation = "random_read"
objects = 20
queue_depth = 2
arrival = "constant"
rate = 200
ramp = "0s"
duration = "4s"
interval = "200ms"
[[parts]]
[profiles.standard]
"""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert journal.entries() == []
    # Tests in other processes mount there too, but none of them a cluster.
    left = [path for path, names, _ in os.walk(MOUNTS) if any(name.startswith("ceph-") for name in names)]
    assert left == []


def devices(directory: Path, count: int) -> AbstractContextManager[list[Path]]:
    return loop_devices(directory, *[3 * GIB // 2] * count)


def planned(targets: list[Path], **settings: str) -> Plan:
    return expand(parse(STUDY), open_target(",".join(map(str, targets))), settings=settings)


def is_blank(device: Path) -> bool:
    with device.open("rb") as file:
        start = file.read(EDGE_BYTES)
        file.seek(-EDGE_BYTES, os.SEEK_END)
        return not any(start.removeprefix(MARK)) and not any(file.read(EDGE_BYTES))


class Watcher(Observer):
    """Records if the devices are claimed, by the end of each interval of the measurement since its start, ns."""

    def __init__(self, targets: list[Path]) -> None:
        self._numbers = [number_of(each) for each in targets]
        self.claimed: dict[int, bool] = {}
        self._begin_ns: int | None = None

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval":
            self._begin_ns = event["begin_ns"] if self._begin_ns is None else self._begin_ns
            self.claimed[event["end_ns"] - self._begin_ns] = all(map(guard.is_claimed, self._numbers))


@CEPH
def test_each_daemon_has_a_device_of_its_own_which_is_claimed_and_blank_in_the_end(tmp_path: Path) -> None:
    with devices(tmp_path, 2) as targets:
        plan = planned(targets, stop_osd_after="600ms", restart_osd_after="2s")
        assert {each.path for each in plan.destroys} == set(map(str, targets))
        assert all("all of it" in each.what for each in plan.destroys)
        with pytest.raises(TargetError, match="--destroy"):
            execute(plan, tmp_path / "refused", consent=Consent())
        assert all(map(is_blank, targets))

        given = Consent(destroy=tuple(map(str, targets)))
        watcher = Watcher(targets)
        [record] = execute(plan, tmp_path / "set", consent=given, observer=watcher).records()
        assert record.outcome == "complete", record.failure
        assert record.result is not None and record.server is not None
        assert record.result["objects"]["wrong"] == 0 and record.result["objects"]["checked"] > 0
        assert record.server["osd_outage"]["recovery_seconds"] > 0
        opened = {each["file"]: each["flags"] for each in record.server["open_files"]}
        assert set(opened) == {"osd-0", "osd-1"}
        assert record.server["raw_devices"] == 2
        assert {each.name for each in targets} <= {each["name"] for each in record.target["devices"]}
        assert "file_system" not in record.target, "the record describes the devices, and no file system in memory"
        written = {each["device"]: each["write_bytes"] for each in record.result["devices"]}
        assert set(map(number_of, targets)) <= set(written)
        assert watcher.claimed
        # It is started again at the end of an interval that ends two seconds after the start or later.
        assert all(is_claimed for end_ns, is_claimed in watcher.claimed.items() if end_ns < 1_900_000_000), (
            "also while a daemon is down"
        )
        assert not any(guard.is_claimed(number_of(each)) for each in targets)
        assert all(map(is_blank, targets))


@CEPH
def test_after_a_kill_cleanup_wipes_the_device_and_removes_everything(tmp_path: Path) -> None:
    with devices(tmp_path, 1) as [device]:
        plan = planned([device], osds="1", replication="1", duration="60s")
        result_set = ResultSet.create(tmp_path / "set", plan)

        def is_daemon_started() -> bool:
            return any(entry.path.endswith("osd.0") for entry in journal.entries())

        killed_once(result_set.directory, is_daemon_started, destroy=[str(device)])
        with device.open("rb") as file:
            assert file_systems.has_osd_label(file.fileno(), plan.created_name)
        cleaned = cleanup()
        assert not any(each.failed for each in cleaned), cleaned
        assert is_blank(device)
        assert not guard.is_claimed(number_of(device))


@pytest.mark.parametrize(("label_of", "is_wiped"), [("iosonde-00000000", True), ("iosonde-11111111", False)])
def test_a_device_of_another_cluster_is_not_wiped_after_a_kill(
    tmp_path: Path, label_of: str, *, is_wiped: bool
) -> None:
    """By the journal the device was ours. By its label another cluster may have it now."""
    with devices(tmp_path, 1) as [device]:
        own = "iosonde-00000000"
        facts = {"own": own, "device": str(device), "identity": device_target._identity(number_of(device))}
        journal.created(MOUNTS / own / f"on-{device.name}", "device", facts=facts)
        [file] = journal._directory().glob("*.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | {"owner": "another boot 1 1"}))
        label = b"bluestore block device\n" + file_systems.osd_identity(label_of, 0).encode()
        with device.open("r+b", buffering=0) as raw:
            raw.write(label.ljust(4096, b"\n"))
        with pytest.raises(TargetError, match="member of an array or pool"):
            open_target(str(device))
        assert [each.failed for each in cleanup()] == [False]
        assert is_blank(device) == is_wiped


@pytest.mark.needs("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "ceph-authtool", "monmaptool")
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    single = {"file_system": "none", "osds": "1", "replication": "1", "osd_size": "1GiB"}
    with devices(tmp_path, 2) as targets:
        for settings, message in (
            (single, "is not a directory.*--set file_system=bluestore"),
            ({"osds": "3"}, "requires 3 devices; the target has 2"),
            ({"objects": "700", "object_size": "2MiB"}, r"80% of the object daemons' devices \(2 x 1.5 GiB\)"),
        ):
            with pytest.raises(IosondeError) as error:
                planned(targets[:1] if settings is single else targets, **settings)
            assert re.search(message, f"{error.value.what} {error.value.hint}"), error.value
        assert all(map(is_blank, targets))
