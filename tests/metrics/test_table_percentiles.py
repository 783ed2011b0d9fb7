"""Percentiles in a row of a table never fall as the share grows, whatever repeats have too few samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from samples import Samples, result_set

from iosonde.comparison.cases import compare
from iosonde.metrics.histogram import PERCENTILES
from iosonde.metrics.metrics import case_metrics, run_metrics
from iosonde.metrics.scopes import of_same_repeats
from iosonde.metrics.tables import table
from iosonde.regression.sessions import session_values
from iosonde.report.content.report import collect
from iosonde.report.material.quantities import metric_title
from iosonde.results import ResultSet

NAMES = [
    f"{latency}_latency_ns_{statistic}"
    for latency in ("completion", "response")
    for statistic in ("min", *PERCENTILES, "max")
]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(2, 6))]


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


def test_the_example_would_fall_if_each_percentile_took_the_repeats_that_have_it(tmp_path: Path) -> None:
    """Without the rule the table printed a p99.9 below the p99: the precondition of the tests below."""
    slow, fast = np.full(2_000, 10**9, np.uint64), np.full(20_000, 10**6, np.uint64)
    runs = run_metrics(result_set(tmp_path / "r", [[Samples(completion_ns=each)] for each in (slow, slow, fast)]))
    each = runs.group_by("metric").agg(pl.col("value").median())
    naive = dict(each.iter_rows())
    assert naive["completion_latency_ns_p99_9"] < naive["completion_latency_ns_p99"]
    assert "completion_latency_ns_p99_9" not in set(case_metrics(runs)["metric"])
    assert "completion_latency_ns_p99" in set(case_metrics(runs)["metric"])


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


def test_streams_are_compared_one_by_one_and_no_table_adds_them_up(tmp_path: Path) -> None:
    results = made(tmp_path, 3, ("readers", "writer"))
    loads = {case for case, _ in session_values(run_metrics(results), {})}
    assert {name.rpartition(" ")[2] for name in loads} == {"(readers)", "(writer)"}
    [chapter] = collect([results]).chapters
    scopes = {cell.text for each in chapter.case_tables for row in each.rows for cell in row[: each.labels]}
    assert {"readers: read", "writer: read"} <= scopes
    assert not any(scope.startswith("all") for scope in scopes)
