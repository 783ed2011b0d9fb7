"""Replays of traces on real stores: memcached, and LMDB and RocksDB in the engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.conftest import alone, metrics_of
from study_texts import study_text

from iosonde.execution.session import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

pytestmark = [pytest.mark.system, pytest.mark.needs("engine")]


MEASUREMENT = 'phase = "trace"\ninterval = "100ms"\n'


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def replay(place: Path, tmp_path: Path, rows: list[str], measurement: str) -> Record:
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(["time,operation,key,value_size,ttl", *rows, ""]))
    study = parse(study_text("kv", MEASUREMENT + measurement))
    execute(expand(study, open_target(str(place)), settings={"trace": str(trace)}), tmp_path / "r")
    return alone(list(ResultSet.open(tmp_path / "r").records()))


def checks(record: Record) -> dict[str, dict[str, int]]:
    assert record.outcome == "complete", record.failure
    assert record.result
    return {check["operation"]: check for check in record.result["store"]["checks"]}


def counts(output: Path) -> dict[str, int]:
    rows = ResultSet.open(output).sql("SELECT operation, sum(count) AS n FROM intervals GROUP BY ALL")
    return dict(rows.iter_rows())


@pytest.mark.needs("memcached", "setpriv")
def test_memcached_starts_empty_keeps_what_the_trace_sets_and_fills_misses_with_its_sizes(
    place: Path, tmp_path: Path
) -> None:
    """As fast as possible: the trace itself would take an hour."""
    rows = ["0,set,a,100,", "0.02,get,a,100,", "0.03,delete,a,,", "0.04,get,a,,", "0.05,set,b,20,60",
            "0.06,get,b,20,60", "0.07,delete,never-set,,"]  # fmt: skip
    rows += [f"{36 * row},get,key-{row % 10},{1000 + row % 10}," for row in range(1, 101)]
    measurement = (
        'store = "memcached"\nmiss = "read_through"\nbackend_latency = "50ms"\nbackend_distribution = "constant"\n'
        "memcached = { threads = 1 }"
    )
    record = replay(place, tmp_path, rows, measurement)
    found = checks(record)["read"]
    assert (found["values"], found["missing"], found["corrupted"]) == (92, 11, 0)
    operations = counts(tmp_path / "r")
    assert (operations["read"], operations["delete"], operations["write"]) == (103, 2, 12)
    latencies = ResultSet.open(tmp_path / "r").sql(
        "SELECT min(completion_latency_ns_min), max(completion_latency_ns_max) FROM intervals WHERE operation = 'read'"
    )
    [(fastest, slowest)] = latencies.iter_rows()
    assert fastest < 50_000_000 <= slowest, "gets that miss wait for the backend"
    assert record.server
    assert record.server["statistics_at_end"]["bytes_read"] > 10 * 1000
    assert metrics_of(tmp_path / "r")["values_missing"] == 11


@pytest.mark.parametrize("store", ["lmdb", pytest.param("rocksdb", marks=pytest.mark.needs("rocksdb"))])
def test_embedded_stores_have_every_key_that_the_trace_reads(store: str, place: Path, tmp_path: Path) -> None:
    rows = [
        f"{row / 10_000},{'set' if row % 5 == 0 else 'get'},key-{row * 7 % 50},{20 + row % 3}," for row in range(500)
    ]
    record = replay(place, tmp_path, rows, f'store = "{store}"\njobs = 3')
    found = checks(record)["read"]
    assert (found["values"], found["missing"], found["corrupted"]) == (400, 0, 0)
    assert counts(tmp_path / "r") == {"read": 400, "write": 100}
    assert record.spec["workload"]["streams"][0]["trace"]["rows"] == 500


def test_gets_of_keys_that_the_trace_neither_sets_nor_sizes_are_reported(place: Path, tmp_path: Path) -> None:
    """All 2,000 gets miss: their rate is that of an empty store."""
    rows = [f"{row / 10_000},get,key-{row},," for row in range(2000)]
    record = replay(place, tmp_path, rows, 'store = "lmdb"')
    assert (checks(record)["read"]["values"], checks(record)["read"]["missing"]) == (0, 2000)
    assert record.result and sum(job["bytes"] for job in record.result["jobs"]) == 0, "nothing was read"
    [warning] = [each for each in record.warnings if each.code == "unexplained_misses"]
    assert warning.message == "2,000 of 2,000 gets found no record, although the trace has not deleted it"


def test_misses_after_a_delete_of_the_trace_are_as_expected(place: Path, tmp_path: Path) -> None:
    operations = ["set,key,20,", "get,key,,", "delete,key,,", "get,key,,", "get,key,,", "set,key,20,", "get,key,,"]
    record = replay(place, tmp_path, [f"0,{each}" for each in operations], 'store = "lmdb"')
    assert (checks(record)["read"]["values"], checks(record)["read"]["missing"]) == (2, 2)
    assert "unexplained_misses" not in [each.code for each in record.warnings]


def test_own_timing_takes_as_long_as_the_trace_and_latency_counts_from_the_intended_time(
    place: Path, tmp_path: Path
) -> None:
    """The last row is due after 600 ms, at twice the speed after 300 ms."""
    rows = [f"{row / 1000},get,key-{row % 50},100," for row in range(0, 601, 10)]
    record = replay(place, tmp_path, rows, 'store = "lmdb"\narrival = "trace"\ntrace_speed = 2')
    assert checks(record)["read"]["values"] == 61
    assert record.result
    assert record.result["end_ns"] - record.result["begin_ns"] >= 300_000_000
    [schedule] = [job["schedule"] for job in record.result["jobs"]]
    assert (schedule["due"], schedule["started"]) == (61, 61)
    assert metrics_of(tmp_path / "r")["response_latency_ns_mean"] > 0


def test_a_trace_that_ends_in_the_ramp_is_a_failed_run_with_its_cause(place: Path, tmp_path: Path) -> None:
    record = replay(place, tmp_path, ["0,get,k,100,"], 'store = "lmdb"\nramp = "60s"')
    assert record.failure
    assert "the trace ended before the measurement started" in record.failure.message


def test_a_converted_trace_that_is_gone_or_changed_is_a_failed_run(place: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,operation,key,value_size\n0,get,k,100\n")
    study = parse(study_text("kv", MEASUREMENT + 'store = "lmdb"'))
    plan = expand(study, open_target(str(place)), settings={"trace": str(trace)})
    [converted] = (tmp_path / "cache/iosonde/traces").glob("*.rows")
    converted.write_bytes(converted.read_bytes()[:-1])
    execute(plan, tmp_path / "r")
    record = alone(list(ResultSet.open(tmp_path / "r").records()))
    assert record.failure
    assert "is no converted trace" in record.failure.message
    assert "plan the study again" in record.failure.hint
