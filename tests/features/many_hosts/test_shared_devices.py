"""A study of several hosts on one block device: a loop device, and processes on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from engines import real_engine
from loop_stacks import MIB, loop_devices

from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.execution.carrier import HostOptions
from iosonde.features.many_hosts import host_plan, relay
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Plan
from iosonde.planning import Against, expand
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety.consent import NO_CONSENT, Consent
from iosonde.study.model import Study

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "loop devices")]

LOCAL = HostOptions(hosts="local:2")
ANY_SKEW = "iosonde.features.many_hosts.merge.SKEW_FAILURE", 1e9


@pytest.fixture(autouse=True)
def _any_skew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.setattr(*ANY_SKEW)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_devices(tmp_path, 40 * MIB) as [made]:
        yield made


def planned(device: Path, *, against: Path | None = None, **measurement: Any) -> Plan:
    study = {
        "name": "device", "title": "Device", "question": "?", "repeats": 2,
        "measurement": {
            "span": "8MiB", "block_size": "16KiB", "ramp": "0s", "interval": "100ms", "duration": "3s", **measurement
        },
        "parts": [{"name": "main", "factors": {"read_fraction": [1.0]}}],
        "profiles": {"quick": {}},
    }  # fmt: skip
    arm = Against(target=open_target(str(against))) if against else None
    return expand(Study.model_validate(study), open_target(str(device)), profile="quick", against=arm)


def consent(device: Path) -> Consent:
    return Consent(destroy=(str(device),))


def hosts_of(total: ResultSet) -> list[ResultSet]:
    return [ResultSet.open(total.directory / "hosts" / name) for name in total.plan.hosts]


def layouts(total: ResultSet) -> list[int]:
    """Bytes that all runs of each host wrote before they measured."""
    return [
        sum((record.result or {})["layout"]["written_bytes"] for record in host.records()) for host in hosts_of(total)
    ]


def read_ahead(device: Path) -> str:
    return Path("/sys/block", device.name, "queue/read_ahead_kb").read_text().strip()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultSet]:
    place = tmp_path_factory.mktemp("hosts")
    with loop_devices(place, 40 * MIB) as [device], pytest.MonkeyPatch.context() as patched:
        patched.setenv("IOSONDE_ENGINE", str(real_engine()))
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        patched.setattr(*ANY_SKEW)
        before = read_ahead(device)
        assert before != "32"
        plan = planned(device, read_ahead="32KiB")
        yield execute(plan, place / "set", consent=consent(device), hosts=LOCAL)
        assert read_ahead(device) == before


def test_each_host_measures_a_region_and_the_first_one_fills_all_of_them(finished: ResultSet) -> None:
    assert [record.outcome for record in finished.records()] == ["complete", "complete"]
    spans = [host.records()[0].spec["workload"]["streams"][0]["span"]["offset_bytes"] for host in hosts_of(finished)]
    assert spans == [0, 8 * MIB]
    assert layouts(finished) == [16 * MIB, 0]
    assert finished.plan.destroys[0].what.startswith(f"bytes 0 to {16 * MIB - 1} are lost")
    with Path(finished.plan.target).open("rb") as opened:
        assert opened.read(MIB).startswith(MARK), "no signature remains"


def test_the_queue_of_a_device_is_set_by_the_first_host_of_a_machine(finished: ResultSet) -> None:
    of_first, of_other = ([record.queue_settings for record in host.records()] for host in hosts_of(finished))
    assert [[each["value"] for each in settings] for settings in of_first] == [["32"], ["32"]]
    assert of_other == [[], []]


def test_the_counters_of_the_device_are_counted_once_for_both_hosts(finished: ResultSet) -> None:
    """A host that waits for a CPU reads them later than the other, and tools of other tests read the device too."""
    for record in finished.records():
        part = record.of(Hosts)
        assert part
        with finished.scan("usage", [record]) as rows:
            loop = rows.filter(pl.col("device").str.starts_with("7:")).collect()
        total = sum(share.bytes for share in part.shares)
        assert not loop["interval"].is_duplicated().any()
        assert 0.6 * total <= loop["read_bytes"].sum() < 1.6 * total
        assert "other_io" not in {warning.code for warning in record.warnings}


def test_hosts_may_share_one_span(device: Path) -> None:
    plan = host_plan.on_hosts(planned(device, host_files="shared"), ["north", "south"])
    north, south = (host_plan.of_host(plan, name).runs[0].spec["workload"] for name in plan.hosts)
    assert plan.destroys[0].what.startswith(f"bytes 0 to {8 * MIB - 1} are lost")
    assert north["streams"] == south["streams"]
    assert (north["layout"], south["layout"]) == ("missing", "never")


def test_hosts_have_regions_on_both_devices_of_a_comparison(tmp_path: Path) -> None:
    with loop_devices(tmp_path, 40 * MIB, 24 * MIB) as [one, other]:
        plan = planned(one, against=other)
        host_plan.check(plan)
        host_plan.check_space(plan, 3)
        with pytest.raises(TargetError, match=f"4 hosts require 32 MiB; `{other}` has 24 MiB"):
            host_plan.check_space(plan, 4)
        plan = host_plan.on_hosts(plan, ["north", "south"])
        south = host_plan.of_host(plan, "south")
    assert [(each.path, each.what.partition(" (")[0]) for each in plan.destroys] == [
        (str(each), f"bytes 0 to {16 * MIB - 1} are lost") for each in (one, other)
    ]
    assert {
        (run.spec["workload"]["target"]["path"], run.spec["workload"]["streams"][0]["span"]["offset_bytes"])
        for run in south.runs
    } == {(str(one), 8 * MIB), (str(other), 8 * MIB)}


def test_consent_names_the_device_once_for_all_hosts(device: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="would be overwritten") as refused:
        execute(planned(device), tmp_path / "set", hosts=LOCAL)
    assert refused.value.where.endswith("on the hosts host0, host1")
    assert f"--destroy {device}" in refused.value.hint
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("shares_claims", [False, True])
def test_a_host_checks_consent_and_guard_by_itself(device: Path, tmp_path: Path, shares_claims: bool) -> None:
    """The coordinator has checked them on its own machine only."""
    plan = host_plan.on_hosts(planned(device), ["north"])

    async def opened(given: Consent) -> str:
        agent = await relay.Agent.start(60.0)
        request = {
            "directory": str(tmp_path / "host"),
            "plan": host_plan.of_host(plan, "north").model_dump(mode="json"),
        }
        may = {"destroy": given.destroy, "confirm": given.confirm, "shares_claims": shares_claims}
        await agent.send({"do": "open", "session": "s", **request, **may})
        while True:
            for message in await agent.receive(1.0):
                if message["is"] in ("opened", "refused"):
                    await agent.end()
                    return f"{message['is']} {message.get('what', '')}"

    if shares_claims:
        assert "is not claimed any more by the first host of this machine" in asyncio.run(opened(consent(device)))
    else:
        assert "would be overwritten" in asyncio.run(opened(NO_CONSENT))


def test_a_device_must_have_room_for_the_regions_of_all_hosts(device: Path) -> None:
    host_plan.check_space(planned(device), 5)
    with pytest.raises(TargetError, match="6 hosts require 48 MiB"):
        host_plan.check_space(planned(device), 6)


def test_verification_on_a_shared_device_is_refused(device: Path) -> None:
    with pytest.raises(TargetError, match="does not support verification of what hosts share"):
        host_plan.check(planned(device, verify="after"))
