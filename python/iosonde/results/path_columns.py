"""Columns of `runs` about the stages of an I/O in the kernel: the numbers of `path_facts` with their meaning."""

from __future__ import annotations

from collections.abc import Mapping

STAGES: Mapping[str, str] = {
    "submission": "from the system call until the block layer receives the I/O",
    "block_layer": "from there until the driver receives it",
    "device": "from there until the device interrupts, or until the completion without an interrupt",
    "interrupt": "from the interrupt until the waiting thread is made runnable",
    "wake_up": "from there until the thread runs",
    "return": "from there, or from the completion if the thread did not sleep, until the system call returns",
}
"""Stages in the order of time (execution/io_path.py)."""

TOTAL = "total"
TOTAL_TEXT = "from the system call that submits until the one that fetches the completion returns"

COUNTS: Mapping[str, str] = {
    "path_related": "traced I/Os whose stages are known",
    "path_incomplete": "traced I/Os with missing events",
}

TEXTS: Mapping[str, str] = {
    "path_reason": "why the run was not traced; null if it was, or if tracing was not requested",
    "path_unseen": "stages that were not visible, with the reason; null if there are none",
}

STATISTICS: Mapping[str, str] = {"mean": "mean time", "p50": "median time", "p99": "p99 of the time"}

TIMES: Mapping[str, str] = {
    f"path_{stage}_ns_{statistic}": f"{words} {text}"
    for stage, text in {**STAGES, TOTAL: TOTAL_TEXT}.items()
    for statistic, words in STATISTICS.items()
}
"""Of traced I/Os."""
