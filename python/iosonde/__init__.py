"""Measure storage and explain the results.

    import iosonde

    results = iosonde.run("quick", target="/mnt/disk", profile="quick")
    results = iosonde.load("iosonde-results/quick-20260102-030405")

A result set has

    print(results)          the report as text; a notebook shows it with figures
    results.findings        answers with values, intervals and evidence
    results.metrics         metrics per run, as a Polars frame
    results.case_metrics    medians and confidence intervals per case
    results.figures         figures of the report
    results.runs, results.intervals, results.histograms, results.warnings
    results.sql("SELECT ...")

Errors are `iosonde.IosondeError`. Names are imported when they are used, so that `iosonde --help` is fast.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iosonde.base.features import register
from iosonde.base.lazy import lazy
from iosonde.base.provided import provide
from iosonde.features import FEATURES

if TYPE_CHECKING:
    from iosonde.errors import IosondeError
    from iosonde.execution.session import run
    from iosonde.results.result_set import ResultSet, load
    from iosonde.study.model import Study

register(*FEATURES, *os.environ.get("IOSONDE_FEATURES", "").split())


provide(
    engine_programs="iosonde.execution.engine_programs",
    interop="iosonde.interop",
    metrics="iosonde.metrics.metrics",
    query="iosonde.results.query",
    questions="iosonde.findings.questions",
    report="iosonde.report",
    undo="iosonde.study.servers.undo",
)

__all__ = ["IosondeError", "ResultSet", "Study", "load", "run"]

_MODULES = {
    "IosondeError": "iosonde.errors",
    "ResultSet": "iosonde.results.result_set",
    "Study": "iosonde.study.model",
    "load": "iosonde.results.result_set",
    "run": "iosonde.execution.session",
}


__getattr__ = lazy(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
