"""Published limits of volume types: rules and examples that their sources state."""

from __future__ import annotations

import pytest

from iosonde.features.rate_limits import published
from iosonde.features.rate_limits.published import PublishedLimit

GIB = 1 << 30
MIB = 1 << 20


def limit(volume: str, counts: str, gib: float, operations: str = "all") -> PublishedLimit:
    """The limit of a volume type at a size."""
    found = [
        each
        for each in published.limits(size_bytes=round(gib * GIB))
        if (each.volume, each.counts, each.operations) == (volume, counts, operations)
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("gib", "iops", "burst_s"),
    [(33, 100, 1862), (100, 300, 2000), (334, 1002, 2703), (750, 2250, 7200), (1000, 3000, None), (5334, 16_000, None)],
)
def test_gp2_has_the_rates_and_burst_durations_of_its_table(gib: int, iops: int, burst_s: float | None) -> None:
    found = limit("gp2", "operations", gib)
    assert found.rate == pytest.approx(iops, rel=0.001)
    assert found.burst_seconds == (burst_s and pytest.approx(burst_s, abs=1))


@pytest.mark.parametrize(("gib", "mib_s"), [(100, 128), (170, 128), (171, 250), (334, 250)])
def test_gp2_has_the_throughput_of_its_size(gib: int, mib_s: int) -> None:
    assert limit("gp2", "bytes", gib).rate == mib_s * MIB


@pytest.mark.parametrize(
    ("volume", "tib", "base", "burst"),
    [("st1", 0.125, 5, 31), ("st1", 1, 40, 250), ("st1", 12.5, 500, None), ("sc1", 1, 12, 80), ("sc1", 16, 192, 250)],
)
def test_hdd_volumes_have_the_rates_of_their_tables(volume: str, tib: float, base: float, burst: float | None) -> None:
    found = limit(volume, "bytes", tib * 1024)
    assert found.rate == pytest.approx(base * MIB)
    assert found.burst_rate == (burst and pytest.approx(burst * MIB, rel=0.02))


def test_an_azure_disk_has_the_rates_of_the_next_larger_size() -> None:
    assert (limit("premium-ssd", "operations", 100).rate, limit("premium-ssd", "operations", 128).rate) == (500, 500)
    assert limit("premium-ssd", "operations", 512).burst_seconds == 1800
    assert limit("premium-ssd", "operations", 1024).burst_rate is None


def test_persistent_disks_have_a_baseline_and_a_part_by_size() -> None:
    assert limit("pd-ssd", "operations", 100).rate == 6000 + 30 * 100
    assert limit("pd-balanced", "bytes", 100).rate == pytest.approx((140 + 28) * MIB)
    assert limit("pd-standard", "operations", 100, "write").rate == 150


def test_every_limit_has_a_source_with_a_date() -> None:
    for each in published.limits(size_bytes=1000 * GIB):
        assert each.source
        assert each.date[:2] == "20"


def test_a_measured_rate_agrees_with_the_limits_of_its_provider_only() -> None:
    found = published.agreeing(3010, "operations", size_bytes=100 * GIB, provider="aws")
    assert [(each.volume, what) for each, what in found] == [("gp2", "burst rate"), ("gp3", "rate")]
    assert not published.agreeing(2000, "operations", size_bytes=100 * GIB, provider="aws")
