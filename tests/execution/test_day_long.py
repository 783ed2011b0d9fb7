"""A study of a day that is stopped and resumed has the same result, on a simulated drive, whose day takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import real_engine
from test_sustained import _StopAfter, found_rounds

from iosonde.execution import execute, resume
from iosonde.plan import Plan
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

STUDY = """
name = "day"
title = "A day"
question = "Does it settle within a day?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.3
arrival = "poisson"
rate = 20
queue_depth = 16
span = "100%"
purge = "strongest"
precondition = "1MiB"
ramp = 0
duration = "4h"
interval = "1h"

[[parts]]
name = "day"

[parts.rounds]
max_rounds = 6
metric = "completion_latency_ns_max"
range = 1e-6
slope = 1e-6
stages = [{ label = "after an hour of rest", set = { active = "1h-", duration = "2h" } }]

[profiles.quick]
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))


def plan() -> Plan:
    return expand(parse(STUDY), open_target("sim:pm963,capacity=64MiB"), profile="quick")


def measured(result_set: ResultSet) -> dict[str, list[tuple[int, int]]]:
    """I/Os and the sum of their latencies in every interval of each run."""
    return {
        record.run_id: result_set.only([record.run_id])
        .intervals.sort("begin_ns", "operation")
        .select("count", "completion_latency_ns_sum")
        .rows()
        for record in result_set.records()
    }


def test_a_day_that_was_interrupted_is_the_same_day(tmp_path: Path) -> None:
    whole = execute(plan(), tmp_path / "whole")
    [found] = found_rounds(whole)
    assert not found.reached and found.reason == "steady state was not achieved within 6 rounds"
    assert found.passes[0].stages == 1
    for runs in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            if runs == 2:
                execute(plan(), tmp_path / "in-parts", observer=_StopAfter(runs))
            else:
                resume(tmp_path / "in-parts", observer=_StopAfter(runs))
    listener = _StopAfter(None)
    in_parts = resume(tmp_path / "in-parts", observer=listener)
    assert not listener.notes, "a simulated drive keeps its state: nothing is prepared again"
    assert len({record.session for record in in_parts.records()}) == 3
    assert measured(in_parts) == measured(whole)
    assert found_rounds(in_parts)[0].passes == found_rounds(whole)[0].passes
