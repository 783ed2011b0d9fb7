"""Two directories, each host with a file system of its own on them, compared in one session of two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from engines import real_engine

from iosonde.execution import execute
from iosonde.execution.carrier import HostOptions
from iosonde.features.many_hosts.record import Hosts
from iosonde.planning import Against, expand
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.study.model import Study

pytestmark = [pytest.mark.system, pytest.mark.needs("root", "loop devices")]

STUDY = {
    "name": "pair", "title": "Two directories", "question": "?", "repeats": 2,
    "measurement": {
        "span": "1MiB", "ramp": "0s", "interval": "100ms", "duration": "3s", "file_system": "ext4",
        "setup_size": "64MiB", "arrival": "constant", "rate": "100",
    },
    "parts": [{"name": "main", "factors": {"read_fraction": [1.0]}}],
    "profiles": {"quick": {}},
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("hosts")
    for name in ("one", "other"):
        (found / name).mkdir()
    return found


@pytest.fixture(scope="module")
def finished(place: Path) -> Iterator[ResultSet]:
    against = Against(target=open_target(str(place / "other")), settings={"rate": "200"})
    plan = expand(Study.model_validate(STUDY), open_target(str(place / "one")), profile="quick", against=against)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IOSONDE_ENGINE", str(real_engine()))
        patched.setenv("XDG_STATE_HOME", str(place / "state"))
        patched.setattr("iosonde.features.many_hosts.merge.SKEW_FAILURE", float("inf"))
        yield execute(plan, place / "set", hosts=HostOptions(hosts="local:2"))
        assert list(journal.entries()) == []


def test_both_arms_are_measured_by_all_hosts_in_pairs(finished: ResultSet) -> None:
    records = finished.records()
    assert [record.failure for record in records] == [None] * 4
    for pair in (records[:2], records[2:]):
        assert {record.case_id for record in pair} == {"a/main/read_fraction=1", "b/main/read_fraction=1"}
    for record in records:
        part = record.of(Hosts)
        assert part
        assert [share.host for share in part.shares] == ["host0", "host1"]
        assert all(share.count for share in part.shares)
        [stream] = record.spec["workload"]["streams"]
        assert stream["arrival"]["rate"] == {"a": 100, "b": 200}[record.case_id[0]]


def test_each_host_has_a_file_system_of_its_own_and_removes_it(finished: ResultSet, place: Path) -> None:
    own = [ResultSet.open(finished.directory / "hosts" / name).records() for name in finished.plan.hosts]
    assert all(record.setup["requested"]["file_system"] == "ext4" for records in own for record in records)
    assert len({record.spec["workload"]["target"]["path"] for records in own for record in records}) == 4
    assert [list((place / name).iterdir()) for name in ("one", "other")] == [[], []]


def test_devices_of_all_hosts_are_in_the_total(finished: ResultSet) -> None:
    """Hosts of one machine have different loop devices on the same drive: each counts once, with its host's reads.

    A device may have more: tools of other tests look for file systems on every block device.
    """
    for record in finished.records():
        part = record.of(Hosts)
        assert part
        with finished.scan("usage", [record]) as rows:
            loops = rows.filter(pl.col("device").str.starts_with("7:")).collect()
        assert not loops.select("interval", "device").is_duplicated().any()
        read = loops.group_by("device").agg(pl.col("read_bytes").sum())["read_bytes"].to_list()
        assert len(read) == 2
        assert min(read) >= 0.6 * min(share.bytes for share in part.shares)
        named = [device["name"] for device in record.target["devices"]]
        assert len([name for name in named if name.startswith("loop")]) == 2
        assert len(named) == len(set(named))
