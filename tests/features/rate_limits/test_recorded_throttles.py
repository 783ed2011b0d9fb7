"""Identification from series of real throttles: QEMU's, on two cores that compilers kept busy.

Each file of `recorded` has the stages of one identification, recorded from a device of the lab.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from iosonde.features.rate_limits.identify import Settings, identify
from iosonde.features.rate_limits.rules import Identification
from iosonde.features.rate_limits.series import Load, Series
from iosonde.features.rate_limits.walk import OutOfTimeError

KIB = 1024
RECORDED = Path(__file__).parent / "recorded"


def series(name: str) -> dict[str, Series]:
    """Recorded stages by their names; of stages of the same name the last."""
    with (RECORDED / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["stage"]: _series(row) for row in rows}


def _series(row: dict[str, str]) -> Series:
    counts = tuple(map(float, row["operations"].split()))
    return Series(
        load=Load(block_size=int(row["block_size"]), queue_depth=int(row["queue_depth"])),
        idle_s=float(row["idle_s"]),
        seconds=(float(row["interval_s"]),) * len(counts),
        reads=counts,
        writes=(0.0,) * len(counts),
    )


def identified(name: str, *, drain_s: float, largest: int) -> Identification:
    """Answer the stages of an identification from a recording."""
    recorded = series(name)
    stages = identify(Settings(probe_s=4, drain_s=drain_s, rest_s=0, largest=largest))
    try:
        stage = next(stages)
        while True:
            if stage.name.startswith("latency"):  # The recordings end before.
                stages.throw(OutOfTimeError(stage.name))
            stage = stages.send(recorded[stage.name])
    except StopIteration as end:
        found: Identification = end.value
        return found


@pytest.mark.parametrize(("name", "drain_s", "largest"), [("iops_400_a", 40, 256 * KIB), ("iops_400_b", 30, 512 * KIB)])
def test_a_throttle_of_operations_is_recognised_on_a_busy_machine(name: str, drain_s: float, largest: int) -> None:
    found = identified(name, drain_s=drain_s, largest=largest)
    [rule] = found.rules
    assert (rule.counts, rule.unit_bytes, rule.bucket) == ("operations", None, None)
    assert rule.rate.value == pytest.approx(400, rel=0.01)
    assert found.change is None


def test_a_throttle_of_bytes_is_recognised_where_the_machine_limits_small_blocks() -> None:
    found = identified("bandwidth_20_mb", drain_s=30, largest=512 * KIB)
    [rule] = found.rules
    assert (rule.counts, rule.unit_bytes) == ("bytes", None)
    assert rule.rate.value == pytest.approx(20_000_000, rel=0.02)


def test_delays_that_a_throttle_makes_up_for_do_not_count_as_varying_rates() -> None:
    """In bins of half a second the rate of this stage varies by 1.4 %, more than the 1 % of a constant one."""
    [segment] = series("iops_400_a")["drain-3"].segments()
    assert segment.is_constant
    assert segment.rate == pytest.approx(400, rel=0.005)


def test_a_rate_that_the_machine_limits_is_not_constant() -> None:
    recorded = series("bandwidth_20_mb")
    whole = [recorded[name] for name in recorded if name.startswith("drain-")]
    assert not any(each.is_constant for stage in whole for each in stage.segments())
