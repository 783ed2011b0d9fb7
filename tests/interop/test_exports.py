"""Exported files have the same values when other tools read them."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from buckets import bucket_of
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given
from hypothesis import strategies as st
from plans import a_failure, a_record, hand_plan, tables
from recordings import recorded

from iosonde.interop.fio import json_plus
from iosonde.interop.fio.json_plus import job_options
from iosonde.interop.hdr import HIGHEST_NS, encode, values
from iosonde.metrics.metrics import run_metrics
from iosonde.results import ResultSet
from iosonde.results.column import lower_ns, midpoint_ns, width_ns

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0}
CONVERTER = "fio_jsonplus_clat2csv"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> ResultSet:
    """Both loops, streams, reads, writes and flushes, on a simulated device whose latencies are exponential."""
    return recorded("both-loops", tmp_path_factory.mktemp("exports") / "set")


@pytest.fixture(scope="module")
def exported(results: ResultSet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("exported")
    for format in ("fio-json", "hdr"):
        results.export(format, directory / format)
    return {format: directory / format for format in ("fio-json", "hdr")}


@pytest.fixture(scope="module")
def metrics(results: ResultSet) -> dict[tuple[str, str, str, str], float]:
    rows = run_metrics(results).iter_rows(named=True)
    return {(row["run_id"], row["stream"], row["operation"], row["metric"]): row["value"] for row in rows}


def documents(exported: dict[str, Path]) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in exported["fio-json"].glob("*.json")}


def test_json_has_our_counts_rates_and_latencies(
    exported: dict[str, Path], metrics: dict[tuple[str, str, str, str], float]
) -> None:
    found, checked = documents(exported), 0
    streams = {run_id: [job["jobname"] for job in each["jobs"]] for run_id, each in found.items()}
    assert streams == {"c0001-r1": ["main"], "c0002-r1": ["open, poisson", "writer"]}
    assert found["c0001-r1"]["iosonde"]["case_id"] == "closed"
    for run_id, document in found.items():
        for job in document["jobs"]:
            for operation in ("read", "write"):
                of = (run_id, job["jobname"], operation)
                fio = job[operation]
                if (*of, "operations") not in metrics:
                    assert fio["total_ios"] == fio["iops_mean"] == fio["iops_stddev"] == 0
                    continue
                checked += 1
                assert fio["total_ios"] == fio["clat_ns"]["N"] == metrics[*of, "operations"]
                assert fio["iops"] == pytest.approx(metrics[*of, "iops"])
                assert fio["bw_bytes"] == int(metrics[*of, "bandwidth"])
                assert fio["io_bytes"] == fio["total_ios"] * (
                    4096 if operation == "read" or job["groupid"] == 0 else 65536
                )
                for latency, name in (("clat_ns", "completion"), ("lat_ns", "response")):
                    check_latency(fio[latency], of, name, metrics)
    assert checked == 4


def check_latency(fio: dict[str, Any], of: tuple[str, str, str], name: str, metrics: dict[Any, float]) -> None:
    if (*of, f"{name}_latency_ns_mean") not in metrics:
        assert "bins" not in fio, "a closed loop has no response latency"
        return
    for statistic in ("min", "max", "mean"):
        assert fio[statistic] == pytest.approx(metrics[*of, f"{name}_latency_ns_{statistic}"])
    shares = (1, 5, *range(10, 100, 10), 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999)
    assert list(fio["percentile"]) == [f"{each:.6f}" for each in sorted(shares)], "fio's own"
    assert sum(fio["bins"].values()) == fio["N"]
    mean = sum(int(midpoint) * count for midpoint, count in fio["bins"].items()) / fio["N"]
    squares = sum(count * (int(midpoint) - mean) ** 2 for midpoint, count in fio["bins"].items())
    assert fio["stddev"] == pytest.approx((squares / (fio["N"] - 1)) ** 0.5, rel=0.01)
    assert {int(midpoint) for midpoint in fio["bins"]} <= {
        json_plus.bin_midpoint_ns(number) for number in range(json_plus.BIN_COUNT)
    }
    for ours, theirs in PERCENTILES.items():
        value = metrics[*of, f"{name}_latency_ns_{ours}"]
        assert fio["percentile"][f"{theirs:.6f}"] == value


def test_percentiles_of_latencies_beyond_fios_last_bin_are_between_minimum_and_maximum(tmp_path: Path) -> None:
    """fio's last bin begins at 17.2 s; these reads take 15 to 160 s."""
    export(tmp_path, "fio-json", latencies_ns=[(15 + number) * 10**9 for number in range(146)])
    document = json.loads((tmp_path / "fio-json/c0001-r1.json").read_text())
    found = document["jobs"][0]["read"]["clat_ns"]
    values = list(found["percentile"].values())
    assert values == sorted(values)
    assert 15 * 10**9 == found["min"] <= values[0] < values[9] < values[-1] <= found["max"] == 160 * 10**9
    assert values[9] > 20 * 10**9, "the median"
    assert "within min and max" in document["iosonde"]["percentiles"]


def test_json_names_the_load_in_fios_options(exported: dict[str, Path]) -> None:
    closed = documents(exported)["c0001-r1"]["jobs"][0]
    assert closed["job options"] == (
        {"ioengine": "simulated", "rw": "randrw", "rwmixread": "70", "norandommap": "1", "bs": "4096", "iodepth": "4"}
        | {"numjobs": "2", "direct": "1", "size": str(64 << 20), "offset": "0", "fdatasync": "16"}
        | {"runtime": "450ms", "ramp_time": "50ms"}
    )
    opened = documents(exported)["c0002-r1"]["jobs"][0]["job options"]
    assert (opened["rate_iops"], opened["rate_process"]) == ("4000", "poisson")


def test_per_job_output_of_fio_has_an_equivalent_per_job(results: ResultSet) -> None:
    record = results.records()[0]
    stream = record.spec["workload"]["streams"][0] | {"jobs": 4, "limit_bytes": 4 << 20, "limit_operations": 40}
    split = stream | {"span": {"offset_bytes": 4096, "bytes": 8 << 20, "sharing": "split"}}
    options = job_options(split, record.spec["workload"], backend="sync")
    assert (options["ioengine"], options["io_size"], options["number_ios"]) == ("psync", str(1 << 20), "10")
    strided = job_options(
        split | {"access": {"kind": "strided", "stride_bytes": 16384}}, record.spec["workload"], backend="sync"
    )
    assert strided["rw"] == "rw:12288"
    assert (options["size"], options["offset"], options["offset_increment"]) == (str(2 << 20), "4096", str(2 << 20))


def export(directory: Path, *formats: str, latencies_ns: list[int] | None = None, **facts: Any) -> list[list[str]]:
    """Export a result set of one complete and one failed run; return the names of the files."""
    plan = hand_plan()
    made = ResultSet.create(directory / "set", plan)
    first, second = (run.run_id for run in plan.runs[:2])
    with made.lock():
        record = a_record(plan, plan.runs[0], **facts)
        if "target" in facts:
            device = dict.fromkeys(("read_merges", "write_merges", "read_bytes", "write_bytes", "in_flight"), 0)
            device |= {"reads": 7, "writes": 2, "read_wait_ns": 3_000_000, "write_wait_ns": 2_500_000}
            record.result["devices"] = [device | {"device": "259:0", "busy_ns": 50_000_000}]  # type: ignore[index]
        made.write(record, *tables(first, latencies_ns))
        made.write(a_failure(plan, plan.runs[1]), *(table.clear() for table in tables(second)))
    return [[path.name for path in made.export(format, directory / format)] for format in formats]


def test_devices_are_named_and_measured(tmp_path: Path) -> None:
    export(tmp_path, "fio-json", target={"devices": [{"device": "259:0", "name": "nvme0n1"}]})
    assert json.loads((tmp_path / "fio-json/c0001-r1.json").read_text())["disk_util"] == [
        {"name": "nvme0n1", "read_ios": 7, "write_ios": 2, "read_merges": 0, "write_merges": 0}
        | {"read_ticks": 3, "write_ticks": 2, "in_queue": 5, "util": 50.0}
    ]


def test_flushes_shares_and_samples(results: ResultSet, exported: dict[str, Path]) -> None:
    job = documents(exported)["c0001-r1"]["jobs"][0]
    flushes = results.intervals.filter(run_id="c0001-r1", phase="measure", operation="flush")
    assert job["sync"]["total_ios"] == flushes["count"].sum() > 0
    shares = [share for unit in ("ns", "us", "ms") for share in job[f"latency_{unit}"].values()]
    assert sum(shares) == pytest.approx(100)
    below = sum(list(job["latency_us"].values())[:6]) + sum(job["latency_ns"].values())
    counted = [each for operation in ("read", "write") for each in job[operation]["clat_ns"]["bins"].items()]
    lower = sum(count for midpoint, count in counted if int(midpoint) < 100_000)
    assert below == pytest.approx(100 * lower / (job["read"]["total_ios"] + job["write"]["total_ios"]), abs=2)
    assert job["read"]["iops_samples"] == 5
    assert job["read"]["iops_min"] <= job["read"]["iops"] <= job["read"]["iops_max"]


@pytest.mark.system
@pytest.mark.needs("fio_jsonplus_clat2csv")
def test_fios_own_tool_reads_the_json(exported: dict[str, Path], tmp_path: Path) -> None:
    for path in exported["fio-json"].glob("*.json"):
        target = tmp_path / f"{path.stem}.csv"
        convert(path, target)
        assert "validated" in convert(path, target, "--validate")
        for number, job in enumerate(json.loads(path.read_text())["jobs"]):
            rows = list(csv.reader((tmp_path / f"{path.stem}_job{number}.csv").read_text().splitlines()))
            column = [name.strip() for name in rows[0]].index("read_clat_ns_count")
            counted = sum(int(row[column]) for row in rows[1:] if row[column].strip())
            assert counted == job["read"]["total_ios"]


def convert(path: Path, target: Path, *options: str) -> str:
    command = [sys.executable, str(shutil.which(CONVERTER)), str(path), str(target), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def hdr_lines(path: Path) -> list[tuple[str, HdrHistogram]]:
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_NS, 3))
    found = []
    while histogram := reader.get_next_interval_histogram():
        found.append((histogram.get_tag(), histogram))
    reader.close()
    return found


@pytest.mark.parametrize("kind", ["completion", "response"])
@pytest.mark.parametrize("run_id", ["c0001-r1", "c0002-r1"])
def test_hdrhistogram_reads_every_interval_with_its_time_and_count(
    results: ResultSet, exported: dict[str, Path], run_id: str, kind: str
) -> None:
    has_it = pl.col(f"{kind}_latency_ns_min").is_not_null()
    rows = results.intervals.filter(
        pl.col("run_id") == run_id, pl.col("phase") == "measure", pl.col("count") > 0, has_it
    )
    [start_ms] = [each.engine["realtime_ns"] / 1e6 for each in results.records() if each.run_id == run_id]
    expected = sorted(
        (tag_of(row, kind), row["begin_ns"] / 1e6 + start_ms, row["end_ns"] / 1e6 + start_ms, row["count"])
        for row in rows.iter_rows(named=True)
    )
    lines = [(tag, line) for tag, line in hdr_lines(exported["hdr"] / f"{run_id}.hlog") if tag.endswith(f"/{kind}")]
    found = sorted(
        (tag, line.get_start_time_stamp(), line.get_end_time_stamp(), line.get_total_count()) for tag, line in lines
    )
    assert len(found) == len(expected) and (expected or kind == "response")
    for line, (tag, begin_ms, end_ms, count) in zip(found, expected, strict=True):
        assert line == (tag, pytest.approx(begin_ms, abs=2), pytest.approx(end_ms, abs=2), count)


def tag_of(row: dict[str, Any], kind: str) -> str:
    """A tag has neither commas nor spaces."""
    return f"{row['run_id']}/{row['stream'].replace(', ', '__')}/{row['operation']}/{kind}"


def test_hdrhistogram_merges_to_our_percentiles(
    exported: dict[str, Path], metrics: dict[tuple[str, str, str, str], float]
) -> None:
    merged: dict[str, HdrHistogram] = {}
    for path in exported["hdr"].glob("*.hlog"):
        for tag, line in hdr_lines(path):
            merged.setdefault(tag, HdrHistogram(1, HIGHEST_NS, 3)).add(line)
    assert len(merged) == 6
    for tag, histogram in merged.items():
        run_id, stream, operation, latency = tag.split("/")
        of = (run_id, stream.replace("__", ", "), operation)
        assert histogram.get_total_count() == metrics[*of, "operations"]
        assert histogram.get_min_value() == pytest.approx(metrics[*of, f"{latency}_latency_ns_min"], rel=0.001)
        assert histogram.get_max_value() == pytest.approx(metrics[*of, f"{latency}_latency_ns_max"], rel=0.001)
        for ours, theirs in PERCENTILES.items():
            value = metrics.get((*of, f"{latency}_latency_ns_{ours}"))
            if value is not None:
                assert histogram.get_value_at_percentile(theirs) == pytest.approx(value, rel=0.002), (tag, ours)


@pytest.mark.parametrize(
    "counts",
    [
        {0: 1},
        {1: 1, 2047: 3, 2048: 1, 2049: 1, 4095: 7},
        {5: 1, 7: 1, 1 << 40: 12345678901},
        {HIGHEST_NS: 1, 1 << 60: 2},
        {value * value * value: value for value in range(1, 4000, 7)},
    ],
)
def test_the_encoding_is_that_of_the_library(counts: dict[int, int]) -> None:
    reference = HdrHistogram(1, HIGHEST_NS, 3)
    for value, count in counts.items():
        reference.record_value(min(value, HIGHEST_NS), count)
    decoded = HdrHistogram.decode(encode(counts))
    assert decoded.get_total_count() == sum(counts.values())
    assert decoded.get_max_value() == reference.get_max_value()
    assert decoded.get_min_value() == reference.get_min_value()
    for percentile in (1, 25, 50, 75, 90, 99, 99.9, 100):
        assert decoded.get_value_at_percentile(percentile) == reference.get_value_at_percentile(percentile)


def test_runs_without_a_result_have_no_file_and_are_named(tmp_path: Path) -> None:
    assert export(tmp_path, "fio-json", "hdr") == [[f"c0001-r1.{name}", "README.md"] for name in ("json", "hlog")]
    for format, suffix in (("fio-json", "json"), ("hdr", "hlog")):
        about = (tmp_path / format / "README.md").read_text()
        assert f"| `c0001-r1.{suffix}` | `main/queue_depth=1` | complete |" in about
        assert "| - | `main/queue_depth=1` | failed |" in about


def test_extremes_replace_midpoints_without_a_sample_more_or_less() -> None:
    one = pl.DataFrame({"bucket": [5000], "count": [1]})
    assert values(one, 140_700, 140_700) == {140_700: 1}
    middle = int(midpoint_ns([5000])[0])
    two = pl.DataFrame({"bucket": [5000], "count": [5]})
    assert values(two, middle - 40, middle + 30) == {middle: 3, middle - 40: 1, middle + 30: 1}


# fio's histogram, held against fio's own definition, against fio, and against our buckets

LAST_NS = 1 << 34


def defined(value: int) -> int:
    """As fio groups: by the highest bit, then the six bits below it."""
    group = max(value.bit_length() - 7, 0)
    return min((group << 6) + (value >> group), 29 * 64 - 1)


@given(st.integers(0, (1 << 64) - 1))
def test_every_latency_is_in_the_bin_that_fio_has_for_it(value: int) -> None:
    assert int(json_plus.bin_of([value])[0]) == defined(value)


@given(st.integers(0, LAST_NS - 1))
def test_the_midpoint_is_within_one_part_in_128(value: int) -> None:
    midpoint = json_plus.bin_midpoint_ns(defined(value))
    assert abs(midpoint - value) * 128 <= value and defined(midpoint) == defined(value)


def test_known_values() -> None:
    assert [json_plus.bin_midpoint_ns(number) for number in (0, 127, 128, 1855)] == [0, 127, 129, 17_112_760_320]
    assert json_plus.bin_of([127, 128, 129, 130, LAST_NS, 1 << 62]).tolist() == [127, 128, 128, 129, 1855, 1855]


def test_no_bucket_of_iosonde_is_in_two_bins_of_fio() -> None:
    buckets = np.arange(int(bucket_of([LAST_NS])[0]), dtype=np.uint64)
    first = lower_ns(buckets)
    last = first + width_ns(buckets) - np.uint64(1)
    assert (json_plus.bin_of(first) == json_plus.bin_of(last)).all()


@given(st.lists(st.integers(0, LAST_NS), min_size=1, max_size=200))
def test_counts_from_buckets_are_those_from_the_latencies_themselves(values: list[int]) -> None:
    buckets, counts = np.unique(bucket_of(values), return_counts=True)
    assert (
        json_plus.bins_of_buckets(buckets, counts).tolist()
        == np.bincount(json_plus.bin_of(values), minlength=json_plus.BIN_COUNT).tolist()
    )


@pytest.mark.system
@pytest.mark.needs("fio")
def test_bins_are_those_that_fio_writes(tmp_path: Path) -> None:
    options = ["--ioengine=null", "--rw=randrw", "--size=64m", "--name=x"]
    output = tmp_path / "fio.json"
    subprocess.run(
        ["fio", "--output-format=json+", f"--output={output}", *options],
        cwd=tmp_path, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    latency = json.loads(output.read_text())["jobs"][0]["read"]["clat_ns"]
    numbers = {json_plus.bin_midpoint_ns(number): number for number in range(json_plus.BIN_COUNT)}
    counts = np.zeros(json_plus.BIN_COUNT, dtype=np.int64)
    for midpoint, count in latency["bins"].items():
        counts[numbers[int(midpoint)]] = count
    assert json_plus.occupied_bins(counts) == latency["bins"]
