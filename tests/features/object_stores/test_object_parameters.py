"""Parameters of a load on objects, the spec they become, and what a run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import ServerError, StudyError, TargetError
from iosonde.servers.server import Installation
from iosonde.storage import open_target
from iosonde.workload import named

pytestmark = pytest.mark.unit

GIB = 1 << 30
OBJECTS = named("objects")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosonde.features.object_stores.ceph.locate", lambda: Installation(version="16", build=""))


def spec(directory: Path, **parameters: Any) -> Any:
    streams = {"main": OBJECTS.build(parameters)}
    return OBJECTS.resolve(streams, open_target(str(directory)), seed=1, run_id="r")["workload"]


def test_parameters_become_a_load_through_librados(reachable: Path) -> None:
    found = spec(reachable, operation="random_read", object_size="64KiB", arrival="poisson", rate=100)
    assert found["store"]["kind"] == "rados"
    assert Path(found["store"]["config_path"]).is_relative_to(reachable)
    assert found["object_bytes"] == 65536
    [stream] = found["streams"]
    assert (stream["operation"], stream["arrival"]) == ("random_read", {"kind": "poisson", "rate": 100.0})


def test_clusters_that_differ_have_directories_of_their_own(reachable: Path) -> None:
    one, same, other = (
        Path(spec(reachable, **each)["store"]["config_path"]).parents[1].name
        for each in ({}, {"object_size": "64KiB"}, {"osds": 2})
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"replication": 2}, "`replication` is at most `osds`"),
        ({"osd_size": "512MiB"}, "at least 1 GiB"),
        ({"object_size": "63"}, "64 B to 64 MiB"),
        ({"arrival": "poisson"}, "needs a `rate`"),
        ({"rate": 10}, "set `arrival`"),
        ({"timeout": "10ms"}, "at least 1 s"),
        ({"stop_osd_after": "1s"}, "needs `replication` of 2 or more"),
        ({"stop_osd_after": "1h", "osds": 2, "replication": 2}, "beyond the end"),
        ({"stop_osd_after": "2s", "restart_osd_after": "1s", "osds": 2, "replication": 2}, "between `stop_osd_after`"),
        ({"objects": 10**7}, "raise `osd_size`"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        OBJECTS.build(parameters)


@pytest.mark.needs("root")
def test_a_target_that_the_servers_user_cannot_reach_is_refused_before_anything_runs(reachable: Path) -> None:
    private = reachable / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(ServerError, match=f"cannot enter `{private}`"):
        spec(private)


def test_a_run_needs_room_for_all_daemons_and_memory_for_what_is_in_flight(tmp_path: Path) -> None:
    streams = {
        "main": OBJECTS.build({"osds": 3, "osd_size": "2GiB", "object_size": "4MiB", "jobs": 2, "queue_depth": 4})
    }
    [size] = OBJECTS.files(streams).values()
    assert 6 * GIB < size < 7 * GIB
    assert OBJECTS.buffer_bytes(streams) == 8 * (4 << 20)


def test_a_simulated_device_has_no_room_for_a_cluster() -> None:
    with pytest.raises(TargetError, match="needs a file system"):
        OBJECTS.fit({"main": OBJECTS.build({})}, open_target("null:1GiB"), room_bytes=0)
