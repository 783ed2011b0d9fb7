"""Identification of limits: models of token buckets and devices, studies that are stopped, and recorded throttles."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from volume_models import (
    KIB,
    Device,
    Limit,
    Servers,
    Volume,
    device_with_recorded_noise,
    random_device,
    random_servers,
    random_volume,
    run,
    series_of,
)

from iosonde.features.rate_limits.identify import Settings, identify
from iosonde.features.rate_limits.known_limits import Identification
from iosonde.features.rate_limits.procedures import SETTINGS
from iosonde.features.rate_limits.series import Load, Series, Stage
from iosonde.features.rate_limits.sharing import Bounds
from iosonde.features.rate_limits.stages import stopped_in
from iosonde.features.rate_limits.walk import OutOfTimeError
from iosonde.results.shapes import mismatch_of

LONG = Settings(drain_s=900, rest_s=7200, writes=True)
READS = Settings(drain_s=900, rest_s=7200)


@pytest.mark.parametrize("seed", range(6))
def test_random_rules_are_identified(seed: int) -> None:
    volume = random_volume(seed)
    found = run(LONG, volume)
    truth, rule = volume.limits[0], found.rules[0]
    assert (rule.counts, rule.unit_bytes) == (truth.counts, truth.unit_bytes)
    assert rule.rate.value == pytest.approx(truth.rate, rel=0.02)
    assert bool(rule.bucket) is (truth.bucket > 0)
    if rule.bucket:
        assert rule.refill and rule.refill.is_confirmed and rule.bucket.is_confirmed
        assert rule.bucket.value == pytest.approx(truth.bucket, rel=0.05)
        assert rule.refill.value == pytest.approx(truth.rate, rel=0.05)
    assert found.sharing == ("shared" if truth.write_weight else "separate")
    if found.write_weight:
        assert found.write_weight.value == pytest.approx(truth.write_weight, rel=0.05)
    assert found.change is None


@pytest.mark.parametrize("device", [random_device, device_with_recorded_noise])
def test_devices_without_a_rule_are_not_called_limited(device: Callable[[int], Device]) -> None:
    """These later seeds of 800 were: a steady bandwidth, and a gradual decay that recovers at nearly its lowest rate."""
    later = {device_with_recorded_noise: (1028, 3082), random_device: (5141,)}[device]
    verdicts = [run(LONG, device(seed)).verdict for seed in (*range(5), *later)]
    assert "limited" not in verdicts
    assert "not limited" in verdicts


@pytest.mark.parametrize("settings", [LONG, Settings(drain_s=60, total_s=175)])
def test_a_device_of_constant_service_time_is_no_rule(settings: Settings) -> None:
    """Serial devices and those of k servers, whose rate times their latency is k."""
    shipped = [Servers(1, 600e-6), Servers(4, 2e-3), Servers(1, 0.9e-3, added_s=0.5e-3)]
    for device in (*shipped, *map(random_servers, range(40))):
        found = run(settings, device)
        assert not found.rules and found.verdict != "limited", device
    assert run(settings, Servers(4, 2e-3)).reason.endswith("the rate times the latency of 2 ms is 4.00")


class PassingVolume(Volume):
    """A limiter that lets a few operations at a time through, before a network volume of 0.7 ms."""

    is_disturbed = False

    def serve(self, stage: Stage) -> Series:
        served = super().serve(stage)
        if not stage.has_distribution:
            return served
        return replace(served, distribution=[(0.7e-3, 100)], is_disturbed=self.is_disturbed)


def test_a_limit_that_lets_simultaneous_operations_pass_is_a_rule_unless_the_machine_was_busy() -> None:
    volume = PassingVolume([Limit("operations", 3000)], noise=0.001)
    found = run(Settings(drain_s=60), volume)
    assert (found.verdict, found.rules[0].rate.value) == ("limited", pytest.approx(3000, rel=0.01))
    volume.is_disturbed = True
    found = run(Settings(drain_s=60), volume)
    assert (found.verdict, found.rules) == ("undecided", ())
    assert "other load took CPU time while latencies were measured" in found.reason


def test_a_burst_longer_than_the_measurement_is_not_ruled_out() -> None:
    volume = Volume([Limit("operations", 300, 3000, 5_400_000, unit_bytes=256 * KIB)], noise=0.001)
    found = run(Settings(drain_s=60), volume)
    [rule] = found.rules
    assert found.verdict == "limited" and rule.may_be_burst
    assert rule.rate.value == pytest.approx(3000, rel=0.01)
    assert rule.bucket is None and found.constant_s >= 59


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("after_s", [*range(65, 150, 24), 85])
def test_a_change_at_any_time_leads_to_no_other_rule(after_s: int, factor: float) -> None:
    """Half the rate looks as if larger blocks counted twice, if it is not compared with the first load again.

    After 85 s a quarter of the queue depth is tried, whose rate looks like a device's.
    """
    volume = Volume([Limit("operations", 1000, change=(after_s, 1000 * factor))], noise=0.001)
    found = run(Settings(drain_s=60), volume)
    for rule in found.rules:
        assert (rule.counts, rule.unit_bytes, rule.burst_rate) == ("operations", None, None)
        assert rule.rate.value == pytest.approx(1000, rel=0.01)
    if volume.now > after_s:
        assert found.change is not None
        assert (found.change.before, found.change.after) == (
            pytest.approx(1000, rel=0.01),
            pytest.approx(1000 * factor, rel=0.01),
        )


@pytest.mark.parametrize(("before", "after"), [(2000, 500), (500, 2000)])
def test_a_rate_that_changes_under_load_is_a_change_and_not_a_burst(before: float, after: float) -> None:
    found = run(READS, Volume([Limit("operations", before, change=(30.0, after))], noise=0.001))
    assert (found.verdict, found.rules) == ("undecided", ())
    assert found.change
    assert found.change.before == pytest.approx(before, rel=0.01)
    assert found.change.after == pytest.approx(after, rel=0.01)


def test_a_cache_that_recovers_faster_than_it_drains_is_not_a_bucket() -> None:
    """An SLC cache: constant rates before and after the cliff, and twice the recovery of a rule."""
    device = Device(
        rate=20_000, latency_s=0.0001, bandwidth=3e9, noise=0.002, slow=0.2, cliff_s=60, recovery=2.0, seed=1
    )
    assert run(READS, device).verdict == "undecided"


def test_idle_time_between_runs_does_not_count_as_a_low_rate() -> None:
    part = Series(load=Load(), idle_s=3.0, seconds=(1.0,) * 10, reads=(100.0,) * 10, writes=(0.0,) * 10)
    whole = part.then(replace(part, idle_s=5.0))
    [segment] = whole.segments()
    assert segment.rate == pytest.approx(100)
    assert sum(whole.seconds) == 25 and whole.loaded_s == 20


def test_a_series_without_operations_ends_the_identification() -> None:
    volume = Volume([Limit("operations", 1e-9)])
    found = run(Settings(drain_s=5), volume)
    assert found.verdict in ("undecided", "not limited") and not found.rules
    assert not math.isnan(found.constant_s)


COMPLETE = 10_000
"""More stages than any identification has."""


def stopped_after(volume: Volume | Device, stages: int, settings: Settings = LONG) -> Identification:
    walk = identify(settings)
    stage = next(walk)
    for _ in range(stages):
        try:
            stage = walk.send(volume.serve(stage))
        except StopIteration as end:
            found: Identification = end.value
            return found
    return stopped_in(walk, stage)


def gp2() -> Volume:
    return Volume([Limit("operations", 300, 3000, 54_000, unit_bytes=256 * KIB)], noise=0.001)


def test_a_complete_study_has_the_credits_of_gp2_and_a_stopped_one_names_what_is_open() -> None:
    whole = stopped_after(gp2(), COMPLETE)
    [rule] = whole.rules
    assert (rule.counts, rule.unit_bytes, rule.is_burst_limited) == ("operations", 256 * KIB, True)
    assert rule.burst_rate and rule.burst_rate.value == pytest.approx(3000, rel=0.01)
    assert rule.seconds_until_empty == pytest.approx(20, rel=0.02)
    assert rule.seconds_until_full == pytest.approx(180, rel=0.02)
    assert not whole.stopped_at
    found = stopped_after(gp2(), 3)
    assert found.stopped_at.startswith("drain") and found.verdict == "undecided" and not found.rules
    assert found.reason.startswith("4 KiB reads: constant at 3,000 IOPS for ")
    assert found.reason.endswith(f"the study was stopped in the stage `{found.stopped_at}`")
    assert found.undecided[:2] == ["which rate is sustained", "what a limit counts"]
    parts = [stopped_after(gp2(), stages) for stages in range(0, 60, 5)]
    known = [each for each in parts if each.stopped_at and each.rules]
    assert {(each.rules[0].rate, each.rules[0].bucket) for each in known} == {(rule.rate, rule.bucket)}
    assert not {"which rate is sustained", "credits and their refill"} & set(known[0].undecided)
    assert "whether reads and writes share a budget" in known[0].undecided
    assert known[-1].undecided[-1] == "whether the limit changed during the study"
    opened = [len(each.undecided) for each in parts if each.stopped_at]
    assert opened == sorted(opened, reverse=True), "each stage can only answer questions"
    early = stopped_after(gp2(), 0, Settings(drain_s=60, touch_span=1 << 30))
    assert early.stopped_at.startswith("touch") and early.first_touch is None
    assert early.undecided[0] == "whether first accesses take longer"


@pytest.mark.parametrize("made", [random_volume, random_device])
@pytest.mark.parametrize("seed", range(2))
def test_no_stop_leads_to_another_conclusion_than_the_complete_study(
    made: Callable[[int], Volume | Device], seed: int
) -> None:
    whole = stopped_after(made(seed), COMPLETE)
    for stages in range(seed, 60, 13):
        found = stopped_after(made(seed), stages)
        assert found.verdict == ("undecided" if found.stopped_at and not found.rules else whole.verdict)
        assert {each.rate for each in found.rules} <= {each.rate for each in whole.rules}


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
        served = series_of(stage, idle_s, 0.1, counts)
        return replace(served, in_flight_before=in_flight, is_disturbed=self.disturbed)


LIVE = Settings(probe_s=2, drain_s=10, rest_s=10, largest=64 * 1024)


@pytest.mark.parametrize("gap_s", [0.3, 1.0, 2.0])
def test_credits_that_come_back_between_stages_do_not_change_the_rule(gap_s: float) -> None:
    [rule] = run(LIVE, LiveThrottle(gap_s)).rules
    assert (rule.counts, rule.unit_bytes, rule.merges) == ("operations", None, False)
    assert rule.rate.value == pytest.approx(RATE, rel=0.02)
    assert rule.burst_rate and rule.burst_rate.value == pytest.approx(BURST, rel=0.02)
    assert rule.bucket and rule.bucket.is_confirmed and rule.bucket.value == pytest.approx(CREDITS, rel=0.05)
    assert rule.refill and rule.refill.is_confirmed
    assert (rule.refill.low, rule.refill.high) == pytest.approx((RATE, RATE), rel=0.05)


@pytest.mark.parametrize(("disturbed", "verdict"), [(False, "not limited"), (True, "undecided")])
def test_a_varying_rate_decides_nothing_on_a_busy_machine(disturbed: bool, verdict: str) -> None:
    found = run(LIVE, LiveThrottle(0.3, disturbed=disturbed, noise=0.1))
    assert found.verdict == verdict and found.change is None
    assert ("other load took CPU time" in found.reason) is disturbed


RECORDINGS = Path(__file__).parent / "recorded"
"""Stages of identifications on devices of the lab, on two cores that compilers kept busy."""


@pytest.mark.parametrize(
    ("name", "drain_s", "largest", "counts", "rate"),
    [
        ("iops_400_a", 40, 256 * KIB, "operations", 400),
        ("iops_400_b", 30, 512 * KIB, "operations", 400),
        ("bandwidth_20_mb", 30, 512 * KIB, "bytes", 20e6),  # The machine limits small blocks.
    ],
)
def test_a_throttle_is_recognised_on_a_busy_machine(
    name: str, drain_s: float, largest: int, counts: str, rate: float
) -> None:
    """A recording answers the stages; of stages of the same name the last."""
    with (RECORDINGS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["stage"]: row for row in csv.DictReader(file)}
    stages = identify(Settings(probe_s=4, drain_s=drain_s, rest_s=0, largest=largest))
    stage = next(stages)
    with pytest.raises(StopIteration) as end:
        while True:
            if stage.name.startswith("latency"):  # Not recorded: far below the interval of the limit.
                fast = replace(series_of(stage, 0.4, 1.0, [rate] * 5), distribution=[(20e-6, 100)])
                stage = stages.send(fast)
                continue
            if stage.name not in rows:  # The recordings end before.
                stages.throw(OutOfTimeError(stage.name))
            row = rows[stage.name]
            load = Load(block_size=int(row["block_size"]), queue_depth=int(row["queue_depth"]))
            operations = [float(each) for each in row["operations"].split()]
            answered = replace(stage, load=load)
            stage = stages.send(series_of(answered, float(row["idle_s"]), float(row["interval_s"]), operations))
    found: Identification = end.value.value
    [rule] = found.rules
    assert (rule.counts, rule.unit_bytes, rule.bucket) == (counts, None, None)
    assert rule.rate.value == pytest.approx(rate, rel=0.02)
    assert found.change is None


@pytest.mark.parametrize("kind", [0, 1])
def test_settings_of_a_plan_that_lack_a_bound_or_have_one_of_the_target_are_refused(kind: int) -> None:
    name, model = SETTINGS[kind]
    given = (Settings(), Bounds(probe_s=5, drain_s=60, total_s=600))[kind].model_dump(exclude={"touch_span"})
    assert mismatch_of(given, model, is_closed=True) == "", name
    without = {each: value for each, value in given.items() if each != "total_s"}
    assert "`total_s` is missing" in mismatch_of(without, model, is_closed=True)
    assert "no such field" in mismatch_of({**given, "touch_span": 1 << 30}, model, is_closed=True)
