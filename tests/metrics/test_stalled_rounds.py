"""Runs in whose last rounds the engine itself did not run: nothing is known about their level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from iosonde.features.sustained_load.tables import row_of_run
from iosonde.findings.device_state import DeviceStates
from iosonde.findings.questions.steady import of_run
from iosonde.metrics.steady_state import steady_state
from iosonde.metrics.sustained import LongRun

STEADY = [100.0] * 8


def long_run(values: list[float]) -> LongRun:
    series = np.array(values)
    return LongRun(
        result_set="a", run_id="a", case_id="a", part="a", repeat=1, tracking="iops", round_s=1.0, values=series,
        iops=series, bandwidth=series * 4096, steady=steady_state(series), cliff=None, cliff_s=None, cliff_bytes=None,
        written_bytes=1 << 20, range_bytes=1 << 20, level=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([*STEADY, math.nan], "stalled"),
        ([math.nan] * 9, "stalled"),
        ([math.nan, *STEADY], "steady"),
        ([*STEADY, 10, 10, 10], "changed"),
    ],
)
def test_a_level_is_lost_only_if_the_last_rounds_are_known(values: list[float], outcome: str) -> None:
    assert long_run(values).outcome == outcome


def test_what_is_not_a_number_is_in_no_sentence_and_no_table() -> None:
    stalled = long_run([*STEADY, math.nan])
    finding = of_run(stalled, "random writes", "unknown")
    cells = [cell.text for cell in row_of_run(stalled, DeviceStates(runs={}))]
    assert "nan" not in f"{finding.sentence} {finding.evidence} {' '.join(cells)}"
    assert (
        finding.sentence
        == "Random writes: no steady state shown, the engine did not run in some of the last rounds (9 s)"
    )
    assert "engine stalled" in cells
