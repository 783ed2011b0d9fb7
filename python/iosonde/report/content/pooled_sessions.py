"""Result sets of one study and target as sessions of one system: every case pooled over them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from iosonde.comparison.sessions import pooled
from iosonde.metrics.registry import RATES
from iosonde.metrics.scopes import each_load
from iosonde.report.content.table import Cell, Table
from iosonde.report.material.quantities import case_name, metric_text, metric_title
from iosonde.report.material.result_sets import Material, Source

SHOWN = ("bandwidth", *RATES, "completion_latency_ns_p99", "response_latency_ns_p99")


def session_tables(material: Material) -> list[Table]:
    """Return a table for each system that has several sessions."""
    groups = [group for group in material.sessions if len(group) > 1 and not material.paired_sets]
    return [table for group in groups if (table := _table(group, material)).rows]


def _table(sources: Sequence[Source], material: Material) -> Table:
    labels = [source.label for source in sources]
    runs = material.run_metrics.filter(pl.col("result_set").is_in(labels), pl.col("metric").is_in(SHOWN))
    found = pooled(each_load(runs))
    names = {case.case_id: case_name(case) for case in sources[0].cases}
    return Table(
        title=f"Pooled over {len(sources)} sessions: {sources[0].plan.target}",
        caption="Geometric mean over sessions. The 95 % confidence interval includes what varies between sessions; its "
        "relative standard deviation is in the last column.",
        heads=["Case", "Metric", "Value", "Between sessions"],
        labels=2,
        rows=[
            [
                Cell(text=names.get(row["case_id"], row["case_id"])),
                Cell(text=metric_title(row["metric"])),
                Cell(
                    text=metric_text(row["metric"], row["value"]),
                    interval=_interval(row["metric"], row["low"], row["high"]),
                    number=row["value"],
                ),
                Cell(text=f"{100 * row['session_deviation']:.1f} %", number=row["session_deviation"]),
            ]
            for row in found.iter_rows(named=True)
        ],
        keys=[f"{sources[0].label}\n{case_id}" for case_id in found["case_id"]],
    )


def _interval(metric: str, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{metric_text(metric, low)} .. {metric_text(metric, high)}"
