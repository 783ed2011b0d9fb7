"""Identification of limits against token buckets and devices that are computed, which answer its stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from volume_models import Device, Limit, Volume, device_with_recorded_noise, random_device, random_volume, run

from iosonde.features.rate_limits.identify import Settings
from iosonde.features.rate_limits.series import Load, Series, Stage

KIB, MIB = 1024, 1 << 20
LONG = Settings(drain_s=900, rest_s=7200, writes=True)
READS = Settings(drain_s=900, rest_s=7200)


@pytest.mark.parametrize("seed", range(25))
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


def test_devices_without_a_rule_are_not_called_limited() -> None:
    verdicts = [run(LONG, random_device(seed)).verdict for seed in range(40)]
    assert "limited" not in verdicts
    assert verdicts.count("not limited") > len(verdicts) / 2


def test_devices_with_the_noise_of_a_real_disk_are_not_called_limited() -> None:
    verdicts = [run(LONG, device_with_recorded_noise(seed)).verdict for seed in range(40)]
    assert verdicts.count("limited") == 0


@pytest.mark.parametrize(
    ("device", "seed"), [(device_with_recorded_noise, 1028), (device_with_recorded_noise, 3082), (random_device, 5141)]
)
def test_a_device_with_a_steady_bandwidth_or_a_gradual_decay_is_not_called_limited(
    device: Callable[[int], Device], seed: int
) -> None:
    """These three of 800 devices were; the last one recovers at nearly its lowest rate."""
    assert run(LONG, device(seed)).verdict != "limited"


def test_a_limit_in_bytes_is_identified_where_the_device_limits_small_blocks() -> None:
    class Noisy(Volume):
        def serve(self, stage: Stage) -> Series:
            self.noise = 0.05 if stage.load.block_size < 256 * KIB else 0.002
            return super().serve(stage)

    found = run(READS, Noisy([Limit("bytes", 50e6)], latency_s=0.01))
    assert found.verdict == "limited"
    [rule] = found.rules
    assert rule.counts == "bytes"
    assert rule.rate.value == pytest.approx(50e6, rel=0.02)


def test_gp2_is_identified_with_its_credits() -> None:
    """100 GiB of gp2: 300 IOPS, bursts of 3,000, 5.4 million credits, which take half an hour to drain."""
    volume = Volume([Limit("operations", 300, 3000, 5_400_000, unit_bytes=256 * KIB)], noise=0.001)
    found = run(Settings(drain_s=3600, rest_s=6 * 3600), volume)
    [rule] = found.rules
    assert (rule.counts, rule.unit_bytes, rule.is_burst_limited) == ("operations", 256 * KIB, True)
    assert rule.rate.value == pytest.approx(300, rel=0.01)
    assert rule.burst_rate and rule.burst_rate.value == pytest.approx(3000, rel=0.01)
    assert rule.bucket and rule.bucket.value == pytest.approx(5_400_000, rel=0.01)
    assert rule.seconds_until_empty == pytest.approx(2000, rel=0.02)
    assert rule.seconds_until_full == pytest.approx(18_000, rel=0.02)


def test_a_burst_longer_than_the_measurement_is_not_ruled_out() -> None:
    volume = Volume([Limit("operations", 300, 3000, 5_400_000, unit_bytes=256 * KIB)], noise=0.001)
    found = run(Settings(drain_s=60), volume)
    [rule] = found.rules
    assert found.verdict == "limited" and rule.may_be_burst
    assert rule.rate.value == pytest.approx(3000, rel=0.01)
    assert rule.bucket is None and found.constant_s >= 59


def test_a_limit_that_changes_between_stages_is_a_change() -> None:
    """After the drain of 60 s, the sizes and the queue depth, the limit is lowered."""
    volume = Volume([Limit("operations", 2000, change=(92.0, 1500))], noise=0.001)
    found = run(Settings(drain_s=60), volume)
    assert found.change is not None
    assert (found.change.before, found.change.after) == (pytest.approx(2000, rel=0.01), pytest.approx(1500, rel=0.01))
    assert found.rules[0].rate.value == pytest.approx(2000, rel=0.01), "not the average"


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("after_s", range(65, 150, 6))
def test_a_change_at_any_time_leads_to_no_other_rule(after_s: int, factor: float) -> None:
    """Half the rate looks as if larger blocks counted twice, if it is not compared with the first load again."""
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


def test_a_drop_without_recovery_is_a_change_and_not_a_burst() -> None:
    volume = Volume([Limit("operations", 2000, change=(30.0, 500))], noise=0.001)
    found = run(READS, volume)
    assert (found.verdict, found.rules) == ("undecided", ())
    assert found.change and found.change.after == pytest.approx(500, rel=0.01)


def test_a_rise_under_load_is_a_change() -> None:
    volume = Volume([Limit("operations", 500, change=(30.0, 2000))], noise=0.001)
    found = run(READS, volume)
    assert found.verdict == "undecided"
    assert found.change and found.change.before == pytest.approx(500, rel=0.01)


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
