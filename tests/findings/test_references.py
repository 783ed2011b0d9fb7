"""Published values are compared with measured ones at the same levels."""

from __future__ import annotations

import polars as pl
from by_publication import as_results
from hand_made import results

from iosonde.data import shipped
from iosonde.findings.observations.reference import matched, published
from iosonde.metrics.metrics import case_metrics
from iosonde.planning import load
from iosonde.study.model import Reference


def reference(study: str, name: str) -> Reference:
    return next(each for each in load(study).references if each.name == name)


def test_a_table_is_brought_to_the_units_and_levels_of_the_study() -> None:
    table = published(reference("davidovic2019-grid", "one-drive"))
    row = table.row(
        by_predicate=(pl.col("block_size") == 4096) & (pl.col("queue_depth") == 1) & (pl.col("operation") == "read"),
        named=True,
    )
    assert (row["value"], row["label"], row["metric"]) == (73e6, "SP900", "bandwidth")
    assert len(table) == 340


def test_rows_that_the_study_has_no_name_for_are_left_out() -> None:
    table = published(reference("jo2024-mixed", "five-nines-reads"))
    assert set(table["queue_depth"]) == {1, 16}
    assert set(table["operation"]) == {"read"}


def test_every_reference_of_every_shipped_study_has_values() -> None:
    references = [reference for name in shipped() for reference in load(name).references]
    assert references
    for each in references:
        table = published(each)
        assert len(table) and table["value"].min() > 0, each.name  # type: ignore[operator]


def test_own_values_are_joined_and_missing_ones_stay_empty() -> None:
    _, cases, runs = as_results("davidovic2019-grid", "one-drive")
    half = runs.filter(pl.col("case_id").str.contains("read")).with_columns(pl.col("value") * 2)
    joined = matched(published(reference("davidovic2019-grid", "one-drive")), cases, case_metrics(half))
    assert len(joined) == 340
    reads, writes = (joined.filter(pl.col("operation") == operation) for operation in ("read", "write"))
    assert reads["ratio"].unique().to_list() == [2]
    assert writes["ratio"].null_count() == len(writes)


def test_an_operation_that_is_no_factor_is_matched_with_the_results_of_that_operation() -> None:
    latency = {(1,): [200e3], (16,): [900e3]}
    cases, runs = results(["queue_depth"], {"completion_latency_ns_p99_999": latency}, part="depth")
    apart = pl.concat([runs, runs.with_columns(pl.col("value") * 10, operation=pl.lit("read"))])
    joined = matched(published(reference("jo2024-mixed", "five-nines-reads")), cases, case_metrics(apart))
    assert set(joined["median"]) == {2e6, 9e6}
