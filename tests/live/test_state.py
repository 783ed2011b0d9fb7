"""The state of the live page, and what the observer makes of events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from buckets import bucket_of
from plans import a_failure, a_record, hand_plan

from iosonde.execution.live.page import Feed, rows
from iosonde.execution.live.server import POINTS, State
from iosonde.execution.run_loop import Observer
from iosonde.planning.procedure import Remaining
from iosonde.results.schema import UNSUPPORTED, Failure, RecordVerdict


def interval(second: int, *, count: int = 10_000, latency_ns: int = 400_000, phase: str = "measure") -> Any:
    """An interval of one second at queue depth 4."""
    operation = {"operation": "read", "bytes": 4096 * count, "count": count, "response_latency": None}
    buckets = [(int(bucket), count) for bucket in bucket_of([latency_ns])]
    operation["completion_latency"] = {"buckets": buckets, "count": count, "sum_ns": latency_ns * count}
    streams = [{"stream": "main", "backlog_max": 0, "operations": [operation]}]
    ends = {"begin_ns": second * 10**9, "end_ns": (second + 1) * 10**9}
    return {"event": "interval", "phase": phase, **ends, "streams": streams}


class Page:
    """A feed whose messages reach a state as they would through the pipe."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("iosonde.execution.live.page.PERIOD_S", 0.0)
        self.plan = hand_plan()
        self.state = State()
        self.feed = Feed(Observer(), Remaining.from_plan(self.plan), rows(self.plan), self.send)

    def send(self, message: dict[str, Any], *, droppable: bool = False) -> None:
        self.state.apply(json.loads(json.dumps(message)))

    def start(self, number: int = 0) -> Any:
        run = self.plan.runs[number]
        case = next(each for each in self.plan.cases if each.case_id == run.case_id)
        self.feed.run_started(run, case)
        return run

    def shown(self) -> dict[str, Any]:
        found = self.state.as_json(-1)
        assert found
        return json.loads(found)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(monkeypatch)


def test_an_interval_shows_rate_tail_and_queue(page: Page) -> None:
    run = page.start()
    page.feed.event(run, {"event": "phase", "phase": "measure", "edge": "begin", "at_ns": 0, "bytes": 0})  # type: ignore[typeddict-unknown-key]
    page.feed.event(run, interval(0))
    shown = page.shown()
    values = shown["values"]
    assert shown["now"]["phase"] == "measuring"
    assert (values["rate_text"], values["bandwidth_text"]) == ("10 k IOPS", "41 MB/s")
    assert values["p99_ns"] == pytest.approx(400_000, rel=0.002)
    assert (values["in_flight"], values["queue_depth"], values["latency"]) == (4.0, 4, "completion")
    assert shown["points"] == [[1.0, 10_000.0, values["p99_ns"]]]
    assert shown["progress"]["total"] == 4
    page.feed.note("a message")
    for second in range(POINTS + 10):
        page.feed.event(run, interval(second))
    assert (page.shown()["notes"], len(page.shown()["points"])) == (["a message"], POINTS)


def test_finished_runs_fill_in_their_cases_with_medians_and_verdicts(page: Page) -> None:
    for number, count in ((0, 10_000), (1, 30_000)):
        run = page.start(number)
        page.feed.event(run, interval(0, count=99, phase="ramp"))
        page.feed.event(run, interval(1, count=count))
        page.feed.event(run, interval(2, count=count))
        verdict = RecordVerdict(kind="device-limited", because=[], evidence={})
        page.feed.run_ended(run, a_record(page.plan, run, verdict=verdict))
    shown = page.shown()
    [case] = [each for each in shown["cases"] if each["done"]]
    assert (case["done"], case["rate"], case["verdicts"]) == (2, 20_000, {"device-limited": 2})
    assert shown["verdicts"] == {"device-limited": 2}
    assert shown["progress"]["done"] == 2


def test_failed_runs_are_counted_and_have_no_values(page: Page) -> None:
    run = page.start()
    page.feed.event(run, interval(0))
    page.feed.run_ended(run, a_failure(page.plan, run))
    [case, *_] = page.shown()["cases"]
    assert (case["failed"], case["rate"]) == (1, None)
    run = page.start(1)
    failure = Failure(code=UNSUPPORTED, message="the file system has no polled I/O")
    page.feed.run_ended(run, a_failure(page.plan, run).model_copy(update={"failure": failure}))
    shown = page.shown()
    assert (shown["progress"]["done"], shown["progress"]["failed"]) == (2, 1)
    assert page.state.as_json(shown["version"]) is None, "a reader with the newest version gets nothing"
    assert page.state.as_json(shown["version"] - 1)
    assert not page.state.is_over
