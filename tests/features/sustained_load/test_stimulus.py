"""Changes of load: levels, when they are reached, and whether an earlier one is reached again."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from iosonde.features.sustained_load.stimulus import LoadChange, find
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
    load: dict[str, Any] = {"access": "sequential"}
    stages = [
        {"label": "A", "set": load},
        {"label": "B", "set": {"access": "random"}},
        {"label": "A again", "set": load},
    ]
    study = Study.model_validate(
        {
            "name": "by-hand",
            "title": "By hand",
            "question": "?",
            "parts": [{"name": "main", "rounds": {"max_rounds": 0, "stages": stages}}],
            "profiles": {"quick": {}},
        }
    )
    cases = pl.DataFrame({"case_id": ["a", "b", "again"], "stage": ["A", "B", "A again"]})
    runs = [
        long_run("a", [once] * 8, tracking),
        long_run("b", [once / 2] * 8, tracking),
        long_run("again", values, tracking),
    ]
    _, found = find(study, runs, cases)
    assert isinstance(found, LoadChange)
    return found


def test_a_load_that_never_settles_is_not_called_settled() -> None:
    found = change([150 * K, 50 * K] * 4, once=300 * K)
    assert found.settled_s is None
    assert " without settling" in found.sentence and "in the first round" not in found.sentence


def test_a_level_that_is_lost_again_is_no_recovery() -> None:
    found = change([100 * K, 90 * K, 40 * K, *[30 * K] * 8])
    assert found.recovered_s is None
    assert found.sentence.endswith("; does not stay within 10 % of `A`, 30 % of it at the end")


def test_a_recovery_counts_from_when_it_lasts() -> None:
    assert change([95 * K, 40 * K, *[95 * K] * 8]).recovered_s == 60
    assert change([40 * K, 50 * K, *[100 * K] * 8]).sentence.endswith("; recovers to within 10 % of `A` after 1 min")
    assert change([40 * K] * 8).sentence.endswith("; does not recover within 4 min, at best 40 % of `A`")


def test_noise_around_a_slightly_lower_level_is_a_recovery() -> None:
    found = change([95 * K, 89 * K, 101 * K, 95 * K] * 3)
    assert found.recovered_s == 0
    assert found.sentence.endswith("; within 10 % of `A` from the first round")


def test_more_than_the_earlier_level_is_not_called_near_it() -> None:
    assert change([200 * K] * 8).sentence.endswith("200 k IOPS from the first round; above `A` from the first round")
    rising = change([50 * K, 95 * K, *[150 * K] * 8])
    assert rising.sentence.endswith("; recovers to within 10 % of `A` after 30 s, then above it")


def test_a_latency_is_better_when_it_is_lower() -> None:
    once = 1_000_000.0
    lower = change([once / 2] * 8, tracking="completion_latency_ns_mean", once=once)
    assert lower.lower_is_better
    assert lower.sentence.endswith("; below `A` from the first round")
    lost = change([once, 1.05 * once, *[4 * once] * 8], tracking="completion_latency_ns_mean", once=once)
    assert lost.recovered_s is None
    assert lost.sentence.endswith("; does not stay within 10 % of `A`, 25 % of it at the end")
