"""Runs that drop to another level until their end, and runs that only seem to."""

from __future__ import annotations

from typing import cast

import numpy as np
import polars as pl
import pytest

from iosonde.features.sustained_load import lasting_drop
from iosonde.features.sustained_load.lasting_drop import LastingDrop, drop_of
from iosonde.metrics.facts import Facts

NOISE = np.random.default_rng(1).normal(1, 0.05, 40)

SERIES: dict[str, tuple[list[float], int | None]] = {
    "a cache that is full": ([100.0] * 5 + [40.0] * 5, 5),
    "the same in noise": ([*(100 * NOISE[:20]), *(60 * NOISE[20:])], 20),
    "two falls": ([100.0] * 4 + [60.0] * 4 + [30.0] * 4, 8),
    "a stall that is over": ([100.0] * 5 + [10.0] * 2 + [100.0] * 5, None),
    "noise alone": (list(100 * NOISE), None),
    "a fall of less than a fifth": ([100.0] * 6 + [85.0] * 6, None),
    "a rise": ([40.0] * 6 + [100.0] * 6, None),
    "too little after it": ([100.0] * 10 + [20.0] * 2, None),
    "too few intervals": ([100.0] * 3 + [40.0] * 4, None),
    "nothing at all": ([0.0] * 12, None),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_drop_counts_when_it_lasts_to_the_end(name: str) -> None:
    rates, at = SERIES[name]
    assert drop_of(np.asarray(rates)) == at


def drop(run_id: str, after: float) -> LastingDrop:
    return LastingDrop(
        result_set="",
        run_id=run_id,
        case_id="main",
        part="main",
        at_s=4.0,
        moved_bytes=1 << 30,
        before=400e6,
        after=after,
    )


def test_the_deepest_drop_comes_first() -> None:
    [found] = lasting_drop.find([drop("a", 300e6), drop("b", 100e6)], measured=9, words={"main": "block size 4 KiB"})
    assert isinstance(found, lasting_drop.LastingDrops)
    assert [each.run_id for each in found.drops] == ["b", "a"]
    assert (found.measured, found.case_ids) == (9, ("main",))
    assert found.sentence == (
        "Throughput dropped in 2 of 9 runs and stayed low to the end, so their means mix two regimes: "
        "block size 4 KiB to 25 % after 4 s and 1 GiB"
    )
    assert list(lasting_drop.find([], measured=9, words={})) == []


class FactsOfOneRun:
    """A run of twelve intervals of 100 ms, whose rate falls to 40 % after the first six."""

    def __init__(self, stalled_ns: dict[int, int]) -> None:
        self._stalled_ns = stalled_ns

    def runs(self) -> pl.DataFrame:
        same = {"workload": ["block"], "loop": ["closed"], "control": [False], "part": ["main"], "order": [1]}
        return pl.DataFrame({**RUN, **same})

    def rounds(self) -> pl.DataFrame:
        return pl.DataFrame(RUN).clear()

    alternating = staged = rounds

    def counts(self, *, per: str) -> pl.DataFrame:
        assert per == "interval"
        length = 10**8
        return pl.DataFrame(
            {
                **{name: values * 12 for name, values in RUN.items()},
                "phase": ["measure"] * 12,
                "operation": ["read"] * 12,
                "begin_ns": [length * each for each in range(12)],
                "end_ns": [length * (each + 1) for each in range(12)],
                "bytes": [100] * 6 + [40] * 6,
                "interval_stalled_ns": [self._stalled_ns.get(each, 0) for each in range(12)],
            }
        )


RUN = {"result_set": [""], "run_id": ["c0001-r1"], "case_id": ["main"]}


@pytest.mark.parametrize(("stalled_ns", "found"), [(0, 1), (60_000_000, 0)])
def test_intervals_of_a_stalled_engine_are_no_drop_of_the_device(stalled_ns: int, found: int) -> None:
    stalled = dict.fromkeys(range(6, 12), stalled_ns)
    assert len(lasting_drop.lasting_drops(cast(Facts, FactsOfOneRun(stalled)))) == found


def test_intervals_that_are_not_judged_count_towards_the_place_of_the_drop() -> None:
    stalled = dict.fromkeys([1, 3], 60_000_000)
    [drop] = lasting_drop.lasting_drops(cast(Facts, FactsOfOneRun(stalled)))
    assert (drop.at_s, drop.moved_bytes) == (pytest.approx(0.6), 600)
    assert (drop.before, drop.after) == (pytest.approx(1000), pytest.approx(400))
