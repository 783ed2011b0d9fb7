"""An identification whose study is stopped after any of its stages: statements, and open questions."""

from __future__ import annotations

import pytest
from volume_models import Limit, Volume, random_device, random_volume

from iosonde.features.rate_limits.identify import Settings, identify
from iosonde.features.rate_limits.rules import Identification
from iosonde.features.rate_limits.stages import stopped_in

pytestmark = pytest.mark.unit

SETTINGS = Settings(drain_s=900, rest_s=7200, writes=True)
COMPLETE = 10_000
"""More stages than any identification has."""


def stopped_after(volume: Volume, stages: int, settings: Settings = SETTINGS) -> Identification:
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
    return Volume([Limit("operations", 300, 3000, 54_000, unit_bytes=256 * 1024)], noise=0.001)


def test_a_study_that_is_stopped_in_its_drain_states_the_rates_so_far() -> None:
    found = stopped_after(gp2(), 3)
    assert found.stopped_at.startswith("drain") and found.verdict == "undecided" and not found.rules
    assert found.reason.startswith("4 KiB reads: constant at 3,000 IOPS for ")
    assert found.reason.endswith(f"the study was stopped in the stage `{found.stopped_at}`")
    assert found.undecided[:2] == ("which rate is sustained", "what a limit counts")
    assert len(found.undecided) == 9, "all but first accesses, which are measured on devices only"


def test_a_study_that_is_stopped_later_keeps_the_rule_and_names_what_is_open() -> None:
    whole = stopped_after(gp2(), COMPLETE)
    assert not whole.stopped_at
    parts = [stopped_after(gp2(), stages) for stages in range(0, 60, 2)]
    known = [each for each in parts if each.stopped_at and each.rules]
    assert known, "a study that is stopped after its rule is known"
    assert {each.rules[0].rate for each in known} == {whole.rules[0].rate}
    assert {each.rules[0].bucket for each in known} == {whole.rules[0].bucket}
    assert not {"which rate is sustained", "credits and their refill"} & set(known[0].undecided)
    assert "whether reads and writes share a budget" in known[0].undecided
    assert known[-1].undecided[-1] == "whether the limit changed during the study"
    opened = [len(each.undecided) for each in parts if each.stopped_at]
    assert opened == sorted(opened, reverse=True), "each stage can only answer questions"


@pytest.mark.parametrize("seed", range(2))
def test_no_stop_leads_to_another_conclusion_than_the_complete_study(seed: int) -> None:
    whole = stopped_after(random_volume(seed), COMPLETE)
    for stages in range(seed, 60, 5):
        found = stopped_after(random_volume(seed), stages)
        assert found.verdict in ("undecided", whole.verdict)
        assert {each.rate for each in found.rules} <= {each.rate for each in whole.rules}


@pytest.mark.parametrize("seed", range(3))
def test_a_device_is_not_called_limited_or_unlimited_by_a_study_that_was_stopped(seed: int) -> None:
    for stages in range(seed, 40, 4):
        found = stopped_after(random_device(seed), stages)
        assert not found.stopped_at or found.verdict == "undecided"


def test_a_study_that_touched_no_block_three_times_says_nothing_about_first_accesses() -> None:
    settings = Settings(drain_s=60, touch_span=1 << 30)
    early = stopped_after(gp2(), 0, settings)
    assert early.stopped_at.startswith("touch") and early.first_touch is None
    assert early.undecided[0] == "whether first accesses take longer"
