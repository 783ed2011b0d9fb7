"""One study on one and on two hosts: what takes part, what is recorded of it, and how hosts are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engines import real_engine

import iosonde
from iosonde.errors import TargetError
from iosonde.execution import execute
from iosonde.execution.carrier import HostOptions
from iosonde.execution.observer import Silent
from iosonde.execution.progress import Rates
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Plan, Run
from iosonde.planning import expand
from iosonde.procedure.observations import conclusions
from iosonde.procedure.search import SearchConclusion
from iosonde.protocol.event import Event
from iosonde.results import ResultSet
from iosonde.storage import open_target
from iosonde.storage.safety import journal
from iosonde.study.model import Study

pytestmark = pytest.mark.system


def study(factors: dict[str, Any], **measurement: Any) -> Study:
    content = {
        "name": "hosts", "title": "Reads of several hosts", "question": "How much do several hosts read?", "repeats": 2,
        "measurement": {
            "span": "1MiB", "io_mode": "buffered", "ramp": "0s", "duration": "1s", "interval": "100ms",
            **measurement,
        },
        "parts": [{"name": "main", "factors": factors}],
        "profiles": {"quick": {}},
    }  # fmt: skip
    return Study.model_validate(content)


def planned(place: Path, factors: dict[str, Any]) -> Plan:
    return expand(study(factors), open_target(str(place / "data")), profile="quick")


class Observed(Silent):
    """Keeps the rates of intervals, by run."""

    def __init__(self) -> None:
        self.rates: dict[str, list[tuple[int, str]]] = {}

    def event(self, run: Run, event: Event) -> None:
        if event["event"] == "interval":
            rates = Rates(run)
            rates.add(event)
            self.rates.setdefault(run.run_id, []).append((event["index"], rates.text()))


OBSERVED = Observed()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    found = tmp_path_factory.mktemp("hosts")
    (found / "data").mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("IOSONDE_ENGINE", str(real_engine()))
        patched.setenv("XDG_STATE_HOME", str(found / "state"))
        # Other processes on these CPUs may delay a start.
        patched.setattr("iosonde.features.many_hosts.merge.SKEW_FAILURE", float("inf"))
        # A host answers every 2 s, and these runs are shorter.
        patched.setattr("iosonde.features.many_hosts.carrier.POLL_S", 0.1)
        patched.setattr("iosonde.features.many_hosts.carrier.MEANWHILE_S", 0.1)
        yield found


@pytest.fixture(scope="module")
def finished(place: Path) -> ResultSet:
    """Two runs on one host and two runs on two hosts; a third host is not used."""
    found = execute(
        planned(place, {"hosts": [1, 2]}), place / "set", observer=OBSERVED, hosts=HostOptions(hosts="local:3")
    )
    assert [record.failure for record in found.records()] == [None] * 4
    return found


def hosts_of(found: ResultSet) -> dict[str, list[tuple[str, ...]]]:
    """Hosts in the records of each case."""
    names: dict[str, list[tuple[str, ...]]] = {}
    for record in found.records():
        part = record.of(Hosts)
        assert part
        names.setdefault(record.case_id, []).append(tuple(share.host for share in part.shares))
    return names


def test_only_the_hosts_of_a_run_take_part(finished: ResultSet) -> None:
    assert finished.plan.hosts == ["host0", "host1"]
    assert hosts_of(finished) == {"main/hosts=1": [("host0",)] * 2, "main/hosts=2": [("host0", "host1")] * 2}
    second = ResultSet.open(finished.directory / "hosts" / "host1")
    assert {record.case_id for record in second.records()} == {"main/hosts=2"}
    assert second.missing_runs() == [], "it does not wait for runs of the other host"


def test_hosts_are_a_factor_like_any_other(finished: ResultSet) -> None:
    rows = finished.sql("SELECT hosts, hosts_measured, jobs_total FROM runs ORDER BY hosts").rows()
    assert rows == [(1, 1, 1), (1, 1, 1), (2, 2, 2), (2, 2, 2)]
    assert finished.sql("SELECT min(hosts_jain_index) >= 0.5 AND max(hosts_jain_index) <= 1 FROM runs").item()


def test_too_few_hosts_are_refused_before_anything_is_written(place: Path) -> None:
    plan = planned(place, {"hosts": [1, 2]})
    with pytest.raises(TargetError, match="the parameter `hosts` requires `--hosts`; the study `hosts` uses up to 2"):
        execute(plan, place / "refused")
    with pytest.raises(TargetError, match="the study requires 2 hosts; got 1"):
        execute(plan, place / "refused", hosts=HostOptions(hosts="local:1"))
    assert not (place / "refused").exists()


def test_the_total_rate_is_known_while_hosts_measure(finished: ResultSet) -> None:
    assert len(OBSERVED.rates) == 4
    for rates in OBSERVED.rates.values():
        assert [index for index, _ in rates] == [1] * (len(rates) - 1) + [0], "the whole one replaces the estimates"
        assert all("IOPS" in text for _, text in rates)
    assert any(len(rates) > 1 for rates in OBSERVED.rates.values())


def test_the_cost_of_the_carrier_is_part_of_the_record(finished: ResultSet) -> None:
    for record in finished.records():
        part = record.of(Hosts)
        assert part
        for share in part.shares:
            assert share.carrier_cpu_share is not None
            assert 0 < share.carrier_cpu_share < 1
            assert share.clock_drift_ppm is None, "one machine has one clock"
            assert share.retransmitted_share is not None


def test_one_query_compares_hosts(finished: ResultSet) -> None:
    rows = finished.sql(
        "SELECT host, count(*) AS runs, min(iops) > 0 AS known FROM hosts.runs WHERE hosts = 2 GROUP BY host ORDER BY host"
    )
    assert rows.rows() == [("host0", 2, True), ("host1", 2, True)]
    for table in ("intervals", "histograms", "usage"):
        found = finished.sql(f"SELECT DISTINCT host FROM hosts.{table} ORDER BY host")
        assert found["host"].to_list() == ["host0", "host1"], table
    rates = finished.sql(
        "SELECT host, min(value) > 0 FROM hosts.metrics WHERE metric = 'iops' GROUP BY host ORDER BY host"
    )
    assert rates.rows() == [("host0", True), ("host1", True)]


def test_tables_of_totals_have_no_rows_of_hosts(finished: ResultSet) -> None:
    assert finished.sql("SELECT count(*) FROM runs").item() == 4
    assert "host" not in finished.sql("SELECT * FROM runs").columns


def test_a_search_decides_from_the_total_of_all_hosts(place: Path) -> None:
    """Each host reads 40, then 80 blocks a second; either of them alone would stay below the limit."""
    # What a pause of the machine delays is read after it, except for one at the end.
    content = study({"read_fraction": [1.0]}, arrival="constant", rate="40", duration="8s").model_dump(mode="json")
    part = content["parts"][0] | {
        "search": {"over": "rate", "between": [40, 80], "holds": "iops <= 100", "precision": 1.0}
    }
    searched = Study.model_validate(content | {"repeats": 1, "parts": [part]})
    plan = expand(searched, open_target(str(place / "data")), profile="quick")
    found = execute(plan, place / "searched", hosts=HostOptions(hosts="local:2"))
    [(_, conclusion)] = conclusions(found)
    assert isinstance(conclusion, SearchConclusion)
    assert (conclusion.reached, conclusion.value, conclusion.fails_at) == (True, 40, 80), conclusion.reason
    assert list(hosts_of(found).values()) == [[("host0", "host1")]] * 2
    assert "met up to rate 40 on each of 2 hosts" in " ".join(str(found).split())
    own = ResultSet.open(found.directory / "hosts" / "host1").records()
    assert [record.parameters["rate"] for record in own] == [40, 80]


def test_hosts_read_and_write_the_same_files(place: Path) -> None:
    of = study({"read_fraction": [0.5]}, host_files="shared", duration="200ms")
    found = iosonde.run(of, target=place / "data", output=place / "shared", profile="quick", hosts="local:2")
    assert [record.outcome for record in found.records()] == ["complete"] * 2
    runs = {host.directory.name: host.records() for host in found.hosts()}
    first, second = runs["host0"], runs["host1"]
    assert len({record.spec["workload"]["target"]["path"] for record in (*first, *second)}) == 1
    written = [[(record.result or {})["layout"]["written_bytes"] for record in each] for each in (first, second)]
    assert written == [[1 << 20, 0], [0, 0]], "laid out once"
    assert list((place / "data").iterdir()) == [], "and removed once"
    assert list(journal.entries()) == []
