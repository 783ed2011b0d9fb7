"""One study on one and on two hosts: what takes part, what is recorded of it, and how hosts are compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from command_line import Iosonde
from many_hosts_plans import LOCAL, any_skew, measured

from iosonde.engine.protocol import Event
from iosonde.execution.progress import Rates
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import HostOptions, execute
from iosonde.features.many_hosts.record import Hosts
from iosonde.plan import Run
from iosonde.planning.procedure import conclusions
from iosonde.planning.procedure.search import SearchConclusion
from iosonde.results import ResultSet
from iosonde.storage.safety import journal

pytestmark = pytest.mark.system


class Observed(Observer):
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
        any_skew(patched)
        patched.setenv("XDG_STATE_HOME", str(found / "state"))
        # A host answers every 2 s, and these runs are shorter.
        patched.setattr("iosonde.features.many_hosts.hosts.POLL_S", 0.1)
        patched.setattr("iosonde.features.many_hosts.hosts.MEANWHILE_S", 0.1)
        yield found


@pytest.fixture(scope="module")
def finished(place: Path) -> ResultSet:
    """Two runs on one host and two runs on two hosts; a third host is not used."""
    # Long enough for a common interval although one of them starts late.
    load = {"arrival": "constant", "rate": "400", "duration": "4s"}
    plan, hosts = measured(place, {"hosts": [1, 2]}, **load), HostOptions(hosts="local:3")
    found = execute(plan, place / "set", observer=OBSERVED, hosts=hosts)
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


def test_only_the_hosts_of_a_run_take_part_and_are_a_factor_like_any_other(finished: ResultSet) -> None:
    assert finished.plan.hosts == ["host0", "host1"]
    assert hosts_of(finished) == {"main/hosts=1": [("host0",)] * 2, "main/hosts=2": [("host0", "host1")] * 2}
    second = ResultSet.open(finished.directory / "hosts" / "host1")
    assert {record.case_id for record in second.records()} == {"main/hosts=2"}
    assert second.missing_runs() == [], "it does not wait for runs of the other host"
    rows = finished.sql("SELECT hosts, hosts_measured, jobs_total FROM runs ORDER BY hosts").rows()
    assert rows == [(1, 1, 1), (1, 1, 1), (2, 2, 2), (2, 2, 2)]
    assert finished.sql("SELECT min(hosts_jain_index) >= 0.5 AND max(hosts_jain_index) <= 1 FROM runs").item()
    assert "host" not in finished.sql("SELECT * FROM runs").columns
    for table in ("runs", "intervals", "histograms", "usage"):
        found = finished.sql(f"SELECT DISTINCT host FROM hosts.{table} ORDER BY host")
        assert found["host"].to_list() == ["host0", "host1"], table
    rates = "SELECT host, min(value) > 0 FROM hosts.metrics WHERE metric = 'iops' GROUP BY host ORDER BY host"
    assert finished.sql(rates).rows() == [("host0", True), ("host1", True)]


def test_totals_are_sums_over_the_same_time_and_reported(finished: ResultSet, tmp_path: Path, iosonde: Iosonde) -> None:
    assert not ResultSet.open(finished.directory).problems
    for record in finished.records():
        part = record.of(Hosts)
        assert part and record.result
        assert part.coordinator_cpu_share, "it asks each host for progress"
        for share in part.shares:
            assert share.carrier_cpu_share and share.retransmitted_share is not None
            assert share.clock_drift_ppm is None, "one machine has one clock"
        with finished.scan("intervals", [record]) as rows:
            total = rows.collect()
        assert total["count"].sum() == sum(share.count for share in part.shares)
        assert total["bytes"].sum() == sum(share.bytes for share in part.shares)
        with finished.scan("histograms", [record]) as rows:
            assert rows.collect().filter(pl.col("latency") == "completion")["count"].sum() == total["count"].sum()
        assert part.window_ns == record.result["end_ns"] - record.result["begin_ns"]
        assert {job["host"] for job in record.result["jobs"]} == {share.host for share in part.shares}
    for host in finished.hosts():
        assert not host.problems
        assert "other_io" not in {warning.code for record in host.records() for warning in record.warnings}
    done = iosonde("report", finished.directory, "--output", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    assert "Fairness between hosts" in (tmp_path / "report.html").read_text()


def test_hosts_start_at_the_same_instant_with_files_and_random_numbers_of_their_own(finished: ResultSet) -> None:
    for record in finished.records():
        own = [found for host in finished.hosts() if (found := host.record(record.run_id))]
        starts = [each.result["start"] for each in own if each.result]
        assert len({start["requested_unix_ns"] for start in starts}) == 1
        assert all(start["started_unix_ns"] >= start["requested_unix_ns"] for start in starts)
        part = record.of(Hosts)
        latest = max(start["started_unix_ns"] + start["last_job_ns"] - start["started_ns"] for start in starts)
        assert part and part.skew_ns == latest - min(start["started_unix_ns"] for start in starts)
        assert len(own) == record.parameters["hosts"]
        assert len({each.spec["seed"] for each in own}) == len(own)
        assert len({each.spec["workload"]["target"]["path"] for each in own}) == len(own)


def test_the_total_rate_is_known_while_hosts_measure(finished: ResultSet) -> None:
    assert len(OBSERVED.rates) == 4
    for rates in OBSERVED.rates.values():
        assert [index for index, _ in rates] == [1] * (len(rates) - 1) + [0], "the whole one replaces the estimates"
        assert all("IOPS" in text for _, text in rates)


def test_a_search_decides_from_the_total_of_all_hosts(place: Path) -> None:
    """Each host reads 40, then 80 blocks a second; either of them alone would stay below the limit."""
    # What a pause of the machine delays is read after it, except for one at the end.
    search = {"over": "rate", "between": [40, 80], "holds": "iops <= 100", "precision": 1.0}
    load = {"arrival": "constant", "rate": "40", "duration": "4s"}
    plan = measured(place, {"read_fraction": [1.0]}, part={"search": search}, repeats=1, **load)
    found = execute(plan, place / "searched", hosts=LOCAL)
    [(_, conclusion)] = conclusions(found)
    assert isinstance(conclusion, SearchConclusion)
    assert (conclusion.reached, conclusion.value, conclusion.fails_at) == (True, 40, 80), conclusion.reason
    assert list(hosts_of(found).values()) == [[("host0", "host1")]] * 2
    assert any("met up to rate 40/s on each of 2 hosts" in each.sentence for each in found.findings)
    own = ResultSet.open(found.directory / "hosts" / "host1").records()
    assert [record.parameters["rate"] for record in own] == [40, 80]


def test_hosts_read_and_write_the_same_files(place: Path) -> None:
    plan = measured(place, {"read_fraction": [0.5]}, host_files="shared", duration="200ms")
    found = execute(plan, place / "shared", hosts=LOCAL)
    assert [record.outcome for record in found.records()] == ["complete"] * 2
    runs = {host.directory.name: host.records() for host in found.hosts()}
    first, second = runs["host0"], runs["host1"]
    assert len({record.spec["workload"]["target"]["path"] for record in (*first, *second)}) == 1
    written = [[(record.result or {})["layout"]["written_bytes"] for record in each] for each in (first, second)]
    assert written == [[1 << 20, 0], [0, 0]], "laid out once"
    assert list((place / "data").iterdir()) == [], "and removed once"
    assert list(journal.entries()) == []
