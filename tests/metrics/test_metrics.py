"""Metrics computed from files, and percentiles from buckets, are those of the raw samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fabricate
import numpy as np
import polars as pl
import pytest
from buckets import bucket_of
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import a_failure, hand_plan
from samples import SECOND, Samples, jobs, result_set, with_concurrency, write

from iosonde.base.features import contributed
from iosonde.findings.comparison.cases import compare
from iosonde.findings.regression import session_values
from iosonde.metrics import registry
from iosonde.metrics.derivation import ALWAYS_KNOWN
from iosonde.metrics.facts import Facts
from iosonde.metrics.metric import Metric
from iosonde.metrics.metrics import case_metrics, interval_metrics, percentile_curves, run_metrics, table
from iosonde.metrics.registry import METRICS, declare
from iosonde.metrics.scopes import MILLION, PERCENTILES, SAMPLES_BEYOND, of_same_repeats, overall, percentiles
from iosonde.metrics.statistics import CUT_OFF, T_LOG, T_PLAIN
from iosonde.metrics.sustained import METRICS as LONG_RUN_METRICS
from iosonde.report.content import collect
from iosonde.report.quantities import metric_title
from iosonde.results import ResultSet
from iosonde.results.frames import RUNS
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE
from iosonde.study.workload import workloads

RANDOM = np.random.default_rng(7)


def lognormal(count: int, median_ns: float = 80_000) -> np.ndarray:
    return RANDOM.lognormal(np.log(median_ns), 0.8, count).astype(np.uint64)


def value(metrics: pl.DataFrame, metric: str, **where: object) -> float | None:
    found = metrics.filter(pl.col("metric") == metric, *(pl.col(name) == wanted for name, wanted in where.items()))
    assert len(found) <= 1, found
    return found["value"].item() if len(found) else None


def metrics_of(directory: Path, *samples: Samples, **facts: Any) -> pl.DataFrame:
    """Metrics of a run with these samples."""
    return run_metrics(result_set(directory / "r", [samples], **facts))


def nearest_rank(samples: np.ndarray, part: int) -> float:
    return float(np.sort(samples)[-(-len(samples) * part // 1_000_000) - 1])


def test_percentiles_of_merged_intervals_are_those_of_the_raw_samples_within_a_bucket(tmp_path: Path) -> None:
    seconds = [lognormal(40_000, 60_000 * (1 + i)) for i in range(3)]
    metrics = metrics_of(tmp_path, *(Samples(interval=i, completion_ns=s) for i, s in enumerate(seconds)), intervals=3)
    everything = np.concatenate(seconds)
    for name, part in PERCENTILES.items():
        found = value(metrics, f"completion_latency_ns_{name}", operation="read")
        if len(everything) * (1_000_000 - part) >= 10 * 1_000_000:
            assert found == pytest.approx(nearest_rank(everything, part), rel=0.001), name
        else:
            assert found is None, name
    for name, exact in {"mean": everything.mean(), "max": everything.max(), "min": everything.min()}.items():
        assert value(metrics, f"completion_latency_ns_{name}", operation="read") == pytest.approx(exact)


def test_rates_are_counts_over_the_measured_time_without_the_ramp(tmp_path: Path) -> None:
    metrics = metrics_of(
        tmp_path,
        Samples(phase="ramp", completion_ns=lognormal(500)),
        Samples(interval=0, completion_ns=lognormal(300), errors=2),
        Samples(interval=1, completion_ns=lognormal(100)),
        intervals=2,
    )
    expected = {"iops": 200, "bandwidth": 200 * 4096, "operations": 400, "errors": 2, "seconds": 2}
    assert {name: value(metrics, name, operation="read") for name in expected} == expected


def test_operation_all_is_reads_writes_and_trims_merged_but_counts_no_bytes_of_trims(tmp_path: Path) -> None:
    reads, writes, trims = lognormal(3000), lognormal(2000, 900_000), lognormal(1000, 5000)
    metrics = metrics_of(
        tmp_path,
        Samples(completion_ns=reads),
        Samples(operation="write", completion_ns=writes),
        Samples(operation="trim", completion_ns=trims),
        Samples(operation="flush", completion_ns=lognormal(100, 3e6), block_size=0),
    )
    together = np.concatenate([reads, writes, trims])
    assert value(metrics, "iops", operation="all") == 6000
    assert value(metrics, "bandwidth", operation="all") == 5000 * 4096
    assert value(metrics, "bandwidth", operation="trim") == 1000 * 4096
    p99 = value(metrics, "completion_latency_ns_p99", operation="all")
    assert p99 == pytest.approx(nearest_rank(together, 990_000), rel=0.001)
    assert set(metrics["operation"]) == {"read", "write", "trim", "flush", "all"}


def test_mean_in_flight_is_all_time_spent_in_flight_with_flushes_over_the_measured_time(tmp_path: Path) -> None:
    metrics = metrics_of(
        tmp_path,
        Samples(operation="write", completion_ns=[3 * SECOND // 1000] * 1000),
        Samples(operation="flush", completion_ns=[SECOND // 2], block_size=0),
    )
    expected = {"mean_in_flight": 3.5, "concurrency": 4, "littles_law_ratio": 3.5 / 4}
    assert {name: value(metrics, name, operation="all") for name in expected} == pytest.approx(expected)
    assert value(metrics, "mean_in_flight", operation="write") is None


def test_a_durable_write_takes_the_time_of_the_write_and_of_its_share_of_a_flush(tmp_path: Path) -> None:
    """Four flushes for eight writes: 1 ms and half of 10 ms."""
    samples = [
        Samples(operation="write", completion_ns=[SECOND // 1000] * 8),
        Samples(operation="flush", completion_ns=[SECOND // 100] * 4, block_size=0),
        Samples(operation="read", completion_ns=[SECOND // 10] * 5),
    ]
    metrics = metrics_of(tmp_path, *samples)
    assert value(metrics, "durable_write_ns_mean", operation="write") == pytest.approx(6e6)
    assert value(metrics, "durable_write_ns_mean", operation="all") is None
    without = metrics_of(tmp_path / "without", samples[0])
    assert value(without, "durable_write_ns_mean", operation="write") is None


def test_several_streams_are_separated_and_also_taken_together(tmp_path: Path) -> None:
    reads, writes = lognormal(4000), lognormal(1000, 500_000)
    plan = with_concurrency(
        hand_plan(levels=("a",), factor="x", repeats=1), **{"reader.queue_depth": 3, "writer.queue_depth": 1}
    )
    results = ResultSet.create(tmp_path / "r", plan)
    samples = [
        Samples(stream="reader", completion_ns=reads),
        Samples(stream="writer", operation="write", completion_ns=writes),
    ]
    with results.lock():
        write(results, plan.runs[0], samples, jobs=jobs(streams=["reader", "reader", "writer"], cpu_ns=SECOND // 4))
    metrics = run_metrics(results)
    for metric, stream, expected in (
        *(("iops", "reader", 4000), ("iops", "writer", 1000), ("iops", "all", 5000)),
        *(("concurrency", "reader", 6), ("concurrency", "all", 7), ("core_utilisation", "reader", 0.25)),
    ):
        assert value(metrics, metric, stream=stream, operation="all") == expected
    assert value(metrics, "iops", stream="all", operation="write") == 1000
    p90 = value(metrics, "completion_latency_ns_p90", stream="all", operation="all")
    assert p90 == pytest.approx(nearest_rank(np.concatenate([reads, writes]), 900_000), rel=0.001)
    whole = overall(metrics)
    assert set(whole["stream"]) == {"all"}
    assert set(whole["operation"]) == {"all"}


def test_response_latency_and_backlog_belong_to_the_open_loop_alone(tmp_path: Path) -> None:
    completion = lognormal(2000)
    response = completion + np.uint64(1_000_000)
    waiting = Samples(completion_ns=completion, response_ns=response, backlog_max=17)
    opened = metrics_of(tmp_path / "open", waiting)
    closed = metrics_of(tmp_path / "closed", Samples(completion_ns=completion))
    assert value(opened, "response_latency_ns_mean", operation="read") == pytest.approx(response.mean())
    p99 = value(opened, "response_latency_ns_p99", operation="read")
    assert p99 == pytest.approx(nearest_rank(response, 990_000), rel=0.001)
    assert value(opened, "backlog_max", operation="read") == 17
    assert value(opened, "littles_law_ratio", operation="all") is None
    assert value(closed, "littles_law_ratio", operation="all") is not None
    assert not closed.filter(pl.col("metric").str.starts_with("response") | (pl.col("metric") == "backlog_max")).height


def test_processor_and_device_metrics_exist_once_per_run(tmp_path: Path) -> None:
    metrics = metrics_of(
        tmp_path,
        Samples(completion_ns=lognormal(1000)),
        Samples(operation="write", completion_ns=lognormal(1000)),
        process={"user_ns": 6_000_000, "system_ns": 2_000_000, "wall_ns": SECOND},
        device_bytes=(2 * 4096 * 1000, 3 * 4096 * 1000),
    )
    expected = {"cpu_user_ns_per_operation": 3000, "cpu_system_ns_per_operation": 1000, "cpu_ns_per_operation": 4000}
    expected |= {"device_read_amplification": 2, "device_write_amplification": 3}
    expected |= {"device_bytes_per_second": 5 * 4096 * 1000}
    assert {name: value(metrics, name) for name in expected} == expected


def test_a_stall_counts_as_an_interval_without_operations(tmp_path: Path) -> None:
    """The engine leaves out an operation that did not complete; averaging what is there would hide the stall."""
    samples = [Samples(interval=i, completion_ns=lognormal(100)) for i in (0, 1, 3)]
    results = result_set(tmp_path / "r", [samples], intervals=4)
    series = interval_metrics(results).filter(pl.col("metric") == "iops", pl.col("operation") == "all")
    assert series.sort("interval")["value"].to_list() == [100, 100, 0, 100]
    expected = np.std([100, 100, 0, 100], ddof=1) / 75
    assert value(run_metrics(results), "iops_variation", operation="all") == pytest.approx(expected)


def test_the_short_interval_at_the_end_of_a_load_has_no_rate(tmp_path: Path) -> None:
    """A load ends when its records are written: the last interval is of milliseconds, and its rate is mostly chance."""
    samples = [Samples(interval=i, completion_ns=lognormal(count)) for i, count in enumerate((100, 100, 10))]
    results = result_set(tmp_path / "r", [samples], intervals=3, last_ns=20_000_000)
    series = interval_metrics(results).filter(pl.col("operation") == "all").sort("interval")
    assert (series.schema["begin_ns"], series.schema["end_ns"]) == (pl.Int64, pl.Int64)
    by_metric = {name: series.filter(pl.col("metric") == name)["value"].to_list() for name in ("iops", "operations")}
    assert by_metric == {"iops": [100, 100], "operations": [100, 100, 10]}


def test_interval_percentiles_are_those_of_each_interval(tmp_path: Path) -> None:
    seconds = [lognormal(3000, 50_000), lognormal(3000, 200_000)]
    results = result_set(
        tmp_path / "r", [[Samples(interval=i, completion_ns=s) for i, s in enumerate(seconds)]], intervals=2
    )
    metrics = interval_metrics(results)
    for interval, samples in enumerate(seconds):
        p99 = value(metrics, "completion_latency_ns_p99", interval=interval, operation="read")
        assert p99 == pytest.approx(nearest_rank(samples, 990_000), rel=0.001)


def test_a_curve_merges_the_repeats_of_a_case(tmp_path: Path) -> None:
    runs = [lognormal(2000), lognormal(2000, 300_000)]
    curve = percentile_curves(result_set(tmp_path / "r", [[Samples(completion_ns=run)] for run in runs]))
    curve = curve.filter(pl.col("operation") == "all")
    everything = np.concatenate(runs)
    assert curve["fraction"].is_sorted()
    assert curve["fraction"].max() == 0.997
    for fraction, latency in curve.select("fraction", "latency_ns").iter_rows():
        assert latency == pytest.approx(nearest_rank(everything, round(fraction * 1e6)), rel=0.001)


def test_runs_that_failed_have_no_metrics(tmp_path: Path) -> None:
    plan = hand_plan(levels=(1,), repeats=2)
    results = ResultSet.create(tmp_path / "r", plan)
    with results.lock():
        write(results, plan.runs[0], [Samples(completion_ns=lognormal(50))])
        results.write(
            a_failure(plan, plan.runs[1]), *(pl.DataFrame(schema=each) for each in (INTERVALS, HISTOGRAMS, USAGE))
        )
    assert run_metrics(results)["run_id"].unique().to_list() == [plan.runs[0].run_id]
    empty = ResultSet.create(tmp_path / "empty", plan)
    assert case_metrics(run_metrics(empty)).is_empty()
    assert interval_metrics(empty).is_empty() and percentile_curves(empty).is_empty()


def test_of_devices_that_moved_equally_much_the_first_by_name_counts(tmp_path: Path) -> None:
    """The drives of a RAID 5 may read and write together exactly what the array was handed: each run the same choice."""
    devices = {"drive1": (30, 70), "array": (0, 100), "drive0": (60, 40), "drive2": (0, 99)}
    results = result_set(tmp_path / "r", [[Samples(completion_ns=lognormal(10))]] * 8, further_devices=devices)
    moved = Facts(results).devices()
    assert moved.select("device_read_bytes", "device_write_bytes").unique().rows() == [(0, 100)]
    assert len(moved) == 8


def test_a_case_is_summed_up_by_its_median_and_an_interval_from_three_repeats_on(tmp_path: Path) -> None:
    runs = [[Samples(completion_ns=lognormal(count))] for count in (100, 90, 130)]
    three = case_metrics(run_metrics(result_set(tmp_path / "three", runs)))
    row = three.row(by_predicate=(pl.col("metric") == "iops") & (pl.col("operation") == "all"), named=True)
    assert (row["median"], row["repeats"], row["method"]) == (100, 3, T_LOG)
    assert (row["low"], row["high"]) == (pytest.approx(51.9, abs=0.1), pytest.approx(214.3, abs=2))
    assert (row["minimum"], row["maximum"]) == (90, 130)
    two = case_metrics(run_metrics(result_set(tmp_path / "two", runs[:2])))
    row = two.row(by_predicate=(pl.col("metric") == "iops") & (pl.col("operation") == "all"), named=True)
    assert (row["median"], row["low"], row["high"]) == (95, None, None)


def test_intervals_of_metrics_that_cannot_be_negative_are_cut_off_at_zero(tmp_path: Path) -> None:
    runs = run_metrics(result_set(tmp_path / "r", [[Samples(completion_ns=lognormal(10))]] * 3))
    values = runs.filter(pl.col("metric") == "iops", pl.col("operation") == "all").with_columns(
        value=pl.Series([0.0, 1, 2])
    )
    balance, delay = (
        {"title": "Balance", "unit": "", "better": "neither"},
        {"title": "Delay", "unit": "s", "better": "lower"},
    )
    declare({"balance": balance, "delay": delay})
    of_names = [values.with_columns(metric=pl.lit(name)) for name in ("iops", "delay", "balance")]
    iops, delay, balance = case_metrics(pl.concat(of_names)).select("low", "method").rows()
    assert iops == delay == (0, T_PLAIN + CUT_OFF)
    assert balance[0] < 0 and balance[1] == T_PLAIN


def test_the_achieved_rate_is_what_was_started_of_what_was_due_in_each_stream_and_in_all(tmp_path: Path) -> None:
    plan = hand_plan(levels=(1,), repeats=1)
    samples = [Samples(stream=stream, completion_ns=lognormal(20)) for stream in ("reader", "writer", "closed")]
    made = jobs(streams=["reader", "reader", "writer", "closed"])
    for job, (due, started) in zip(made, ((100, 100), (100, 80), (50, 40)), strict=False):
        job["schedule"] = {"due": due, "started": started}
    results = ResultSet.create(tmp_path / "r", plan)
    with results.lock():
        write(results, plan.runs[0], samples, jobs=made)
    metrics = run_metrics(results)
    shares = metrics.filter(pl.col("metric") == "achieved_rate_fraction")
    assert dict(shares.select("stream", "value").iter_rows()) == {"reader": 0.9, "writer": 0.8, "all": 0.88}


def test_every_derived_metric_is_defined(tmp_path: Path) -> None:
    completion = lognormal(350_000)
    usage = {"user_ns": 1, "system_ns": 1, "wall_ns": SECOND}
    samples = [Samples(interval=i, completion_ns=completion, response_ns=completion) for i in range(3)]
    facts = {"process": usage, "device_bytes": (1, 1), "verification": {"checked_bytes": 8192, "faults": {"lost": 1}}}
    metrics = metrics_of(tmp_path, *samples, intervals=3, **facts)
    assert set(metrics["metric"]) <= set(METRICS)
    # Not derived: what depends on features, arrays, stores, servers, rounds, CPU evidence and other samples.
    conditional = {
        *LONG_RUN_METRICS,
        *(each.name for each in (*contributed("facts", "METRICS", Metric), *registry._OF_SERVERS)),
    }
    conditional |= {name for name, metric in METRICS.items() if metric.kind == "store"}
    conditional |= {"achieved_rate_fraction", "littles_law_ratio", "ops_per_sec", "durable_write_ns_mean"}
    prefixes = ("member_", "rebuild_", "array_", "kernel_", "busiest_core", "engine_stalled", "device_write_", "media_")
    missing = {name for name in METRICS if not name.startswith(prefixes)} - set(metrics["metric"]) - conditional
    assert missing == {"completion_latency_ns_p99_9999", "response_latency_ns_p99_9999"}


def test_verification_metrics_exist_for_the_whole_run_only(tmp_path: Path) -> None:
    samples = [Samples(completion_ns=[1000]), Samples(operation="write", completion_ns=[1000])]
    found = {"checked_bytes": 8192, "faults": {"lost": 1, "flipped": 2}}
    metrics = metrics_of(tmp_path / "with", *samples, verification=found)
    rows = metrics.filter(pl.col("metric").is_in(["verified_bytes", "wrong_sectors"])).sort("metric")
    assert rows.select("operation", "value").rows() == [("all", 8192), ("all", 3)]
    without = metrics_of(tmp_path / "without", *samples)
    assert not set(without["metric"]) & {"verified_bytes", "wrong_sectors"}


def test_levels_of_queue_depth_may_have_labels(tmp_path: Path) -> None:
    facts = fabricate.small_study()
    levels = [{"label": "shallow", "set": {"queue_depth": 1}}, {"label": "deep", "set": {"queue_depth": 4}}]
    facts["parts"][0]["factors"] = {"queue_depth": levels}
    table = run_metrics(fabricate.result_set(tmp_path / "set", facts, seconds=2))
    for label in ("shallow", "deep"):
        assert table["case_id"].str.contains(f"queue_depth={label}").any(), label


def test_a_metric_is_null_where_no_scope_has_what_it_is_made_from() -> None:
    """For that reason most expressions of such metrics are left out."""
    scopes = pl.DataFrame([*itertools.product(workloads(), ("closed", "open"))], ["workload", "loop"], orient="row")
    numbers = {name: pl.lit(7) for name in ("count", "bytes", "errors", "completion_sum_ns", "response_count")}
    present = scopes.with_columns(stream=pl.lit("main"), operation=pl.lit("all"), seconds=pl.lit(1.0), **numbers)
    assert set(present.columns) == ALWAYS_KNOWN
    wrong = []
    for name, metric in METRICS.items():
        roots = set(metric.expression.meta.root_names()) if metric.expression is not None else set()
        if metric.expression is not None and not roots <= ALWAYS_KNOWN:
            absent = {root: pl.lit(None, RUNS.schema.get(root, pl.Float64)) for root in roots - ALWAYS_KNOWN}
            found = present.with_columns(**absent).select(metric.expression).to_series()
            wrong += [] if found.null_count() == len(found) else [name]
    assert wrong == []


latencies = st.lists(st.integers(min_value=0, max_value=3600 * 10**9), min_size=1, max_size=400)


def histogram(groups: dict[str, list[int]]) -> pl.DataFrame:
    rows = [(name, int(bucket), 1) for name, values in groups.items() for bucket in bucket_of(values)]
    return pl.DataFrame(rows, schema={"group": pl.String, "bucket": pl.UInt32, "count": pl.Int64}, orient="row")


@given(latencies, latencies)
@settings(max_examples=60)
def test_each_group_has_its_own_percentiles_within_a_bucket_of_the_exact_ones(one: list[int], other: list[int]) -> None:
    groups = {"one": one, "other": other}
    found = {row["group"]: row for row in percentiles(histogram(groups), by=["group"]).iter_rows(named=True)}
    for name, values in groups.items():
        ordered = sorted(values)
        for percentile, part in PERCENTILES.items():
            rank = -(-len(values) * part // MILLION)
            if len(values) - rank < SAMPLES_BEYOND:
                assert found[name][percentile] is None
            else:
                assert found[name][percentile] == pytest.approx(ordered[rank - 1], rel=0.001, abs=0.5)


def test_rounding_takes_no_sample_away() -> None:
    """100 x (1 - 0.9) is 9.999999999999998 in floating point: ten samples beyond p90 would count as nine."""
    row = percentiles(histogram({"x": list(range(1, 101))}), by=["group"]).row(0, named=True)
    assert (row["p90"], row["p95"]) == (90, None)


# Percentiles in a row of a table never fall as the share grows, whatever repeats have too few samples

NAMES = [
    f"{latency}_latency_ns_{statistic}"
    for latency in ("completion", "response")
    for statistic in ("min", *PERCENTILES, "max")
]
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in (0, 2, 3, 4, 5))]


def repeats(seed: int, streams: Sequence[str] = ("main",)) -> list[list[Samples]]:
    """Return repeats with very different numbers of samples, the slow ones with the fewest."""
    random = np.random.default_rng(seed)
    runs = []
    for _ in range(random.integers(2, 6)):
        count = int(10 ** random.uniform(1.5, 4.5))
        latencies = random.lognormal(np.log(1e10 / count), 1.0, count).astype(np.uint64) + 1
        runs.append([Samples(stream=stream, completion_ns=latencies, response_ns=latencies * 2) for stream in streams])
    return runs


def made(directory: Path, seed: int, streams: Sequence[str] = ("main",)) -> ResultSet:
    return result_set(directory / str(seed), repeats(seed, streams))


def assert_rising(values: Iterable[float | None]) -> None:
    known = [value for value in values if value is not None]
    assert all(first <= second for first, second in itertools.pairwise(known)), known


def assert_rows_rise(rows: pl.DataFrame, value: str) -> None:
    keys = [name for name in ("result_set", "case_id", "stream", "operation") if name in rows.columns]
    for _, group in rows.group_by(keys):
        known = dict(group.select("metric", value).iter_rows())
        for latency in ("completion", "response"):
            assert_rising(known.get(name) for name in NAMES if name.startswith(latency))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_table_of_metrics_and_of_a_report_rises(tmp_path: Path, seed: int) -> None:
    results = made(tmp_path, seed, ("readers", "writer") if seed % 2 else ("main",))
    rows = table("case_metrics", results)
    assert_rows_rise(rows, "median")
    latencies = rows.filter(pl.col("metric").str.contains("_latency_ns_"))
    repeats_used = latencies.group_by("stream", "operation").agg(pl.col("n").n_unique())["n"]
    assert set(repeats_used) == {1}, "all latencies of a row are of the same repeats"
    for _, run in run_metrics(results).group_by("run_id"):
        assert_rows_rise(run, "value")
    [chapter] = collect([results]).chapters
    wanted = {metric_title(name): place for place, name in enumerate(NAMES)}
    checked = 0
    for each in (*chapter.tables, *chapter.case_tables):
        columns = sorted((wanted[head], place) for place, head in enumerate(each.heads) if head in wanted)
        for row in each.rows:
            for latency in (0, len(NAMES) // 2):
                own = [place for order, place in columns if latency <= order < latency + len(NAMES) // 2]
                assert_rising(row[place].number for place in own)
                checked += len(own)
    assert checked


@pytest.mark.parametrize("seed", SEEDS)
def test_both_sides_of_a_comparison_rise(tmp_path: Path, seed: int) -> None:
    sides = []
    for side in range(2):
        sessions = [made(tmp_path / f"{side}{number}", 100 * seed + 10 * side + number) for number in range(2)]
        runs = [run_metrics(each).with_columns(result_set=pl.lit(f"{side}{i}")) for i, each in enumerate(sessions)]
        sides.append((pl.concat(runs), sessions[0].cases))
    (ours, our_cases), (theirs, their_cases) = sides
    compared = compare(ours, theirs, baseline_cases=our_cases, contender_cases=their_cases, metrics=NAMES)
    for side in ("baseline", "contender"):
        assert_rows_rise(compared, side)


def test_a_percentile_counts_only_where_every_repeat_of_a_session_has_it(tmp_path: Path) -> None:
    few, many = np.full(50, 10**9, np.uint64), np.full(5_000, 10**6, np.uint64)
    together = run_metrics(result_set(tmp_path / "r", [[Samples(completion_ns=each)] for each in (few, many)]))
    assert {metric for _, metric in session_values(together, {})} == {"iops"}
    apart = pl.concat(
        run_metrics(result_set(tmp_path / name, [[Samples(completion_ns=each)]])).with_columns(result_set=pl.lit(name))
        for name, each in (("few", few), ("many", many))
    )
    p99 = pl.col("metric") == "completion_latency_ns_p99"
    assert of_same_repeats(apart).filter(p99)["result_set"].unique().to_list() == ["many"]
    assert of_same_repeats(apart, across_result_sets=True).filter(p99).is_empty()
