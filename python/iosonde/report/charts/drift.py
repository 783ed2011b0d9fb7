"""The control case through the study, as a check of the machine's stability."""

from __future__ import annotations

import polars as pl

from iosonde.report.charts import vega
from iosonde.report.charts.figure import Figure, Panel
from iosonde.report.charts.layout import UNKNOWN, unique
from iosonde.report.charts.sketch import as_frame
from iosonde.report.charts.vega import Axis, Frame
from iosonde.report.material.quantities import metric_text, metric_title
from iosonde.report.material.result_sets import Material


def drift(material: Material) -> Figure | None:
    """Draw the control case through the study, each run against the median of all."""
    from iosonde.metrics.registry import named_among
    from iosonde.metrics.scopes import overall

    controls = material.run_metrics.filter("control")
    metric = next(iter(named_among(controls["metric"].unique())), "iops")
    title = metric_title(metric)
    table = overall(controls.filter(pl.col("metric") == metric))
    table = table.with_columns(relative=100 * pl.col("value") / pl.col("value").median().over("result_set"))
    table = table.sort("result_set", "order")
    sources = unique(table["result_set"])
    if not table.height:
        return None
    several = len(sources) > 1
    rows = [
        {
            **UNKNOWN,
            "panel": "",
            "x": r["order"] + 1,
            "series": r["result_set"] if several else "control",
            "source": r["result_set"],
            "y": round(r["relative"], 3),
            "text": f"{r['relative']:.1f} % ({metric_text(metric, r['value'])}{' IOPS' * (metric == 'iops')})",
            "x_text": r["run_id"],
        }
        for r in table.to_dicts()
    ]
    farthest = max([2.0, *(1.15 * abs(row["y"] - 100) for row in rows)])
    frame = Frame(
        x=Axis(title="Position in the study (run)", domain=(0, max(row["x"] for row in rows) + 1)),
        y=Axis(
            title=f"{title} of the control case (% of its median)", domain=(100 - farthest, 100 + farthest), format="~r"
        ),
        series_title="Result set",
        series=sources if several else [],
        tooltip=[("x_text", "Run"), ("text", title)],
        height=180,
    )
    lowest, highest = min(row["y"] for row in rows), max(row["y"] for row in rows)
    return Figure(
        name="drift",
        title="Drift",
        caption=f"{title} of the control case through the study. Where it changes, the machine or the device changed.",
        description=f"Line chart: {title} of {len(rows)} control runs, "
        f"{lowest:.1f} % to {highest:.1f} % of their median.",
        panels=[Panel(title="", key="", chart=vega.lines(frame))],
        rows=as_frame(rows),
        heads={"source": "result_set", "x": "order", "x_text": "run_id", "y": f"{metric}_percent_of_median"},
    )
