"""The study `limits` on simulated volumes: what its report states, and that it resumes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.execution.run_loop import Observer
from iosonde.execution.session import execute, resume
from iosonde.features.rate_limits.procedures import LimitsConclusion, resolved
from iosonde.features.rate_limits.questions import RejectedRules
from iosonde.features.rate_limits.report import drains, tables
from iosonde.plan import Plan, Run
from iosonde.planning import expand, load
from iosonde.planning.procedure import conclusions
from iosonde.report.content import answer
from iosonde.report.material import gather
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.storage import open_target

WITHOUT_LIMIT = """
title = "Volume with credits for 10 s"
class = "cloud volume"
capacity = "64MiB"
sources = "Assumed."
media = { channels = 8, dies = 64, channel_bandwidth = "2GB/s", program = "16KiB", read_time = "200us", program_time = "200us", time_spread = 0.1 }
translation = { kind = "in_place" }
buffer = { size = 0 }
interface = { read_bandwidth = "2GB/s", write_bandwidth = "2GB/s", read_latency = "50us", write_latency = "50us", queue_depth = 1024, command = "1MiB" }
"""
LIMIT = """
[[limit]]
counts = "operations"
rate = 200
burst_rate = 1000
bucket = 8000
unit = "64KiB"
write_weight = 2.0
"""


@pytest.fixture
def volume(tmp_path: Path) -> str:
    (tmp_path / "volume.toml").write_text(WITHOUT_LIMIT + LIMIT)
    return f"sim:{tmp_path}/volume.toml"


def planned(target: str, **settings: str) -> Plan:
    given = {"span": "32MiB", **{f"procedure.{name}": value for name, value in settings.items()}}
    return expand(load("limits"), open_target(target), profile="quick", settings=given)


class StopAfter(Observer):
    def __init__(self, runs: int) -> None:
        self.left = runs

    def run_ended(self, run: Run, record: Record) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_the_plan_of_a_simulated_volume_counts_the_operations_that_its_limit_admits(volume: str) -> None:
    """A simulation takes the time of its I/Os: seconds for the 24 hours of a volume with 1,000 IOPS at most."""
    plan = planned(volume, rest="7h", total="24h")
    assert plan.cost.seconds == pytest.approx(5.5 + 24 * 3600 * 1000 * 1e-6, abs=1)
    unlimited = Path(volume.removeprefix("sim:"))
    unlimited.write_text(WITHOUT_LIMIT)
    assert planned(volume, rest="7h", total="24h").cost.seconds == pytest.approx(5.5 + 24 * 3600 / 10, abs=1)


def concluded(results: ResultSet) -> LimitsConclusion:
    [(_, found)] = conclusions(results)
    assert isinstance(found, LimitsConclusion)
    return found


@pytest.mark.engine
def test_a_volume_with_credits_is_identified(volume: str, tmp_path: Path) -> None:
    whole = execute(planned(volume, probe="2s", rest="5min", total="2h", operations="both"), tmp_path / "whole")
    found = concluded(whole).found
    [rule] = found.rules
    assert (rule.counts, rule.unit_bytes, rule.is_burst_limited) == ("operations", 64 << 10, True)
    assert rule.rate.value == pytest.approx(200, rel=0.02)
    assert rule.burst_rate and rule.burst_rate.value == pytest.approx(1000, rel=0.02)
    assert rule.bucket and rule.bucket.is_confirmed and rule.bucket.value == pytest.approx(8000, rel=0.05)
    assert rule.refill and rule.refill.is_confirmed and rule.refill.value == pytest.approx(200, rel=0.05)
    assert found.sharing == "shared" and found.write_weight
    assert found.write_weight.value == pytest.approx(2, rel=0.05)
    assert found.limiter and found.limiter.style == "queued"
    [material] = gather([whole])
    assert [row[0].text for row in tables(material)[0].rows][:2] == [
        "Read limit in operations: counted",
        "Read limit in operations: sustained rate",
    ]
    [figure] = drains(material, 1)
    assert {"measured", "identified rule"} == set(figure.rows["series"])
    first = [each.sentence for each in answer(material, material.sources[0]).findings][:2]
    assert first[0].startswith("Reads are limited to 200 IOPS sustained")
    kinds = {each.kind for each in answer(material, material.sources[0]).findings}
    assert not kinds & {"throughput", "offered rates", "one level", "saturation"}, "stages are no results of their own"
    assert "limiter latency" in [each.kind for each in answer(material, material.sources[0]).findings]
    assert first[1].startswith("Bursts reach 1,000 IOPS and last 10 s from a full bucket of 8")


@pytest.mark.engine
def test_a_short_study_states_that_a_burst_may_last_longer_and_resumes(volume: str, tmp_path: Path) -> None:
    plan = planned(volume, probe="1s", drain="8s", total="12s")
    results = execute(plan, tmp_path / "set")
    found = concluded(results).found
    assert sum(series.loaded_s for _, series in concluded(results).stages) <= 12
    assert found.rules == () or found.rules[0].may_be_burst
    assert any("time ran out before the stage" in each for each in found.undecided)
    with pytest.raises(KeyboardInterrupt):
        execute(plan, tmp_path / "stopped", observer=StopAfter(10))
    stopped = ResultSet.open(tmp_path / "stopped")
    assert concluded(stopped).found.stopped_at and not concluded(stopped).reached
    [material] = gather([stopped])
    sentences = [each.sentence for each in answer(material, material.sources[0]).findings]
    assert any(re.match("Not decided, because the study was stopped in the stage `.+`: ", each) for each in sentences)
    assert any("continue with `iosonde resume DIR`" in each for each in sentences)
    assert concluded(resume(tmp_path / "stopped")).found == found


@pytest.mark.parametrize(
    ("is_decided", "start"), [(True, "Rejected by the data: "), (False, "If a rule applies, the data reject: ")]
)
def test_rules_are_rejected_under_a_condition_while_it_is_not_known_that_any_applies(
    is_decided: bool, start: str
) -> None:
    rejected = ("a limit in bytes: 64 KiB blocks complete as many operations as small ones",)
    finding = RejectedRules(
        rejected=rejected, undecided=(), is_decided=is_decided, strength="strong", case_ids=("limits",), part="limits"
    )
    assert finding.sentence == f"{start}{rejected[0]}"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"rest": "abc"}, "`abc` is not a time"),
        ({"operations": "all"}, "`operations`: Input should be 'reads', 'writes' or 'both'"),
        ({"probe": "10min"}, "`probe` must be at least 1 s, at most `drain`"),
        ({"largest": "8KiB"}, "`largest` must be at least 4 times `block_size`"),
    ],
)
def test_an_invalid_setting_is_named(written: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        resolved(written, smallest=4096, queue_depth=64)
    with pytest.raises(StudyError, match="`queue_depth` from 4 to 4,096"):
        resolved({}, smallest=4096, queue_depth=2)
