"""Stragglers among hosts: which are named, and what distinguishes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from plans import a_record, hand_plan

from iosonde.features.many_hosts.questions import Straggler, stragglers
from iosonde.features.many_hosts.record import Hosts, HostShare

pytestmark = pytest.mark.unit

SECOND = 10**9
PLAN = hand_plan(levels=(1,), repeats=3)


def share(host: str, count: int, **facts: Any) -> HostShare:
    common = {
        "machine": host, "run_id": "", "attempt": 1, "manifest_sha256": "", "verdict": "device-limited", "because": "",
        "bytes": 0, "errors": 0, "completion_latency_ns_p99": 1e6, "cpu_ns": 0, "late_ns": 0, "clock_offset_ns": 0,
        "clock_bound_ns": 0,
    }  # fmt: skip
    return HostShare(host=host, count=count, **(common | facts))


def found(*repeats: Sequence[HostShare]) -> list[Straggler]:
    records = []
    for run, shares in zip(PLAN.runs, repeats, strict=False):
        part = Hosts(shares=list(shares), window_ns=SECOND, skew_ns=0, skew_bound_ns=0)
        records.append(a_record(PLAN, run, parts={Hosts.name: part.model_dump()}))
    return list(stragglers(PLAN.cases, records))


def hosts(slow: int, **facts: Any) -> list[HostShare]:
    return [share("a", 1000), share("b", 1100), share("c", slow, **facts)]


def test_a_host_that_is_slower_in_every_repeat_is_named() -> None:
    [one] = found(hosts(500), hosts(600), hosts(550))
    assert (one.host, one.cause, one.others, one.repeats) == ("c", "", 2, 3)
    assert one.share == pytest.approx(550 / 1050)
    assert "the cause is not separable" in one.sentence
    late = hosts(1000, completion_latency_ns_p99=3e6)
    [one] = found(late, late, late)
    assert one.p99_ratio == 3


def test_a_host_is_not_named_for_one_slow_run_or_for_two_repeats() -> None:
    assert found(hosts(500), hosts(1000), hosts(500)) == []
    assert found(hosts(500), hosts(500)) == []


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"verdict": "harness-limited"}, "its CPU"),
        ({"retransmitted_share": 0.02}, "its network"),
        ({"device_busy_share": 0.99}, "its device"),
        ({"retransmitted_share": 0.0005, "device_busy_share": 0.5}, ""),
        ({"retransmitted_share": 0.02, "machine": "a"}, ""),
    ],
)
def test_the_cause_is_what_differs_from_all_other_hosts(facts: dict[str, Any], cause: str) -> None:
    slow = hosts(500, **facts)
    [one] = found(slow, slow, slow)
    assert one.cause == cause
