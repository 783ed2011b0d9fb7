"""Metrics of the stages of an I/O in the kernel, from tracepoints."""

from __future__ import annotations

from iosonde.features.kernel_trace.facts import STAGES, STATISTICS, TIMES, TOTAL
from iosonde.metrics.metric import Metric

TITLES = {
    "submission": "Submission",
    "block_layer": "Block layer",
    "device": "Device",
    "interrupt": "Interrupt",
    "wake_up": "Wake-up",
    "return": "Return",
    TOTAL: "I/O path",
}
"""Stages as axes and tables name them."""


def metric_of(stage: str, statistic: str = "mean") -> str:
    """Return the name of the metric of a stage."""
    return f"path_{stage}_ns_{statistic}"


def _metric(stage: str, statistic: str) -> Metric:
    name = metric_of(stage, statistic)
    return Metric(
        name=name,
        title=f"{TITLES[stage]}, {statistic}",
        unit="ns",
        formula=f"{TIMES[name]}, of traced I/Os",
        better="lower",
        kind="time",
    )


METRICS = (
    *(_metric(stage, statistic) for stage in (*STAGES, TOTAL) for statistic in STATISTICS),
    Metric(
        name="path_related",
        title="Traced I/Os",
        unit="",
        formula="traced I/Os whose stages are known",
        better="neither",
        kind="count",
    ),
    Metric(
        name="path_incomplete",
        title="Incomplete traced I/Os",
        unit="",
        formula="traced I/Os with missing events",
        better="lower",
        kind="count",
    ),
)
"""Metrics of the I/O path, in the order of docs/metrics.md."""
