"""Comparison of identified rules with limits of control groups and with published ones."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.features.rate_limits.known_limits import ControlGroupRule, PublishedRule, compared, of_control_groups
from iosonde.features.rate_limits.rules import Estimate, Rule, parameter
from iosonde.findings.finding import Finding
from iosonde.plan import Case, Cost

CASE = Case(case_id="main", part="main", control=False, levels={}, parameters={}, cost=Cost(seconds=1, write_bytes=0))
GIB = 1 << 30


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
