"""Summaries of sessions by hand, for tests of the library and the history that need no files."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from iosonde.collections.library.summary import Device, Headline, SessionCell, Summary

BEGIN = datetime.fromisoformat("2026-01-01T02:00:00+00:00")
CASE = "main/queue_depth=16"
LOAD = "4 KiB random reads, queue depth 16"


def a_summary(night: int, *, iops: float = 100_000.0, verdict: str = "device-limited", **changes: Any) -> Summary:
    begin = BEGIN + timedelta(days=night)
    device = Device(name="nvme0n1", model="EXAMPLE SSD", firmware="1.0", serial="0badcafe")
    headline = Headline(metric="iops", case_id=CASE, value=iops, text=f"{iops / 1000:.1f} k IOPS")
    of_case = {"case_id": CASE, "metric": "iops", "runs": 3, "run_variance": 1e-4, "verdict": verdict}
    facts: dict[str, Any] = {
        **{"path": f"{begin:%Y-%m-%d}", "study": "nightly", "title": "Nightly check", "profile": "quick"},
        **{"target": "/mnt/disk", "simulated": False, "devices": [device], "kernel": "6.1", "software": "0.1.0"},
        **{"started_at": begin.isoformat(), "ended_at": (begin + timedelta(minutes=5)).isoformat()},
        **{"complete": 3, "runs": 3, "headlines": [headline], "verdict": verdict, "report": "", "problems": []},
        "trust": f"3 of 3 runs were {verdict}.",
        "facts": {"kernel": "6.1", "firmware": "1.0", "I/O scheduler": "none"},
        **{"loads": {CASE: LOAD}, "parameters": {CASE: "same"}},
        "cells": [SessionCell(mean_log=math.log(iops), **of_case)],
    }
    return Summary.model_validate(facts | changes)
