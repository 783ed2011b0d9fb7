"""Records and rates of hosts become one, as the same operations on one host would give; and which hosts are slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from many_hosts_plans import planned
from plans import a_failure, a_record, hand_plan, tables

from iosonde.errors import TargetError
from iosonde.execution.attempt import Attempt
from iosonde.execution.progress import Rates
from iosonde.features.many_hosts import worker
from iosonde.features.many_hosts.clock import Clock
from iosonde.features.many_hosts.merge import HostRun, merge, total
from iosonde.features.many_hosts.progress import Progress
from iosonde.features.many_hosts.progress import total as total_rate
from iosonde.features.many_hosts.questions import Straggler, stragglers
from iosonde.features.many_hosts.record import Hosts, HostShare, jain_index
from iosonde.features.many_hosts.together import Servers, within
from iosonde.results.schema import INTERVALS, USAGE, Failure, RecordVerdict, RecordWarning

pytestmark = pytest.mark.unit

MS = 1_000_000
UNIX_NS = 1_800_000_000 * 10**9
PLAN = hand_plan(levels=(1,), repeats=1)
RUN = PLAN.runs[0]
BACKEND = {"kind": "sync", "features": [], "fallbacks": []}


def host_run(name: str, *, late_ms: float = 0, offset_ms: float = 0, **changes: Any) -> HostRun:
    """A host whose clock is `offset_ms` ahead, and whose load started late by the clock of the coordinator."""
    record = a_record(PLAN, RUN, **changes)
    started = UNIX_NS + round((late_ms + offset_ms) * MS)
    start = {"requested_unix_ns": UNIX_NS, "started_unix_ns": started, "end_unix_ns": started}
    start |= {"started_ns": 5, "last_job_ns": 5}
    if record.result:
        idle = {"usage": dict.fromkeys(record.result["jobs"][0]["usage"], 0) | {"wall_ns": 100 * MS}}
        changed = {"start": start, "backend": BACKEND, "jobs": [record.result["jobs"][0] | idle]}
        record = record.model_copy(update={"result": record.result | changed})
    intervals, histograms, usage = tables(RUN.run_id)
    counters = {"wall_ns": 100 * MS, "user_ns": MS, "system_ns": MS}
    usage = usage.with_columns(pl.lit(value, dtype=pl.UInt64).alias(name) for name, value in counters.items())
    return HostRun(
        host=name, machine="one", clock=Clock(offset_ns=int(offset_ms * MS)), record=record,
        manifest_sha256="", intervals=intervals, histograms=histograms, usage=usage,
    )  # fmt: skip


def rates(*counts: int, host: str = "a", begin_ms: float = 0, machine: str = "one", last_ms: float = 100) -> HostRun:
    """A host whose intervals of 100 ms, the last one maybe shorter, have these counts."""
    places = [
        {"run_id": "c0001-r1", "phase": "measure", "interval": number, "begin_ns": number * 100 * MS,
         "end_ns": int(number * 100 * MS + (100 if number < len(counts) - 1 else last_ms) * MS)}
        for number in range(len(counts))
    ]  # fmt: skip
    main = {"stream": "main", "operation": "read", "errors": 0, "backlog_max": 0, "completion_latency_ns_sum": 9}
    intervals = [
        {**place, **main, "count": count, "bytes": 10 * count} for place, count in zip(places, counts, strict=True)
    ]
    process = {"wall_ns": 100 * MS, "user_ns": 3, "system_ns": 4}
    usage = [{**place, "device": "process", **process} for place in places]
    usage += [{**place, "device": "8:0", "reads": 50, "read_bytes": 500} for place in places]
    return replace(
        host_run(host, late_ms=begin_ms), machine=machine, intervals=pl.DataFrame(intervals, schema=INTERVALS),
        usage=pl.DataFrame(usage, schema=USAGE),
    )  # fmt: skip


def counts(*hosts: HostRun, whole: bool = False) -> list[int]:
    merged = merge(hosts, whole=whole)
    return merged.intervals["count"].to_list() if merged else []


def test_intervals_that_all_hosts_measured_entirely_are_added_by_time_not_by_number() -> None:
    assert counts(rates(1, 2, 3), rates(10, 20, 30, begin_ms=40)) == [11, 22, 33]
    assert counts(rates(1, 2, 3, 4), rates(10, 20, 30, 40, begin_ms=110)) == [12, 23, 34]
    assert counts(rates(1, 2, 3, last_ms=50), rates(10, 20, 30)) == [11, 22]
    assert counts(rates(1, 2, 3, last_ms=50), rates(10, 20, 30, last_ms=52)) == [11, 22, 33]
    assert counts(rates(1, last_ms=50), rates(10)) == []


def test_of_loads_that_end_by_themselves_nothing_is_left_out() -> None:
    one, other = rates(1, 2, 3, last_ms=20), rates(10, begin_ms=80, last_ms=70)
    for hosts in ((one, other), (other, one)):
        assert counts(*hosts, whole=True) == [11, 2, 3]
        merged = merge(hosts, whole=True)
        assert merged and merged.end_ns - merged.begin_ns == 220 * MS, "until the one that measured longest has ended"
        assert [int(host.intervals["count"].sum()) for host in merged.by_host] == [
            int(host.intervals["count"].sum()) for host in hosts
        ]
    assert counts(rates(1, last_ms=50), rates(10), whole=True) == [11]


def test_latencies_and_cpu_time_are_added_and_a_shared_device_counts_once() -> None:
    merged = merge([rates(1), rates(2, host="b")])
    assert merged
    own = tables("c0001-r1")[1].select("bucket", "count")
    both = merged.histograms.select("bucket", "count")
    assert both.equals(own.with_columns(pl.col("count") * 2).sort("bucket"))
    assert merged.usage.select("device", "user_ns", "reads").rows() == [("8:0", None, 50), ("process", 6, None)]
    of_two = merge([rates(1), rates(2, host="b", machine="two")])
    assert of_two and of_two.usage["device"].to_list() == ["a/8:0", "b/8:0", "process"]


def merged(*hosts: HostRun) -> Attempt:
    return total(hosts, RUN, 1, session="s", environment={}, name="", study=PLAN.study)


def test_clock_offsets_are_not_taken_for_skew() -> None:
    part = merged(host_run("a"), host_run("b", offset_ms=10_000, late_ms=0.25)).record.of(Hosts)
    assert part
    assert part.skew_ns == 250_000
    assert [share.late_ns for share in part.shares] == [0, 250_000]
    assert jain_index([5.0, 5.0, 5.0]) == pytest.approx(1)
    assert jain_index([7.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([0.0, 0.0]) is None


def test_a_total_has_the_jobs_of_all_hosts_and_a_failure_names_its_host() -> None:
    record = merged(host_run("a"), host_run("b")).record
    assert [(job["job"], job["host"]) for job in (record.result or {})["jobs"]] == [(0, "a"), (1, "b")]
    assert record.spec["workload"]["streams"][0]["jobs"] == 2
    broken = host_run("b", outcome="failed", failure=a_failure(PLAN, RUN).failure, result=None)
    failure = Failure(code="io_error", message="on host `b`: the device answered with an error")
    assert merged(broken).record.failure == failure


def test_a_skew_that_is_not_known_to_2_percent_is_a_warning() -> None:
    """Of a measurement of 100 ms; the errors of both clocks add."""
    near, far = (replace(host_run("a"), clock=Clock(bound_ns=bound)) for bound in (900_000, 1_200_000))
    assert [each.code for each in merged(near, near).record.warnings if each.code == "start_skew"] == []
    record = merged(near, far).record
    [warning] = [each for each in record.warnings if each.code == "start_skew"]
    assert warning.message == "hosts started 0 ms apart ± 2.1 ms: 0.0 % of the measurement, known to 2.1 %"


@pytest.mark.parametrize(
    ("late_ms", "codes", "failure"), [(0.9, [], ""), (1.1, ["start_skew"], ""), (5.1, [], "start_skew")]
)
def test_skew_is_a_warning_from_1_percent_and_a_failure_from_5(late_ms: float, codes: list[str], failure: str) -> None:
    """Of a measurement of 100 ms."""
    record = merged(host_run("a"), host_run("b", late_ms=late_ms)).record
    assert [warning.code for warning in record.warnings if warning.code == "start_skew"] == codes
    assert (record.failure.code if record.failure else "") == failure
    assert not record.failure or "`b` started 5.1 ms after the first host" in record.failure.message


def verdict(kind: str, reason: str) -> dict[str, Any]:
    warning = RecordWarning(code="core_saturated", message=reason)
    return {
        "verdict": RecordVerdict(kind=kind, because=[reason], evidence={}),
        "warnings": [warning] if kind == "harness-limited" else [],
    }  # type: ignore[arg-type]


def test_a_total_is_not_the_storage_if_the_cpu_of_one_host_limits_it() -> None:
    fine = verdict("device-limited", "no warnings")
    record = merged(
        host_run("a", **fine), host_run("b", **verdict("harness-limited", "a job used 99 % of its core"))
    ).record
    assert record.verdict and record.verdict.kind == "harness-limited"
    assert record.verdict.because == ["`b`: a job used 99 % of its core"]
    assert "`b`: a job used 99 % of its core" in [warning.message for warning in record.warnings]
    busy = verdict("harness-limited", "a job used 99 % of its core")
    other = verdict("harness-limited", "a job used 97 % of its core")
    messages = [warning.message for warning in merged(host_run("a", **busy), host_run("b", **other)).record.warnings]
    assert "`a`: a job used 99 % of its core (also on `b`)" in messages
    fine = verdict("device-limited", "no warnings")
    for kind in ("device-limited", "undetermined", "network-limited"):
        record = merged(host_run("a", **fine), host_run("b", **verdict(kind, "a reason"))).record
        assert record.verdict and record.verdict.kind == kind, record.verdict
    few = {"warnings": [RecordWarning(code="short_for_tail", message="429 I/Os are too few for p99")]}
    record = merged(host_run("a", **few), host_run("b", **few)).record
    assert "short_for_tail" not in {warning.code for warning in record.warnings}, "of each host, not of the total"


def interval(index: int, count: int, *, phase: str = "measure", length_s: float = 0.5) -> Any:
    latency = {"count": count, "sum_ns": 10 * count, "buckets": [[5, count]]}
    operation = {"operation": "read", "count": count, "bytes": 4 * count, "errors": 0, "completion_latency": latency}
    return {
        "event": "interval", "phase": phase, "index": index,
        "begin_ns": int(index * length_s * 10**9), "end_ns": int((index + 1) * length_s * 10**9),
        "streams": [{"stream": "main", "operations": [operation], "backlog_max": 0}],
    }  # fmt: skip


def reports(*events: Any) -> list[Any]:
    found: list[Any] = []
    progress = Progress(found.append)
    for event in events:
        progress.add(event)
    return found


def test_an_agent_reports_at_most_once_a_second() -> None:
    [report] = reports(*(interval(index, 100) for index in range(20)))
    assert report["phase"] == "measure"
    assert report["length_ns"] == 10**9 // 2
    assert report["rows"] == [
        {"stream": "main", "operation": "read", "count": 100, "bytes": 400, "errors": 0, "sum_ns": 1000}
    ]


def test_rates_of_hosts_are_added_whatever_time_they_cover() -> None:
    slow, fast = reports(interval(0, 100)) + reports(interval(0, 100, length_s=0.1))
    event = total_rate([slow, fast])
    assert event
    [operation] = event["streams"][0]["operations"]
    assert operation["count"] == 200 + 1000
    rates = Rates()
    rates.add(event)
    assert "1,200" in rates.text()
    assert total_rate(reports(interval(0, 1)) + reports(interval(0, 1, phase="ramp"))) is None, "different phases"


def share(host: str, count: int, **facts: Any) -> HostShare:
    common = {
        "machine": host, "run_id": "", "attempt": 1, "manifest_sha256": "", "verdict": "device-limited", "because": "",
        "bytes": 0, "errors": 0, "completion_latency_ns_p99": 1e6, "cpu_ns": 0, "late_ns": 0, "clock_offset_ns": 0,
        "clock_bound_ns": 0,
    }  # fmt: skip
    return HostShare(host=host, count=count, **(common | facts))


REPEATS = hand_plan(levels=(1,), repeats=3)


def found(*repeats: Sequence[HostShare]) -> list[Straggler]:
    records = []
    for run, shares in zip(REPEATS.runs, repeats, strict=False):
        part = Hosts(shares=list(shares), window_ns=10**9, skew_ns=0, skew_bound_ns=0)
        records.append(a_record(REPEATS, run, parts={Hosts.name: part.model_dump()}))
    return list(stragglers(REPEATS.cases, records))


def hosts(slow: int, **facts: Any) -> list[HostShare]:
    return [share("a", 1000), share("b", 1100), share("c", slow, **facts)]


def test_a_host_that_is_slower_in_every_repeat_is_named() -> None:
    [one] = found(hosts(500), hosts(600), hosts(550))
    assert (one.host, one.cause, one.others, one.repeats) == ("c", "", 2, 3)
    assert one.share == pytest.approx(550 / 1050)
    assert "the cause is not separable" in one.sentence
    late = hosts(1000, completion_latency_ns_p99=3e6)
    [one] = found(late, late, late)
    assert one.p99_ratio == 3


def test_a_host_is_not_named_for_one_slow_run_or_for_two_repeats() -> None:
    assert found(hosts(500), hosts(1000), hosts(500)) == []
    assert found(hosts(500), hosts(500)) == []


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"verdict": "harness-limited"}, "its CPU"),
        ({"retransmitted_share": 0.02}, "its network"),
        ({"device_busy_share": 0.99}, "its device"),
        ({"retransmitted_share": 0.0005, "device_busy_share": 0.5}, ""),
        ({"retransmitted_share": 0.02, "machine": "a"}, ""),
    ],
)
def test_the_cause_is_what_differs_from_all_other_hosts(facts: dict[str, Any], cause: str) -> None:
    slow = hosts(500, **facts)
    [one] = found(slow, slow, slow)
    assert one.cause == cause


def test_a_straggler_without_a_known_cause_is_linked_to_warnings_of_its_own() -> None:
    """One that another host has, or that few of its runs have, does not distinguish it."""
    both = hosts(500, warnings=["throttled_device", "cpu_contention"])
    both[0] = both[0].model_copy(update={"warnings": ["cpu_contention"]})
    [one] = found(both, both, hosts(500, warnings=["steal_time"]))
    assert one.warnings == ("throttled_device",)
    assert one.sentence.endswith(
        "; only this host has the warning `throttled_device` (A control group limits I/O on the device)"
    )


FILES = {
    "proc/stat": "cpu  100 0 50 1000 30 0 5 0 0 0\ncpu0 100 0 50 1000 30 0 5 0 0 0\n",
    "proc/diskstats": (
        " 259 0 nvme0n1 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 259 1 nvme0n1p1 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 253 0 dm-0 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        "   7 0 loop0 10 0 80 4 20 0 160 6 0 9 10 0 0 0 0 0 0\n"
        " 259 2 nvme1n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        " 259 3 nvme2c0n1 1 0 8 1 2 0 16 1 0 1 2 0 0 0 0 0 0\n"
        " 259 4 nvme2c1n1 1 0 8 1 2 0 16 1 0 1 2 0 0 0 0 0 0\n"
        " 259 5 nvme2n1 2 0 16 2 4 0 32 2 0 1 4 0 0 0 0 0 0\n"
    ),
    "proc/net/dev": (
        "Inter-| Receive | Transmit\n face |bytes\n"
        "    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"
        "  eth0: 700 7 0 1 0 0 0 0 800 8 0 2 0 0 0 0\n"
        "  eth1: 70 7 0 0 0 0 0 0 80 8 0 0 0 0 0 0\n"
    ),
    "proc/net/rpc/nfsd": "rc 0 0 9\nio 4096 8192\nth 8 0\nrpc 12 0 0 0 0\n",
    "proc/fs/nfsd/pool_stats": (
        "# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n0 12 3 9 0\n1 4 0 4 0\n"
    ),
    **{
        f"sys/block/{name}/dev": f"259:{number}\n"
        for name, number in {"nvme0n1": 0, "nvme1n1": 2, "nvme2c0n1": 3, "nvme2c1n1": 4, "nvme2n1": 5}.items()
    },
    "sys/block/dm-0/slaves/nvme0n1/dev": "259:0\n",
    "sys/block/loop0/dev": "7:0\n",
}


@pytest.mark.parametrize(
    ("line", "waited"),
    [("16 3 13 0", 3), ("16 16 13 0", 3), ("14 17 13 0", 4), ("16 16 16 0", 0)],
    ids=["counted without idle thread", "always counted", "calls in several pieces", "always idle"],
)
def test_connections_that_found_no_idle_thread(tmp_path: Path, line: str, waited: int) -> None:
    file = tmp_path / "proc/fs/nfsd/pool_stats"
    file.parent.mkdir(parents=True)
    file.write_text(f"# pool packets-arrived sockets-enqueued threads-woken threads-timedout\n0 {line}\n")
    assert worker.read_counters(tmp_path)["nfsd_without_thread"] == waited


def test_each_drive_and_interface_of_a_server_counts_once(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = worker.read_counters(tmp_path)
    assert found.pop("time_ns") > 0
    assert found.pop("cpu_ns") == 155 * 10**9 // 100
    assert found == {
        **{"disk_reads": 12, "disk_read_bytes": 96 * 512, "disk_read_ms": 6},
        **{"disk_writes": 24, "disk_write_bytes": 192 * 512, "disk_write_ms": 8, "busy_ms.nvme0n1": 9},
        **{"busy_ms.nvme2c0n1": 1, "busy_ms.nvme2c1n1": 1},
        **{"nic_rx_bytes": 770, "nic_rx_dropped": 1, "nic_tx_bytes": 880, "nic_tx_dropped": 2},
        **{"nfsd_read_bytes": 4096, "nfsd_write_bytes": 8192, "nfsd_calls": 12, "nfsd_threads": 8},
        **{"nfsd_arrived": 16, "nfsd_without_thread": 3},
    }


LOAD = pl.DataFrame(
    [(500, 600, "read", 10, 100), (600, 700, "read", 20, 200), (600, 700, "write", 4, 40)],
    schema=["begin_ns", "end_ns", "operation", "count", "bytes"],
    orient="row",
)


def test_counters_are_cut_to_the_time_in_which_all_hosts_measured() -> None:
    """The clock of the server is 1000 ns ahead of the coordinator's, on which the measurement is from 2000 to 2200."""
    samples = [{"time_ns": at, "cpu_ns": at} for at in (2990, 3050, 3100, 3150, 3201)]
    found = within(samples, 1000, 2000, 2200, LOAD)
    load = {"load_operations": 5, "load_read_bytes": 50, "load_write_bytes": 0}
    assert found["at_start"] == {"time_ns": 3050, "cpu_ns": 3050, **load}
    load = {"load_operations": 22, "load_read_bytes": 200, "load_write_bytes": 20}
    assert found["at_end"] == {"time_ns": 3150, "cpu_ns": 3150, **load}
    assert within([{"time_ns": 3050}], 1000, 2000, 2200, LOAD) == {}, "a single sample gives no increase"


def test_dropping_the_page_cache_of_a_server_requires_a_server(tmp_path: Path) -> None:
    Servers([]).check(planned(tmp_path))
    with pytest.raises(TargetError, match="requires a host with the role `server`"):
        Servers([]).check(planned(tmp_path, server_page_cache="drop"))
