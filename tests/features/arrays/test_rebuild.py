"""Progress of a rebuild as columns of `runs`."""

from __future__ import annotations

from typing import Any

import pytest
from plans import a_record, hand_plan

from iosonde.features.arrays.setup import ArraySetup
from iosonde.plan import Setup
from iosonde.results.run_facts.run import RUNS, values

REBUILDING = ArraySetup(level="raid5", state="rebuilding", failed_members=1)
DEGRADED = ArraySetup(level="raid5", state="degraded", failed_members=1)
STARTED = {"at": 100.0, "sync_action": "recover", "sync_done": 0.25}


@pytest.mark.parametrize(
    ("array", "before", "after", "expected"),
    [
        (REBUILDING, STARTED, {"at": 110.0, "sync_action": "recover", "sync_done": 0.75}, (0.5, 10.0)),
        (REBUILDING, STARTED, {"at": 140.0, "sync_action": "idle"}, (0.75, 40.0)),
        (REBUILDING, {"at": 100.0, "sync_action": "idle"}, {"at": 110.0, "sync_action": "idle"}, (None, None)),
        (REBUILDING, STARTED, {}, (None, None)),
        (DEGRADED, STARTED, {"at": 110.0, "sync_action": "recover", "sync_done": 0.75}, (None, None)),
    ],
)
def test_the_rebuilt_share_is_that_of_a_requested_rebuild(
    array: ArraySetup, before: dict[str, Any], after: dict[str, Any], expected: tuple[float | None, float | None]
) -> None:
    plan = hand_plan()
    requested = Setup(devices=3, parts={"array": array.model_dump()}).model_dump()
    record = a_record(plan, plan.runs[0]).model_copy(
        update={"setup": {"requested": requested}, "parts": {"array": {"before": before, "after": after}}}
    )
    found = values(record, RUNS.columns)
    assert (found["rebuild_share"], found["rebuild_share_seconds"]) == expected
