"""Hosts that are processes on this machine: on one block device, and with file systems of their own in a comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import many_hosts_plans
import polars as pl
import pytest
from loop_stacks import MIB, loop_devices
from many_hosts_plans import LOCAL, any_skew

from iosonde.errors import TargetError
from iosonde.execution.session import execute
from iosonde.features.many_hosts import host_plan, worker
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.storage.block_layer.signatures import MARK
from iosonde.storage.safety import journal
from iosonde.storage.safety.guard import NO_CONSENT, Consent

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "loop devices")]


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_devices(tmp_path, 40 * MIB) as [made]:
        yield made


def planned(device: Path, **options: Any) -> Plan:
    return many_hosts_plans.planned(
        device, {"read_fraction": [1.0]}, span="8MiB", block_size="16KiB", ramp="0s", interval="100ms", duration="3s",
        **options,
    )  # fmt: skip


def hosts_of(total: ResultSet) -> list[ResultSet]:
    return [ResultSet.open(total.directory / "hosts" / name) for name in total.plan.hosts]


def read_ahead(device: Path) -> str:
    return Path("/sys/block", device.name, "queue/read_ahead_kb").read_text().strip()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultSet]:
    place = tmp_path_factory.mktemp("hosts")
    with loop_devices(place, 40 * MIB) as [device], pytest.MonkeyPatch.context() as patched:
        any_skew(patched)
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        before = read_ahead(device)
        assert before != "32"
        plan = planned(device, read_ahead="32KiB")
        yield execute(plan, place / "set", consent=Consent(destroy=(str(device),)), hosts=LOCAL)
        assert read_ahead(device) == before


def test_each_host_measures_a_region_and_the_first_one_fills_all_of_them(finished: ResultSet) -> None:
    assert [record.outcome for record in finished.records()] == ["complete", "complete"]
    spans = [host.records()[0].spec["workload"]["streams"][0]["span"]["offset_bytes"] for host in hosts_of(finished)]
    assert spans == [0, 8 * MIB]
    laid_out = [
        [(each.result or {})["layout"]["written_bytes"] for each in host.records()] for host in hosts_of(finished)
    ]
    assert [sum(each) for each in laid_out] == [16 * MIB, 0]
    assert finished.plan.destroys[0].what.startswith(f"bytes 0 to {16 * MIB - 1} are lost")
    with Path(finished.plan.target).open("rb") as opened:
        assert opened.read(MIB).startswith(MARK), "no signature remains"
    of_first, of_other = ([record.queue_settings for record in host.records()] for host in hosts_of(finished))
    assert [[each["value"] for each in settings] for settings in of_first] == [["32"], ["32"]]
    assert of_other == [[], []], "the first host of a machine sets the queue"


def test_the_counters_of_the_device_are_counted_once_for_both_hosts(finished: ResultSet) -> None:
    for record in finished.records():
        part = record.of(Hosts)
        assert part
        with finished.scan("usage", [record]) as rows:
            loop = rows.filter(pl.col("device").str.starts_with("7:")).collect()
        assert sum(share.bytes for share in part.shares) > 0 and loop["read_bytes"].sum() > 0
        assert not loop["interval"].is_duplicated().any()
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
        with pytest.raises(TargetError, match="does not support verification of what hosts share"):
            host_plan.check(planned(one, verify="after"))
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
        agent = await worker.Agent.start(60.0)
        of_host = host_plan.of_host(plan, "north").model_dump(mode="json")
        request = {"do": "open", "session": "s", "directory": str(tmp_path / "host"), "plan": of_host}
        await agent.send(request | {"destroy": given.destroy, "confirm": given.confirm, "shares_claims": shares_claims})
        while True:
            for message in await agent.receive(1.0):
                if message["is"] in ("opened", "refused"):
                    await agent.end()
                    return f"{message['is']} {message.get('what', '')}"

    if shares_claims:
        assert "is not claimed any more by the first host of this machine" in asyncio.run(
            opened(Consent(destroy=(str(device),)))
        )
    else:
        assert "would be overwritten" in asyncio.run(opened(NO_CONSENT))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("hosts")
    for name in ("one", "other"):
        (found / name).mkdir()
    return found


@pytest.fixture(scope="module")
def compared(place: Path) -> Iterator[ResultSet]:
    plan = many_hosts_plans.planned(
        place / "one", {"read_fraction": [1.0]}, against=place / "other", against_settings={"rate": "200"},
        ramp="0s", interval="100ms", duration="3s", file_system="ext4", setup_size="64MiB", arrival="constant", rate=100,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        any_skew(patched)
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        yield execute(plan, place / "set", hosts=LOCAL)
        assert list(journal.entries()) == []


def test_all_hosts_measure_both_targets_with_file_systems_of_their_own(compared: ResultSet, place: Path) -> None:
    """Hosts of one machine have different loop devices on the same drive: each counts once, with its host's reads."""
    records = compared.records()
    assert [record.failure for record in records] == [None] * 4
    for pair in (records[:2], records[2:]):
        assert {record.case_id for record in pair} == {"a/main/read_fraction=1", "b/main/read_fraction=1"}
    for record in records:
        part = record.of(Hosts)
        assert part and all(share.count for share in part.shares)
        assert [share.host for share in part.shares] == ["host0", "host1"]
        [stream] = record.spec["workload"]["streams"]
        assert stream["arrival"]["rate"] == {"a": 100, "b": 200}[record.case_id[0]]
        with compared.scan("usage", [record]) as rows:
            loops = rows.filter(pl.col("device").str.starts_with("7:")).collect()
        assert not loops.select("interval", "device").is_duplicated().any()
        read = loops.group_by("device").agg(pl.col("read_bytes").sum())["read_bytes"].to_list()
        assert len(read) == 2 and min(read) > 0
        named = [device["name"] for device in record.target["devices"]]
        assert len([name for name in named if name.startswith("loop")]) == 2 and len(named) == len(set(named))
    own = [record for host in hosts_of(compared) for record in host.records()]
    assert all(record.setup["requested"]["file_system"] == "ext4" for record in own)
    assert len({record.spec["workload"]["target"]["path"] for record in own}) == 4
    assert [list((place / name).iterdir()) for name in ("one", "other")] == [[], []]
