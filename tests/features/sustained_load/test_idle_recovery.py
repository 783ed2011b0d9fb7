"""The load after pauses: when a gain is lost, and rates below the base line."""

from __future__ import annotations

import polars as pl
import pytest

from iosonde.features.sustained_load.idle_recovery import IdleDecay, decay_of

S = 10**9


def decay(*rates: float) -> IdleDecay:
    """Intervals of one second after pauses of ten, with a base line of 1000 IOPS."""
    counts = [int(rate) for rate in rates]
    frame = pl.DataFrame(
        {
            "begin_ns": [index * S for index in range(len(counts))],
            "end_ns": [(index + 1) * S for index in range(len(counts))],
            "count": counts,
            "bytes": [4096 * count for count in counts],
        }
    )
    found = decay_of("after", frame, 1000.0)
    return IdleDecay(pause_s=10, base=1000, base_is_steady=True, decay=found, strength="moderate")


def test_a_rate_at_the_base_line_is_there_from_the_start() -> None:
    found = decay(1000, 950, 1050, 1000, 990, 1010)
    assert (found.decay.back_s, found.decay.rest) == (0, 1000)
    assert found.sentence == "Continuous load after pauses of 10 s: at the steady-state rate from the start"


def test_a_gain_that_is_lost_returns_to_the_base_line() -> None:
    found = decay(2000, 2000, 2000, 1000, 1000, 1000, 1000)
    assert (found.decay.back_s, found.decay.rest) == (3, 1000)
    assert "starts at 2.0 times the steady-state rate and returns to within 10 % of it after 3 s" in found.sentence


@pytest.mark.parametrize("rates", [[300] * 6, [1000, 1000, 1000, *[100] * 12]])
def test_a_rate_below_the_base_line_is_not_called_steady_state(rates: list[float]) -> None:
    found = decay(*rates)
    assert found.decay.rest is not None and found.decay.rest < 900
    assert "from the start" not in found.sentence
    assert found.sentence.endswith(" times the steady-state rate on average")


def test_a_gain_that_is_lost_may_end_below_the_base_line() -> None:
    found = decay(2000, 2000, 2000, *[300] * 20)
    assert found.decay.back_s == 2  # The mean of 2000, 300 and 300.
    assert found.sentence == (
        "Continuous load after pauses of 10 s: starts at 2.0 times the steady-state rate "
        "and falls to 0.38 times on average after 2 s"
    )
