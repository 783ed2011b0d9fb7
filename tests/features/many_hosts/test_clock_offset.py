"""Bounds of a clock's offset and drift contain the true values, whatever the delays and their asymmetry are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosonde.features.many_hosts.clock import ClockError, Exchange, compared, drift, offset

SECOND_NS = 10**9
DRIFT_PPM = 100
EPOCH_NS = 1_795_169_925 * SECOND_NS


@dataclass
class Clocks:
    """The coordinator's clock, which is exact, and another one, whose rate may change."""

    offset: int
    """In units of 1e-9 ns."""
    now_ns: int = EPOCH_NS
    true: list[tuple[int, int]] = field(default_factory=list)
    """Instants with the offset at them."""

    def advance(self, elapsed_ns: int, drift_ppb: int) -> None:
        self.now_ns += elapsed_ns
        self.offset += elapsed_ns * drift_ppb
        self.true.append((self.now_ns, self.offset))

    def other_ns(self) -> int:
        return self.now_ns + self.offset // SECOND_NS

    def exchange(self, forward_ns: int, back_ns: int, drift_ppb: int) -> Exchange:
        sent_ns = self.now_ns
        self.advance(forward_ns, drift_ppb)
        read_ns = self.other_ns()
        self.advance(back_ns, drift_ppb)
        return Exchange(sent_ns=sent_ns, read_ns=read_ns, returned_ns=self.now_ns)


OFFSETS = st.integers(-10 * SECOND_NS, 10 * SECOND_NS)
DELAYS = st.integers(0, 10**6) | st.integers(0, SECOND_NS)
DRIFTS = st.integers(-1000 * DRIFT_PPM, 1000 * DRIFT_PPM)
STEPS = st.fixed_dictionaries(
    {"gap_ns": st.integers(0, 60 * SECOND_NS), "forward_ns": DELAYS, "back_ns": DELAYS} | {"drift_ppb": DRIFTS}
)


def simulated(offset_ns: int, steps: list[dict[str, Any]]) -> tuple[Clocks, list[Exchange]]:
    clocks, exchanges = Clocks(offset_ns * SECOND_NS), []
    for step in steps:
        clocks.advance(step["gap_ns"], step["drift_ppb"])
        parts = (step[name] for name in ("forward_ns", "back_ns", "drift_ppb"))
        exchanges.append(clocks.exchange(*parts))
    return clocks, exchanges


@settings(max_examples=30)
@given(OFFSETS, st.lists(STEPS, min_size=1, max_size=8))
def test_the_offset_is_within_its_bounds_at_every_instant(offset_ns: int, steps: list[dict[str, Any]]) -> None:
    """Half a round trip and the drift since, also where only exchanges before, after or around an instant are known."""
    clocks, exchanges = simulated(offset_ns, steps)
    for known in (exchanges, exchanges[:1], exchanges[-1:], exchanges[::2]):
        for at_ns, true in clocks.true:
            low_ns, high_ns = offset(known, at_ns, max_drift_ppm=DRIFT_PPM)
            assert low_ns * SECOND_NS <= true <= high_ns * SECOND_NS
            distances = [max(abs(at_ns - each.sent_ns), abs(at_ns - each.returned_ns)) for each in known]
            limits = [
                (each.returned_ns - each.sent_ns) / 2 + DRIFT_PPM / 1e6 * distance
                for each, distance in zip(known, distances, strict=True)
            ]
            assert (high_ns - low_ns) / 2 <= min(limits) + 4


@settings(max_examples=30)
@given(OFFSETS, st.lists(STEPS, min_size=1, max_size=8))
def test_the_mean_drift_is_within_its_bounds(offset_ns: int, steps: list[dict[str, Any]]) -> None:
    steps[0]["forward_ns"] += 1000
    clocks, exchanges = simulated(offset_ns, steps)
    low_ppm, high_ppm = drift(exchanges, max_drift_ppm=DRIFT_PPM)
    begin_ns, end_ns = exchanges[0].sent_ns, exchanges[-1].returned_ns
    true_offsets = dict(reversed(clocks.true))
    true_ppm = (true_offsets[end_ns] - true_offsets[begin_ns]) / (end_ns - begin_ns) / 1000
    assert low_ppm - 1e-6 <= true_ppm <= high_ppm + 1e-6


def test_drift_over_ten_minutes_is_known_within_a_ppm() -> None:
    """Delays of 50 us there and 250 us back, at worst: half the round trip of 300 us at either end."""
    steps = [
        {"gap_ns": gap_ns, "forward_ns": 50_000, "back_ns": 250_000, "drift_ppb": 87_000}
        for gap_ns in (0, 600 * SECOND_NS)
    ]
    exchanges = simulated(7 * SECOND_NS, steps)[1]
    low_ppm, high_ppm = drift(exchanges)
    assert low_ppm <= 87 <= high_ppm
    found = compared(exchanges, exchanges[-1].sent_ns, recent=1)
    assert found.drift_bound_ppm and abs((found.drift_ppm or 0) - 87) <= found.drift_bound_ppm < 1
    assert abs(found.offset_ns - 7 * SECOND_NS - 87 * 600_000) <= found.bound_ns


def test_the_two_bounds_may_come_from_different_exchanges() -> None:
    """A request without queueing and a reply without queueing, each in an exchange of which the other half is slow."""
    at_ns = EPOCH_NS
    slow_back = Exchange(sent_ns=at_ns, read_ns=at_ns + 10, returned_ns=at_ns + 9000)
    slow_there = Exchange(sent_ns=at_ns, read_ns=at_ns + 8000, returned_ns=at_ns + 8020)
    assert offset([slow_back, slow_there], at_ns, max_drift_ppm=0) == (-21, 11)


def test_a_clock_that_was_set_meanwhile_is_an_error() -> None:
    steps = [{"gap_ns": SECOND_NS, "forward_ns": 10, "back_ns": 10, "drift_ppb": 0}]
    before, after = (simulated(each, steps)[1] for each in (0, 3 * SECOND_NS))
    with pytest.raises(ClockError, match="a clock was set during the study"):
        offset([*before, *after], EPOCH_NS)
