"""Parts of figures of rates over time with a rule drawn into them."""

from __future__ import annotations

from iosonde.report import vega
from iosonde.report.figure import Chart
from iosonde.report.quantities import Scale, metric_text
from iosonde.report.sketch import UNKNOWN, Row, scaled
from iosonde.report.vega import Frame

RULE = "identified rule"
POINTS = 400
"""Points of a line at most."""


def with_rule_below(frame: Frame) -> Chart:
    """The rule as a wide pale line: the measured one covers a thin line that it follows."""
    chart = vega.timeseries(frame)
    line, *others = chart["layer"]
    is_rule = f"datum.series == '{RULE}'"
    widths = {
        "size": {"condition": {"test": is_rule, "value": 6}, "value": 1.3},
        "strokeOpacity": {"condition": {"test": is_rule, "value": 0.45}, "value": 1},
    }
    return {**chart, "layer": [{**line, "encoding": {**line["encoding"], **widths}}, *others]}


def row(source: str, panel: str, series: str, run: str, at: float, rate: float, scale: Scale) -> Row:
    """A point of a line; points of one `run` and series are joined."""
    return {
        **UNKNOWN,
        "panel": panel,
        "series": series,
        "source": source,
        "run": f"{run} {series}",
        "x": round(at, 3),
        "x_text": f"{at:.1f} s",
        "y": scaled(rate, scale),
        "text": metric_text("iops", rate),
    }
