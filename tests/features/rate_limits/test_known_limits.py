"""Published limits of volume types, and identified rules beside them and beside limits of control groups."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.features.rate_limits import known_limits
from iosonde.features.rate_limits.known_limits import (
    ControlGroupRule,
    Estimate,
    PublishedLimit,
    PublishedRule,
    Rule,
    compared,
    of_control_groups,
    parameter,
)
from iosonde.findings.finding import Finding
from iosonde.plan import Case, Cost

CASE = Case(case_id="main", part="main", control=False, levels={}, parameters={}, cost=Cost(seconds=1, write_bytes=0))
GIB, MIB = 1 << 30, 1 << 20


def rule(rate: float, **changes: Any) -> Rule:
    amounts = {name: parameter(Estimate(method="rate", value=changes.pop(name))) for name in ("burst_rate", "bucket")
               if name in changes}  # fmt: skip
    given = {"counts": "operations", "operation": "read", **amounts, **changes}
    return Rule(rate=parameter(Estimate(method="rate", value=rate)), **given)


def target(*limits: str, size_bytes: int = 100 * GIB) -> dict[str, Any]:
    return {"devices": [{"name": "nvme0n1", "limits": list(limits), "size_bytes": size_bytes}]}


def findings(rules: list[Rule], described: dict[str, Any], **surroundings: str) -> list[Finding]:
    return list(compared(rules, described, surroundings, CASE))


def test_limits_of_both_versions_are_read_and_the_lowest_of_several_groups_counts() -> None:
    described = target("riops=4000", "riops=400", "wbps=1048576", "read_bps_device 2000")
    assert [(each.setting, each.operation, each.counts, each.rate) for each in of_control_groups(described)] == [
        ("io.max riops=400", "read", "operations", 400),
        ("io.max wbps=1048576", "write", "bytes", 1048576),
        ("blkio.throttle.read_bps_device 2000", "read", "bytes", 2000),
    ]


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([rule(401)], "`io.max` allows 400 IOPS of reads on `nvme0n1`, and the identified limit agrees: 401 IOPS"),
        ([rule(200)], "`io.max` allows 400 IOPS of reads on `nvme0n1`, but the identified limit is lower: 200 IOPS"),
        ([rule(900)], "`io.max` allows 400 IOPS of reads on `nvme0n1`, but the identified limit is higher: 900 IOPS"),
        (
            [rule(400, operation="write"), rule(400, counts="bytes")],
            "`io.max` allows 400 IOPS of reads on `nvme0n1`; no limit of reads in operations was identified",
        ),
    ],
)
def test_a_limit_of_a_control_group_is_compared_with_the_rule_that_counts_the_same(
    rules: list[Rule], sentence: str
) -> None:
    [finding] = findings(rules, target("riops=400"))
    assert isinstance(finding, ControlGroupRule)
    assert finding._sentence() == sentence


GP2 = rule(300, burst_rate=3000, bucket=5.4e6, unit_bytes=256 << 10)


@pytest.mark.parametrize(
    ("found", "surroundings", "volumes"),
    [
        (GP2, {"cloud": "aws"}, {"gp2"}),
        (GP2, {}, {"gp2"}),
        (GP2, {"cloud": "google"}, set()),
        (rule(300, burst_rate=3000, bucket=2e6), {}, set()),
        (rule(300), {}, set()),
        (rule(300), {"cloud": "aws"}, {"gp2"}),
        (rule(3000, may_be_burst=True), {"cloud": "aws"}, {"gp2", "gp3"}),
    ],
)
def test_an_identified_rule_is_compared_with_published_ones_of_its_size(
    found: Rule, surroundings: dict[str, str], volumes: set[str]
) -> None:
    agreeing = [each for each in findings([found], target(), **surroundings) if isinstance(each, PublishedRule)]
    assert {each.limit.volume for each in agreeing} == volumes
    for each in agreeing:
        assert each.limit.source in each._evidence() and "100 GiB" in each._sentence()


def test_a_simulated_volume_is_not_of_the_provider_of_this_machine() -> None:
    on_cloud = {"cloud": "aws"}
    assert findings([rule(300)], target(), **on_cloud)
    assert not findings([rule(300)], target() | {"simulated": True}, **on_cloud)


def limit(volume: str, counts: str, gib: float, operations: str = "all") -> PublishedLimit:
    """The limit of a volume type at a size."""
    wanted, every = (volume, counts, operations), known_limits.limits(size_bytes=round(gib * GIB))
    [found] = [each for each in every if (each.volume, each.counts, each.operations) == wanted]
    return found


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
    assert all(each.source and each.date[:2] == "20" for each in known_limits.limits(size_bytes=1000 * GIB))


def test_a_measured_rate_agrees_with_the_limits_of_its_provider_only() -> None:
    found = known_limits.agreeing(3010, "operations", size_bytes=100 * GIB, provider="aws")
    assert [(each.volume, what) for each, what in found] == [("gp2", "burst rate"), ("gp3", "rate")]
    assert not known_limits.agreeing(2000, "operations", size_bytes=100 * GIB, provider="aws")
