"""Sustained load: changes of load, drops that last to the end of a run, and the load after pauses."""

from __future__ import annotations

from typing import cast

import numpy as np
import polars as pl
import pytest

from iosonde.features.sustained_load import questions
from iosonde.features.sustained_load.questions import (
    IdleDecay,
    LastingDrop,
    LoadChange,
    decay_of,
    drop_of,
    load_changes,
)
from iosonde.metrics.facts import Facts
from iosonde.metrics.steady_state import steady_state
from iosonde.metrics.sustained import LongRun
from iosonde.study.model import Study

K = 1000.0


def long_run(case_id: str, values: list[float], tracking: str) -> LongRun:
    series = np.array(values)
    return LongRun(
        result_set="a", run_id=case_id, case_id=case_id, part="main", repeat=1, tracking=tracking, round_s=30.0,
        values=series, iops=series, bandwidth=series * 4096, steady=steady_state(series), cliff=None, cliff_s=None,
        cliff_bytes=None, written_bytes=1 << 20, range_bytes=1 << 20, level=None,
    )  # fmt: skip


def change(values: list[float], *, tracking: str = "iops", once: float = 100 * K) -> LoadChange:
    """The stage `A again`, after `A` at the level `once` and `B`."""
    accesses = {"A": "sequential", "B": "random", "A again": "sequential"}
    stages = [{"label": label, "set": {"access": access}} for label, access in accesses.items()]
    parts = [{"name": "main", "rounds": {"max_rounds": 0, "stages": stages}}]
    asked = {"name": "by-hand", "title": "By hand", "question": "?", "parts": parts, "profiles": {"quick": {}}}
    study = Study.model_validate(asked)
    cases = pl.DataFrame({"case_id": ["a", "b", "again"], "stage": ["A", "B", "A again"]})
    rounds = {"a": [once] * 8, "b": [once / 2] * 8, "again": values}
    runs = [long_run(case_id, each, tracking) for case_id, each in rounds.items()]
    _, found = load_changes(study, runs, cases)
    assert isinstance(found, LoadChange)
    return found


@pytest.mark.parametrize(
    ("values", "recovered_s", "end"),
    [
        ([100, 90, 40, *[30] * 8], None, "; does not stay within 10 % of `A`, 30 % of it at the end"),
        ([95, 40, *[95] * 8], 60, ""),
        ([40, 50, *[100] * 8], 60, "; recovers to within 10 % of `A` after 1 min"),
        ([40] * 8, None, "; does not recover within 4 min, at best 40 % of `A`"),
        ([95, 89, 101, 95] * 3, 0, "; within 10 % of `A` from the first round"),
        ([200] * 8, 0, "200 k IOPS from the first round; above `A` from the first round"),
        ([50, 95, *[150] * 8], 30, "; recovers to within 10 % of `A` after 30 s, then above it"),
    ],
)
def test_a_recovery_counts_from_when_it_lasts(values: list[float], recovered_s: float | None, end: str) -> None:
    found = change([K * value for value in values])
    assert found.recovered_s == recovered_s
    assert found.sentence.endswith(end)


def test_a_load_that_never_settles_is_not_called_settled() -> None:
    found = change([150 * K, 50 * K] * 4, once=300 * K)
    assert found.settled_s is None
    assert " without settling" in found.sentence and "in the first round" not in found.sentence


def test_a_latency_is_better_when_it_is_lower() -> None:
    once = 1_000_000.0
    lower = change([once / 2] * 8, tracking="completion_latency_ns_mean", once=once)
    assert lower.lower_is_better
    assert lower.sentence.endswith("; below `A` from the first round")
    lost = change([once, 1.05 * once, *[4 * once] * 8], tracking="completion_latency_ns_mean", once=once)
    assert lost.recovered_s is None


# Drops that last to the end --------------------------------------------------------------------------------------------

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
        run_id=run_id, case_id="main", part="main", at_s=4.0, moved_bytes=1 << 30, before=400e6, after=after
    )  # fmt: skip


def test_the_deepest_drop_comes_first() -> None:
    found = questions.of_drops([drop("a", 300e6), drop("b", 100e6)], measured=9, words={"main": "block size 4 KiB"})
    assert [each.run_id for each in found.drops] == ["b", "a"]
    assert (found.measured, found.case_ids) == (9, ("main",))
    assert "2 of 9 runs slowed, one to 25 % after 4 s and 1 GiB (block size 4 KiB); their averages" in found.sentence


class FactsOfOneRun:
    """A run of twelve intervals of 100 ms, whose rate falls to 40 % after the first six."""

    def __init__(self, stalled_ns: dict[int, int]) -> None:
        self._stalled_ns = stalled_ns

    def runs(self) -> pl.DataFrame:
        same = {"workload": ["block"], "loop": ["closed"], "control": [False], "part": ["main"], "order": [1]}
        return pl.DataFrame({**RUN, **same})

    def rounds(self) -> pl.DataFrame:
        return pl.DataFrame(RUN).clear()

    def cases_with(self, parameter: str) -> pl.DataFrame:
        return self.rounds()

    def counts(self, *, per: str) -> pl.DataFrame:
        assert per == "interval"
        length = 10**8
        same = {**RUN, "phase": ["measure"], "operation": ["read"]}
        return pl.DataFrame(
            {
                **{name: values * 12 for name, values in same.items()},
                "begin_ns": [length * each for each in range(12)],
                "end_ns": [length * (each + 1) for each in range(12)],
                "bytes": [100] * 6 + [40] * 6,
                "interval_stalled_ns": [self._stalled_ns.get(each, 0) for each in range(12)],
            }
        )


RUN = {"result_set": [""], "run_id": ["c0001-r1"], "case_id": ["main"]}


def drops(*stalled: int) -> list[LastingDrop]:
    """Drops of the run whose engine was stalled in these intervals."""
    return questions.lasting_drops(cast(Facts, FactsOfOneRun(dict.fromkeys(stalled, 60_000_000))))


def test_intervals_of_a_stalled_engine_are_no_drop_of_the_device_and_count_towards_its_place() -> None:
    assert (len(drops()), len(drops(*range(6, 12)))) == (1, 0)
    [drop] = drops(1, 3)
    assert (drop.at_s, drop.moved_bytes) == (pytest.approx(0.6), 600)
    assert (drop.before, drop.after) == (pytest.approx(1000), pytest.approx(400))


# The load after pauses -------------------------------------------------------------------------------------------------

S = 10**9


def decay(*rates: float) -> IdleDecay:
    """Intervals of one second after pauses of ten, with a base line of 1000 IOPS."""
    begins = [index * S for index in range(len(rates))]
    frame = pl.DataFrame({"begin_ns": begins, "count": [int(rate) for rate in rates]})
    frame = frame.with_columns(end_ns=pl.col("begin_ns") + S, bytes=4096 * pl.col("count"))
    found = decay_of("after", frame, 1000.0)
    return IdleDecay(pause_s=10, base=1000, base_is_steady=True, decay=found, strength="moderate")


def test_a_rate_is_at_the_base_line_from_the_start_or_when_a_gain_is_lost() -> None:
    found = decay(1000, 950, 1050, 1000, 990, 1010)
    assert (found.decay.back_s, found.decay.rest) == (0, 1000)
    assert found.sentence == "Continuous load after pauses of 10 s: at the steady-state rate from the start"
    found = decay(2000, 2000, 2000, 1000, 1000, 1000, 1000)
    assert (found.decay.back_s, found.decay.rest) == (3, 1000)
    found = decay(2000, 2000, 2000, *[300] * 20)
    assert found.decay.back_s == 2  # The mean of 2000, 300 and 300.
    assert found.sentence.endswith("and falls to 0.38 times on average after 2 s")


@pytest.mark.parametrize("rates", [[300] * 6, [1000, 1000, 1000, *[100] * 12]])
def test_a_rate_below_the_base_line_is_not_called_steady_state(rates: list[float]) -> None:
    found = decay(*rates)
    assert found.decay.rest is not None and found.decay.rest < 900
    assert "from the start" not in found.sentence
    assert found.sentence.endswith(" times the steady-state rate on average")
