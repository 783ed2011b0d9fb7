"""Series of live devices, with what those of models lack: operations in flight, credits between stages, other load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iosonde.features.rate_limits.identify import Settings, identify
from iosonde.features.rate_limits.rules import Identification
from iosonde.features.rate_limits.series import Load, Series, Stage, deficit

DEPTH = 64
RATE, BURST, CREDITS = 300.0, 900.0, 1800.0


class LiveThrottle:
    """A bucket that continues to serve what is in flight at the end of a stage, and stages that start late."""

    def __init__(self, gap_s: float, *, disturbed: bool = False, noise: float = 0.0) -> None:
        self.gap_s, self.disturbed, self.noise = gap_s, disturbed, noise
        self.credits, self.in_flight = CREDITS, 0.0

    def serve(self, stage: Stage) -> Series:
        idle_s = self.gap_s + stage.rest_s
        self.credits = min(CREDITS, self.credits + max(0.0, RATE * idle_s - self.in_flight))
        counts = []
        for place in range(round(stage.seconds / 0.1)):
            self.credits += 0.1 * RATE
            done = min(0.1 * (stage.rate or BURST), self.credits)
            self.credits -= done
            counts.append(done * (1 + self.noise * (-1) ** (place // 7)))
        in_flight, self.in_flight = self.in_flight, 0.0 if stage.rate else float(stage.load.queue_depth)
        return Series(
            load=stage.load,
            idle_s=idle_s,
            seconds=(0.1,) * len(counts),
            reads=tuple(counts),
            writes=(0.0,) * len(counts),
            in_flight_before=in_flight,
            is_disturbed=self.disturbed,
        )


def identified(throttle: LiveThrottle) -> Identification:
    stages = identify(Settings(probe_s=2, drain_s=10, rest_s=10, largest=64 * 1024))
    try:
        stage = next(stages)
        while True:
            stage = stages.send(throttle.serve(stage))
    except StopIteration as end:
        found: Identification = end.value
        return found


@pytest.mark.parametrize("gap_s", [0.3, 1.0, 2.0])
def test_credits_that_come_back_between_stages_do_not_change_the_rule(gap_s: float) -> None:
    [rule] = identified(LiveThrottle(gap_s)).rules
    assert (rule.counts, rule.unit_bytes, rule.merges) == ("operations", None, False)
    assert rule.rate.value == pytest.approx(RATE, rel=0.02)
    assert rule.burst_rate and rule.burst_rate.value == pytest.approx(BURST, rel=0.02)
    assert rule.bucket and rule.bucket.is_confirmed and rule.bucket.value == pytest.approx(CREDITS, rel=0.05)
    assert rule.refill and rule.refill.is_confirmed
    assert (rule.refill.low, rule.refill.high) == pytest.approx((RATE, RATE), rel=0.05)


def test_operations_in_flight_spend_the_credits_of_a_rest() -> None:
    drained = Series(load=Load(), idle_s=0, seconds=(1.0,), reads=(1000.0,), writes=(0.0,))
    rested = replace(drained, idle_s=1.0, reads=(300.0,), in_flight_before=64)
    assert deficit([drained, rested], [1, 1], RATE) == 700 + 64 - 300


@pytest.mark.parametrize(("disturbed", "verdict"), [(False, "not limited"), (True, "undecided")])
def test_a_varying_rate_decides_nothing_on_a_busy_machine(disturbed: bool, verdict: str) -> None:
    found = identified(LiveThrottle(0.3, disturbed=disturbed, noise=0.1))
    assert found.verdict == verdict and found.change is None
    assert ("other load took CPU time" in found.reason) is disturbed


@pytest.mark.parametrize("disturbed", [False, True])
def test_credits_that_a_starved_load_does_not_spend_are_no_change_of_the_limit(disturbed: bool) -> None:
    class Starved(LiveThrottle):
        def serve(self, stage: Stage) -> Series:
            served = super().serve(stage)
            if not stage.name.startswith("small-rest1"):
                return served
            slow = tuple(min(each, 0.1 * RATE) for each in served.reads)
            return replace(served, reads=slow, is_disturbed=disturbed)

    found = identified(Starved(0.3))
    assert found.verdict == "undecided" and (found.change is None) is disturbed
