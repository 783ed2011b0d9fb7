"""The outage of an object daemon: recovery during the measurement, errors, stops, and counters, without a real cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import ServerError, TargetError
from iosonde.execution.stop import Stop
from iosonde.features.object_stores import osd_outage
from iosonde.features.object_stores.ceph import ClusterLayout
from iosonde.features.object_stores.ceph.cluster import CephCluster
from iosonde.features.object_stores.osd_outage import OsdOutage, not_recovered
from iosonde.protocol.event import Event
from iosonde.servers.account import account_for
from iosonde.servers.directories import Directories
from iosonde.servers.server import Installation

pytestmark = pytest.mark.engine

MS = 1_000_000
PARAMETERS = {"stop_osd_after": 100 * MS, "restart_osd_after": 200 * MS}


class FakeCluster(CephCluster):
    """Clean some time after the restart of its daemon; the program `ceph` and daemons do not exist."""

    clean_after_s = 0.1
    restarted: float | None = None
    claim_error: TargetError | None = None
    start_error: TargetError | None = None

    def stop_osd(self, name: str) -> None:
        if self.claim_error:
            raise self.claim_error

    def start_osd(self, name: str) -> None:
        if self.start_error:
            raise self.start_error
        self.restarted = time.monotonic()

    def _answers(self, name: str, command: str) -> dict[str, Any]:
        return {"state": "active"}

    def placement_group_states(self) -> dict[str, int]:
        is_clean = self.restarted is not None and time.monotonic() - self.restarted >= self.clean_after_s
        return {"active+clean": 4} if is_clean else {"active+undersized+degraded": 4}

    def failure(self, what: str) -> ServerError:
        return ServerError(what)


@pytest.fixture
def stop() -> Iterator[Stop]:
    found = Stop()
    yield found
    found.close()


Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Creates a cluster of two object daemons that do not run."""
    monkeypatch.setattr(osd_outage, "POLL_S", 0.01)

    def made(kind: type[CephCluster] = FakeCluster) -> CephCluster:
        return kind(
            installation=Installation(version="16", build=""),
            directories=Directories(own=tmp_path / "iosonde-c0ffee00", name="ceph-c0ffee00"),
            layout=ClusterLayout(osds=2, replication=2, placement_groups=4, osd_bytes=1 << 30, settings={}),
            account=account_for([]),
            check=stop.check,
        )

    return made


def interval(number: int) -> Event:
    """The end of an interval of 100 ms."""
    event: Any = {
        "event": "interval", "phase": "measure", "index": number, "begin_ns": number * 100 * MS,
        "end_ns": (number + 1) * 100 * MS,
    }  # fmt: skip
    return event  # type: ignore[no-any-return]


def measured(outage: OsdOutage, intervals: int) -> None:
    for number in range(intervals):
        outage.event(interval(number))


def test_a_recovery_during_the_measurement_ends_before_it(make: Make) -> None:
    outage = OsdOutage(make(), PARAMETERS)
    measured(outage, 2)
    assert outage._waiting
    outage._waiting.join()
    recovered = time.monotonic()
    time.sleep(0.3)  # The rest of the measurement.
    facts = outage.waited(engine_failed=False)
    assert facts["daemon"] == "osd.1"
    assert 0.1 <= facts["recovery_seconds"] <= recovered - outage._start - facts["restarted_seconds"] + 0.001
    assert not_recovered(facts) == []
    without = OsdOutage(make(), {})
    measured(without, 3)
    assert without.waited(engine_failed=False) == {}


def test_an_incomplete_recovery_is_a_warning(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osd_outage, "RECOVERY_S", 0.05)
    cluster = make()
    cluster.clean_after_s = 60.0
    outage = OsdOutage(cluster, PARAMETERS)
    measured(outage, 2)
    facts = outage.waited(engine_failed=False)
    assert "recovery_seconds" not in facts and "restarted_seconds" in facts
    [warning] = not_recovered(facts)
    assert warning.code == "osd_not_recovered"
    assert "did not become healthy" in warning.message and "4 active+undersized+degraded" in warning.message
    with pytest.raises(ServerError, match="did not become healthy"):
        cluster.wait_until_clean(0.05)


@pytest.mark.parametrize("failing", ["claim_error", "start_error"])
def test_an_error_of_the_outage_is_kept_and_not_repeated(make: Make, failing: str) -> None:
    cluster = make()
    setattr(cluster, failing, TargetError("the device is in use", where="`/dev/sdb`"))
    outage = OsdOutage(cluster, PARAMETERS)
    measured(outage, 5)
    facts = outage.waited(engine_failed=False)
    assert (facts["error"], facts["where"]) == ("the device is in use", "`/dev/sdb`")
    assert "the device is in use: `/dev/sdb`" in not_recovered(facts)[0].message


def test_a_stop_ends_the_wait_for_recovery(make: Make, stop: Stop) -> None:
    cluster = make()
    cluster.clean_after_s = 60.0
    outage = OsdOutage(cluster, PARAMETERS)
    measured(outage, 2)
    stop.set()
    assert "stopped" in outage.waited(engine_failed=False)["error"]
    with pytest.raises(ServerError) as raised:
        cluster.wait_until_clean()
    assert raised.value.code == "stopped"


@pytest.mark.parametrize("engine_failed", [True, False])
def test_a_daemon_is_not_restarted_after_a_failure_or_a_stop(make: Make, stop: Stop, engine_failed: bool) -> None:
    cluster = make()
    outage = OsdOutage(cluster, PARAMETERS)
    measured(outage, 1)
    if not engine_failed:
        stop.set()
    assert "restarted_seconds" not in outage.waited(engine_failed=engine_failed)
    assert cluster.restarted is None
