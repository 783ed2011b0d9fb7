"""Remaining work: bounds for cases whose runs depend on earlier results."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosonde.planning import expand, load
from iosonde.procedure.schedule import Remaining, Schedule
from iosonde.results import ResultSet
from iosonde.storage import open_target

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["latency-curve", "snia-write-saturation"])
def test_the_remaining_work_of_a_new_result_set_includes_cases_that_wait_for_others(name: str, tmp_path: Path) -> None:
    """Rates of a latency curve are derived from a part that has not run yet."""
    plan = expand(load(name), open_target("simulated:servers=4,read=100us,write=100us,size=4GiB"), profile="quick")
    ahead = Schedule(ResultSet.create(tmp_path / "set", plan)).ahead()
    whole = Remaining.from_plan(plan)
    assert (ahead.runs, ahead.at_most) == (whole.runs, whole.at_most)
    assert ahead.at_most > 0
