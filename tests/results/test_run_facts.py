"""Facts of a run: each is one row, with its name, type, meaning and value."""

from __future__ import annotations

from plans import a_record, hand_plan

from iosonde.metrics.derivation import _OF_RUN
from iosonde.metrics.registry import METRICS
from iosonde.results.column import U64, Column
from iosonde.results.run_facts.run import RUNS, values


def test_a_fact_of_a_run_is_one_row() -> None:
    plan = hand_plan()
    column = Column("levels_total", U64, "Number of factors of the case", lambda run: len(run.record.levels))
    record = a_record(plan, plan.runs[0])
    assert values(record, (*RUNS.columns, column)) == values(record, RUNS.columns) | {"levels_total": 1}


def test_every_column_of_runs_has_a_value_and_a_meaning() -> None:
    assert [each.name for each in RUNS.columns if each.value is None or not each.text] == []


def test_facts_that_metrics_are_computed_from_belong_to_the_whole_run() -> None:
    used = set(METRICS).union(
        *(metric.expression.meta.root_names() for metric in METRICS.values() if metric.expression is not None)
    )
    numbers = {each.name for each in RUNS.columns if each.is_number}
    assert used & numbers <= set(_OF_RUN)
    assert len(_OF_RUN) == len(set(_OF_RUN))
