"""Identified limits as files of other tools: values that follow from the rules, and none that do not."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from iosonde.features.rate_limits import exports
from iosonde.features.rate_limits.known_limits import Estimate, Identification, Parameter, Rule, parameter
from iosonde.features.simulated_drives.model import parse_model


def value(number: float) -> Parameter:
    return parameter(Estimate(method="drain", value=number))


BURST: Any = {"burst_rate": value(3000), "is_burst_limited": True, "bucket": value(5_400_000)}
GP2 = Identification(
    verdict="limited",
    reason="",
    sharing="shared",
    write_weight=value(1.001),
    rules=(
        Rule(rate=value(300), unit_bytes=256 << 10, counts="operations", operation="read", merges=True, **BURST),
        Rule(counts="bytes", operation="read", rate=value(134_217_728)),
    ),
)


def test_the_kernel_gets_sustained_rates_of_both_operations_and_a_simulated_drive_the_same_limits() -> None:
    files = dict(exports.of(GP2, device="259:1", size_bytes=100 << 30))
    # 300 operations of 256 KiB are 75 MiB/s, less than the limit in bytes.
    bandwidth = 300 * (256 << 10)
    assert files[".io.cost.model"] == (
        f"259:1 ctrl=user model=linear rbps={bandwidth} rseqiops=300 rrandiops=300 "
        f"wbps={bandwidth} wseqiops=300 wrandiops=300\n"
    )
    assert files[".io.cost.qos"].startswith("259:1 enable=1 ctrl=user ")
    model = parse_model(tomllib.loads(files[".drive.toml"]), name="exported").for_engine("exported")
    operations, moved = model["limits"]
    assert (operations["rate"], operations["burst_rate"], operations["bucket"]) == (300, 3000, 5_400_000)
    assert (operations["unit_bytes"], operations["merge"]) == (256 << 10, True)
    assert moved["rate"] == pytest.approx(134_217_728, rel=1e-5)


READS = Rule(counts="operations", operation="read", rate=value(1000))


def test_budgets_of_reads_and_writes_are_limits_of_one_operation_each_or_weights() -> None:
    rules = (READS, Rule(counts="operations", operation="write", rate=value(500)))
    found = Identification(verdict="limited", reason="", sharing="separate", rules=rules)
    model = parse_model(tomllib.loads(exports.drive(found, 1 << 30)), name="exported").for_engine("exported")
    assert [(limit["read_weight"], limit["write_weight"]) for limit in model["limits"]] == [(1, 0), (0, 1)]
    rules = (Rule(counts="bytes", operation="read", rate=value(4_096_000)),)
    found = Identification(verdict="limited", reason="", sharing="shared", write_weight=value(4.0), rules=rules)
    assert exports.sustained(found, "write") == exports.Sustained(iops=250, bytes_per_second=1_024_000)


def test_values_that_no_rule_states_are_named_instead_of_written() -> None:
    found = Identification(verdict="limited", reason="", rules=(READS,))
    files = dict(exports.of(found, device="259:1", size_bytes=1 << 30))
    assert set(files) == {".txt", ".drive.toml"}
    assert "bandwidth of reads, the IOPS of writes, the bandwidth of writes" in files[".txt"]
    found = Identification(verdict="not limited", reason="the rate varies by 4 %")
    assert dict(exports.of(found, device="259:1", size_bytes=1 << 30)) == {
        ".txt": "no limit was identified: not limited; the rate varies by 4 %\n"
    }
