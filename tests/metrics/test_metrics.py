"""Metrics computed from files, and percentiles from buckets, are those of the raw samples."""

from __future__ import annotations

from pathlib import Path

import fabricate
import numpy as np
import polars as pl
import pytest
from buckets import bucket_of
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import a_failure, hand_plan
from samples import SECOND, Samples, jobs, result_set, with_concurrency, write

from iosonde.core.features import contributed
from iosonde.metrics import server
from iosonde.metrics.derivation import ALWAYS_KNOWN
from iosonde.metrics.facts import Facts
from iosonde.metrics.histogram import MILLION, PERCENTILES, SAMPLES_BEYOND, percentiles
from iosonde.metrics.metric import Metric
from iosonde.metrics.metrics import case_metrics, interval_metrics, percentile_curves, run_metrics
from iosonde.metrics.registry import METRICS, declare
from iosonde.metrics.scopes import overall
from iosonde.metrics.statistics import CUT_OFF, T_LOG, T_PLAIN
from iosonde.metrics.sustained import METRICS as LONG_RUN_METRICS
from iosonde.results import ResultSet
from iosonde.results.columns import RUNS
from iosonde.results.schema import HISTOGRAMS, INTERVALS, USAGE
from iosonde.workload import workloads

RANDOM = np.random.default_rng(7)


def lognormal(count: int, median_ns: float = 80_000) -> np.ndarray:
    return RANDOM.lognormal(np.log(median_ns), 0.8, count).astype(np.uint64)


def value(metrics: pl.DataFrame, metric: str, **where: object) -> float | None:
    found = metrics.filter(pl.col("metric") == metric, *(pl.col(name) == wanted for name, wanted in where.items()))
    assert len(found) <= 1, found
    return found["value"].item() if len(found) else None


def nearest_rank(samples: np.ndarray, part: int) -> float:
    return float(np.sort(samples)[-(-len(samples) * part // 1_000_000) - 1])


def test_percentiles_of_merged_intervals_are_those_of_the_raw_samples_within_a_bucket(tmp_path: Path) -> None:
    seconds = [lognormal(40_000, 60_000 * (1 + i)) for i in range(3)]
    results = result_set(
        tmp_path / "r", [[Samples(interval=i, completion_ns=s) for i, s in enumerate(seconds)]], intervals=3
    )
    metrics = run_metrics(results)
    everything = np.concatenate(seconds)
    for name, part in PERCENTILES.items():
        found = value(metrics, f"completion_latency_ns_{name}", operation="read")
        if len(everything) * (1_000_000 - part) >= 10 * 1_000_000:
            assert found == pytest.approx(nearest_rank(everything, part), rel=0.001), name
        else:
            assert found is None, name
    assert value(metrics, "completion_latency_ns_mean", operation="read") == pytest.approx(everything.mean())
    assert value(metrics, "completion_latency_ns_max", operation="read") == everything.max()
    assert value(metrics, "completion_latency_ns_min", operation="read") == everything.min()


@pytest.mark.parametrize(("count", "shown"), [(999, False), (1000, True)])
def test_a_p99_needs_ten_samples_beyond_it(tmp_path: Path, count: int, shown: bool) -> None:
    metrics = run_metrics(result_set(tmp_path / "r", [[Samples(completion_ns=lognormal(count))]]))
    assert (value(metrics, "completion_latency_ns_p99", operation="read") is not None) == shown


def test_rates_are_counts_over_the_measured_time_without_the_ramp(tmp_path: Path) -> None:
    samples = [
        Samples(phase="ramp", completion_ns=lognormal(500)),
        Samples(interval=0, completion_ns=lognormal(300), errors=2),
        Samples(interval=1, completion_ns=lognormal(100)),
    ]
    metrics = run_metrics(result_set(tmp_path / "r", [samples], intervals=2))
    assert value(metrics, "iops", operation="read") == 200
    assert value(metrics, "bandwidth", operation="read") == 200 * 4096
    assert value(metrics, "operations", operation="read") == 400
    assert value(metrics, "errors", operation="read") == 2
    assert value(metrics, "seconds", operation="read") == 2


def test_operation_all_is_reads_writes_and_trims_merged_but_counts_no_bytes_of_trims(tmp_path: Path) -> None:
    reads, writes, trims = lognormal(3000), lognormal(2000, 900_000), lognormal(1000, 5000)
    samples = [
        Samples(completion_ns=reads),
        Samples(operation="write", completion_ns=writes),
        Samples(operation="trim", completion_ns=trims),
        Samples(operation="flush", completion_ns=lognormal(100, 3e6), block_size=0),
    ]
    metrics = run_metrics(result_set(tmp_path / "r", [samples]))
    together = np.concatenate([reads, writes, trims])
    assert value(metrics, "iops", operation="all") == 6000
    assert value(metrics, "bandwidth", operation="all") == 5000 * 4096
    assert value(metrics, "bandwidth", operation="trim") == 1000 * 4096
    p99 = value(metrics, "completion_latency_ns_p99", operation="all")
    assert p99 == pytest.approx(nearest_rank(together, 990_000), rel=0.001)
    assert set(metrics["operation"]) == {"read", "write", "trim", "flush", "all"}


def test_mean_in_flight_is_all_time_spent_in_flight_with_flushes_over_the_measured_time(tmp_path: Path) -> None:
    samples = [
        Samples(operation="write", completion_ns=[3 * SECOND // 1000] * 1000),
        Samples(operation="flush", completion_ns=[SECOND // 2], block_size=0),
    ]
    metrics = run_metrics(result_set(tmp_path / "r", [samples]))
    assert value(metrics, "mean_in_flight", operation="all") == pytest.approx(3.5)
    assert value(metrics, "concurrency", operation="all") == 4
    assert value(metrics, "littles_law_ratio", operation="all") == pytest.approx(3.5 / 4)
    assert value(metrics, "mean_in_flight", operation="write") is None


def test_a_durable_write_takes_the_time_of_the_write_and_of_its_share_of_a_flush(tmp_path: Path) -> None:
    """Four flushes for eight writes: 1 ms and half of 10 ms."""
    samples = [
        Samples(operation="write", completion_ns=[SECOND // 1000] * 8),
        Samples(operation="flush", completion_ns=[SECOND // 100] * 4, block_size=0),
        Samples(operation="read", completion_ns=[SECOND // 10] * 5),
    ]
    metrics = run_metrics(result_set(tmp_path / "r", [samples]))
    assert value(metrics, "durable_write_ns_mean", operation="write") == pytest.approx(6e6)
    assert value(metrics, "durable_write_ns_mean", operation="all") is None
    without = run_metrics(result_set(tmp_path / "without", [samples[:1]]))
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
    assert value(metrics, "iops", stream="reader", operation="all") == 4000
    assert value(metrics, "iops", stream="writer", operation="all") == 1000
    assert value(metrics, "iops", stream="all", operation="all") == 5000
    assert value(metrics, "iops", stream="all", operation="write") == 1000
    assert value(metrics, "concurrency", stream="reader", operation="all") == 6
    assert value(metrics, "concurrency", stream="all", operation="all") == 7
    assert value(metrics, "core_utilisation", stream="reader", operation="all") == 0.25
    p90 = value(metrics, "completion_latency_ns_p90", stream="all", operation="all")
    assert p90 == pytest.approx(nearest_rank(np.concatenate([reads, writes]), 900_000), rel=0.001)
    whole = overall(metrics)
    assert set(whole["stream"]) == {"all"}
    assert set(whole["operation"]) == {"all"}


def test_response_latency_and_backlog_belong_to_the_open_loop_alone(tmp_path: Path) -> None:
    completion = lognormal(2000)
    response = completion + np.uint64(1_000_000)
    opened = run_metrics(
        result_set(tmp_path / "open", [[Samples(completion_ns=completion, response_ns=response, backlog_max=17)]])
    )
    closed = run_metrics(result_set(tmp_path / "closed", [[Samples(completion_ns=completion)]]))
    assert value(opened, "response_latency_ns_mean", operation="read") == pytest.approx(response.mean())
    p99 = value(opened, "response_latency_ns_p99", operation="read")
    assert p99 == pytest.approx(nearest_rank(response, 990_000), rel=0.001)
    assert value(opened, "backlog_max", operation="read") == 17
    assert value(opened, "littles_law_ratio", operation="all") is None
    assert value(closed, "littles_law_ratio", operation="all") is not None
    assert not closed.filter(pl.col("metric").str.starts_with("response") | (pl.col("metric") == "backlog_max")).height


def test_processor_and_device_metrics_exist_once_per_run(tmp_path: Path) -> None:
    usage = {"user_ns": 6_000_000, "system_ns": 2_000_000, "wall_ns": SECOND}
    results = result_set(
        tmp_path / "r",
        [[Samples(completion_ns=lognormal(1000)), Samples(operation="write", completion_ns=lognormal(1000))]],
        process=usage,
        device_bytes=(2 * 4096 * 1000, 3 * 4096 * 1000),
    )
    metrics = run_metrics(results)
    assert value(metrics, "cpu_user_ns_per_operation") == 3000
    assert value(metrics, "cpu_system_ns_per_operation") == 1000
    assert value(metrics, "cpu_ns_per_operation") == 4000
    assert value(metrics, "device_read_amplification") == 2
    assert value(metrics, "device_write_amplification") == 3
    assert value(metrics, "device_bytes_per_second") == 5 * 4096 * 1000


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


def test_a_result_set_without_any_run_gives_empty_tables(tmp_path: Path) -> None:
    results = ResultSet.create(tmp_path / "r", hand_plan())
    metrics = run_metrics(results)
    assert metrics.is_empty()
    assert case_metrics(metrics).is_empty()
    assert interval_metrics(results).is_empty()
    assert percentile_curves(results).is_empty()


def test_of_devices_that_moved_equally_much_the_first_by_name_counts(tmp_path: Path) -> None:
    """The drives of a RAID 5 may read and write together exactly what the array was handed: each run the same choice."""
    devices = {"drive1": (30, 70), "array": (0, 100), "drive0": (60, 40), "drive2": (0, 99)}
    results = result_set(tmp_path / "r", [[Samples(completion_ns=lognormal(10))]] * 8, further_devices=devices)
    moved = Facts(results).devices()
    assert moved.select("device_read_bytes", "device_write_bytes").unique().rows() == [(0, 100)]
    assert len(moved) == 8


def test_several_result_sets_are_distinguished_by_name(tmp_path: Path) -> None:
    sets = [
        result_set(tmp_path / name, [[Samples(completion_ns=lognormal(count))]])
        for name, count in (("a", 10), ("b", 20))
    ]
    metrics = run_metrics(sets)
    assert value(metrics, "operations", result_set="a", operation="all") == 10
    assert value(metrics, "operations", result_set="b", operation="all") == 20


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
    declare("balance", title="Balance", unit="", better="neither")
    declare("delay", title="Delay", unit="s", better="lower")
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
    metrics = run_metrics(result_set(tmp_path / "r", [samples], intervals=3, **facts))
    assert set(metrics["metric"]) <= set(METRICS)
    needs_more = {"completion_latency_ns_p99_9999", "response_latency_ns_p99_9999", "achieved_rate_fraction"}
    # Only runs that are to be judged in rounds have these, and only those on arrays have members.
    conditional = {*LONG_RUN_METRICS, *(name for name in METRICS if name.startswith(("member_", "rebuild_")))}
    # CPU times of kernel threads and cores are evidence of the engine, which these runs lack.
    conditional |= {
        name for name in METRICS if name.startswith(("array_", "kernel_", "busiest_core", "engine_stalled"))
    }
    # None of the features is used.
    conditional |= {each.name for each in contributed("metrics", "METRICS", Metric)}
    # Only key-value runs have accounts.
    conditional |= {
        "ops_per_sec",
        "durable_write_ns_mean",  # Only where writes are followed by flushes.
        *(each.name for each in server.METRICS),
        *(name for name, metric in METRICS.items() if metric.kind == "store"),
    }
    assert set(METRICS) - set(metrics["metric"]) == {
        "littles_law_ratio",
        "device_write_amplification",
        "media_write_amplification",
        *needs_more,
        *conditional,
    }


def test_verification_metrics_exist_for_the_whole_run_only(tmp_path: Path) -> None:
    samples = [Samples(completion_ns=[1000]), Samples(operation="write", completion_ns=[1000])]
    found = {"checked_bytes": 8192, "faults": {"lost": 1, "flipped": 2}}
    metrics = run_metrics(result_set(tmp_path / "with", [samples], verification=found))
    rows = metrics.filter(pl.col("metric").is_in(["verified_bytes", "wrong_sectors"]))
    assert sorted(rows.select("operation", "metric", "value").rows()) == [
        ("all", "verified_bytes", 8192),
        ("all", "wrong_sectors", 3),
    ]
    without = run_metrics(result_set(tmp_path / "without", [samples]))
    assert not set(without["metric"]) & {"verified_bytes", "wrong_sectors"}


def test_levels_of_queue_depth_may_have_labels(tmp_path: Path) -> None:
    facts = fabricate.small_study()
    facts["parts"][0]["factors"] = {
        "queue_depth": [{"label": "shallow", "set": {"queue_depth": 1}}, {"label": "deep", "set": {"queue_depth": 4}}]
    }
    table = run_metrics(fabricate.result_set(tmp_path / "set", facts, seconds=2))
    for label in ("shallow", "deep"):
        assert table["case_id"].str.contains(f"queue_depth={label}").any(), label


@pytest.mark.parametrize("workload", workloads())
@pytest.mark.parametrize("loop", ["closed", "open"])
def test_a_metric_is_null_where_no_scope_has_what_it_is_made_from(workload: str, loop: str) -> None:
    """For that reason most expressions of such metrics are left out."""
    present = {"stream": "main", "operation": "all", "workload": workload, "loop": loop, "seconds": 1.0}
    present |= dict.fromkeys(("count", "bytes", "errors", "completion_sum_ns", "response_count"), 7)
    assert set(present) == ALWAYS_KNOWN
    wrong = []
    for name, metric in METRICS.items():
        roots = set(metric.expression.meta.root_names()) if metric.expression is not None else set()
        if metric.expression is not None and not roots <= ALWAYS_KNOWN:
            absent = {root: pl.Series([None], dtype=RUNS.schema.get(root, pl.Float64)) for root in roots - set(present)}
            row = pl.DataFrame({**{each: [present[each]] for each in present}, **absent})
            wrong += [] if row.select(metric.expression).item() is None else [name]
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


def test_buckets_may_come_in_any_order_and_in_pieces() -> None:
    values = np.random.default_rng(5).integers(1, 10**7, 5000).tolist()
    whole = percentiles(histogram({"x": values}), by=["group"])
    pieces = pl.concat([histogram({"x": values[3000:]}), histogram({"x": values[:3000]})]).sample(
        fraction=1, shuffle=True, seed=1
    )
    assert percentiles(pieces, by=["group"]).equals(whole)
