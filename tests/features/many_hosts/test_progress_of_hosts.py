"""Rates of several hosts while they measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from plans import tables

from iosonde.execution.engine import without_engine
from iosonde.execution.progress import Rates
from iosonde.features.many_hosts.progress import Progress, total
from iosonde.features.many_hosts.summary_event import summary_event
from iosonde.protocol.event import IntervalEvent
from iosonde.results.schema import Failure

pytestmark = pytest.mark.unit

SECOND = 10**9


def interval(index: int, count: int, *, phase: str = "measure", length_s: float = 0.5) -> Any:
    latency = {"count": count, "sum_ns": 10 * count, "buckets": [[5, count]]}
    operation = {"operation": "read", "count": count, "bytes": 4 * count, "errors": 0, "completion_latency": latency}
    return {
        "event": "interval", "phase": phase, "index": index,
        "begin_ns": int(index * length_s * SECOND), "end_ns": int((index + 1) * length_s * SECOND),
        "streams": [{"stream": "main", "operations": [operation], "backlog_max": 0}],
    }  # fmt: skip


def reports(*events: IntervalEvent) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    progress = Progress(found.append)
    for event in events:
        progress.add(event)
    return found


def test_an_agent_reports_at_most_once_a_second() -> None:
    [report] = reports(*(interval(index, 100) for index in range(20)))
    assert report["phase"] == "measure"
    assert report["length_ns"] == SECOND // 2
    assert report["rows"] == [
        {"stream": "main", "operation": "read", "count": 100, "bytes": 400, "errors": 0, "sum_ns": 1000}
    ]


def test_rates_of_hosts_are_added_whatever_time_they_cover() -> None:
    slow, fast = reports(interval(0, 100)) + reports(interval(0, 100, length_s=0.1))
    event = total([slow, fast])
    assert event
    [operation] = event["streams"][0]["operations"]
    assert operation["count"] == 200 + 1000
    rates = Rates()
    rates.add(event)
    assert "1,200" in rates.text()


def test_there_is_no_total_while_hosts_are_in_different_phases() -> None:
    assert total(reports(interval(0, 1)) + reports(interval(0, 1, phase="ramp"))) is None


def test_the_summary_has_what_the_live_page_reads() -> None:
    intervals, histograms, usage = tables("c0001-r1")
    empty = without_engine(Failure(code="", message=""))
    event = summary_event(replace(empty, intervals=intervals, histograms=histograms, usage=usage))
    assert event["index"] == 0
    assert all(each["completion_latency"]["sum_ns"] >= 0 for each in event["streams"][0]["operations"])
