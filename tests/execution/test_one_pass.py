"""Preconditioning in one pass: on simulated drives it reaches the state that random writes without end reach."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import CHECKOUT
from engines import real_engine

from iosonde.errors import StudyError
from iosonde.plan import Case
from iosonde.planning import expand, parse
from iosonde.procedure import preparation
from iosonde.storage import open_target

GIB = 1 << 30

STUDY = """
name = "one-pass"
title = "One pass"
question = "?"
repeats = 1

[measurement]
access = "random"
read_fraction = 0.0
span = "1GiB"
purge = "strongest"
precondition = "4KiB"
precondition_access = "aging"
ramp = 0

[[parts]]
name = "main"
rounds.max_rounds = 1

[profiles.quick]
"""


def case_on(target: str, **settings: str) -> Case:
    return expand(parse(STUDY), open_target(target), profile="quick", settings=settings).adaptive[0]


def test_it_leaves_the_amplification_of_the_steady_state_from_the_first_write_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Endless writes are four capacities here."""
    monkeypatch.setenv("IOSONDE_ENGINE", str(real_engine()))
    monkeypatch.syspath_prepend(str(CHECKOUT / "bench"))
    import preconditioning

    sys.modules.pop("preconditioning")
    _, endless, one_pass, *_ = preconditioning.ways(0.07)
    found = {
        way.name: preconditioning.measured("sim:pm963,capacity=512MiB", way, GIB // 2) for way in (endless, one_pass)
    }
    sought, reached = found[endless.name], found[one_pass.name]
    assert reached.first_amplification == pytest.approx(sought.amplification, rel=0.07)
    assert reached.amplification == pytest.approx(sought.amplification, rel=0.05)
    assert reached.iops == pytest.approx(sought.iops, rel=0.1)
    assert reached.written_bytes < sought.written_bytes / 5


def test_it_writes_the_span_and_the_spare_room_once() -> None:
    for target, spare in (("sim:pm963,capacity=2GiB", 0.07), ("sim:iodrive,capacity=2GiB", 0.25)):
        case = case_on(target)
        assert case.parameters["over_provisioning"] == spare
        run = preparation.step_run(case, "precondition", 1, restart=0)
        [stream] = run.spec["workload"]["streams"]
        assert stream["access"] == {"kind": "aging", "over_provisioning": spare}
        blocks = GIB // 4096
        assert stream["limit_bytes"] == 4096 * (blocks + round(blocks * spare))


def test_the_spare_area_of_a_real_drive_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(StudyError) as raised:
        case_on(str(tmp_path), span="1MiB")
    assert raised.value.what == "preconditioning in one pass needs the drive's `over_provisioning`"
    assert "--set over_provisioning=0.07" in raised.value.hint
    assert case_on(str(tmp_path), span="1MiB", over_provisioning="0.2").parameters["over_provisioning"] == 0.2


def test_it_is_a_way_to_precondition_and_nothing_else() -> None:
    with pytest.raises(StudyError) as raised:
        case_on("null:2GiB", precondition="none", over_provisioning="0.1")
    assert "`precondition_access` is for `precondition`" in raised.value.what
