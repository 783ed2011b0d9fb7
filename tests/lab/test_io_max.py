"""The study `limits` under `io.max`, and exported lines of `io.cost`, for real: Debian's kernel in the lab's machine.

The parent of the control group limits operations, the group itself bytes. An emulated machine may be too slow for its
drives, so that nothing is decided; the records then show it.
"""

from __future__ import annotations

from typing import Any

import pytest
from lab_guest import Report

from iosonde.features.rate_limits.known_limits import ControlGroupRule
from iosonde.features.rate_limits.procedures import LimitsConclusion
from iosonde.features.rate_limits.record import RateLimits
from iosonde.procedure.observations import conclusions


@pytest.fixture(scope="module")
def step(guest_report: Report) -> dict[str, Any]:
    return guest_report.step("io-max")


@pytest.fixture(scope="module")
def concluded(step: dict[str, Any], guest_report: Report) -> LimitsConclusion:
    [(_, conclusion)] = conclusions(guest_report.result_set("io-max"))
    assert isinstance(conclusion, LimitsConclusion)
    return conclusion


def test_the_limits_of_the_group_and_of_its_parent_are_identified(
    concluded: LimitsConclusion, step: dict[str, Any]
) -> None:
    found = concluded.found
    if found.verdict != "limited":
        assert found.verdict == "undecided" and not found.rules, found.reason
        is_slow = any("time bound" in each for each in found.undecided)
        assert is_slow or any(series.is_disturbed for _, series in concluded.stages), found.reason
        return
    expected = {"operations": step["iops"], "bytes": step["bandwidth"]}
    assert found.rules[0].counts == "operations"
    for rule in found.rules:
        assert rule.rate.value == pytest.approx(expected[rule.counts], rel=0.02)
        assert rule.unit_bytes is None
    assert found.limiter is None or found.limiter.style in ("batched", "undecided"), "time slices of the kernel"


def test_the_record_has_the_limits_and_the_report_compares_them(
    concluded: LimitsConclusion, step: dict[str, Any], guest_report: Report
) -> None:
    for record in guest_report.result_set("io-max").records():
        part = record.of(RateLimits)
        assert part is not None
        [limited] = part.context["limits"]
        assert limited["name"] == step["device"]
        assert {f"riops={step['iops']}", f"rbps={step['bandwidth']}"} < set(limited["settings"]), "both groups"
    compared = [each for each in guest_report.findings("io-max") if isinstance(each, ControlGroupRule)]
    assert {each.limit.setting for each in compared} == {
        f"io.max riops={step['iops']}",
        f"io.max rbps={step['bandwidth']}",
    }
    for each in compared:
        assert (each.rule in concluded.found.rules) or each.rule is None
        assert each.rule is None or abs(each.difference) < 0.02


def test_the_kernel_takes_exported_costs_which_are_then_in_the_context(step: dict[str, Any]) -> None:
    costs = step["costs"]
    assert costs["read"] == costs["exported"]
    assert [each.partition(" ")[0] for each in costs["read"]] == ["io.cost.model", "io.cost.qos"]
