"""Prepared devices: fill levels, errors about impossible ones, and device states that a profile can bring about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.plan import Capacity, Plan, Purge
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target
from iosonde.study.workload.block import BLOCK
from iosonde.study.workload.block.parameters import BlockParameters

GIB = 1 << 30


class FileSystem:
    """A file system of 100 GiB: so much is used by others, so much kept back."""

    def __init__(self, *, used: int = 0, reserved: int = 0, purges: list[Purge] | None = None) -> None:
        self._used, self._reserved = used * GIB, reserved * GIB
        self._purges: list[Purge] = ["trim", "overwrite"] if purges is None else purges

    def backend(self) -> None:
        """The workload chooses."""

    def free_bytes(self) -> int:
        return 100 * GIB - self._used - self._reserved

    def capacity(self) -> Capacity:
        return Capacity(bytes=100 * GIB, used=self._used, reserved=self._reserved)

    def purges(self) -> list[Purge]:
        return self._purges


def fitted(target: FileSystem, **parameters: Any) -> BlockParameters:
    built = BLOCK.build({"purge": "strongest", **parameters})
    return BLOCK.fit({"main": built}, target, room_bytes=target.free_bytes())["main"]


def test_a_level_is_that_of_the_whole_file_system_with_what_others_store() -> None:
    assert fitted(FileSystem(), fill=30).span == 30 * GIB
    assert fitted(FileSystem(used=20), fill=30).span == 10 * GIB
    assert fitted(FileSystem(used=20, reserved=5), fill=95).span == 75 * GIB
    assert fitted(FileSystem(used=99), fill=50, capacity="1GiB").span == GIB // 2


def test_the_means_of_the_purge_is_named_and_lays_out_what_is_prepared() -> None:
    assert fitted(FileSystem(), fill=30).layout == "never"
    assert fitted(FileSystem(), fill=30).purge == "trim"
    assert fitted(FileSystem(purges=["overwrite"])).purge == "overwrite"
    assert fitted(FileSystem(), purge="overwrite").purge == "overwrite"
    assert fitted(FileSystem(purges=[])).purge == "unneeded"


@pytest.mark.parametrize(
    ("target", "parameters", "message", "hint"),
    [
        (FileSystem(used=10, reserved=5), {"fill": 98}, "that takes 88 GiB, and 85 GiB can be written", "lower levels"),
        (FileSystem(used=40), {"fill": 30}, "30 % of 100 GiB cannot be filled: 40 GiB are in use already", "make room"),
        (FileSystem(purges=["overwrite"]), {"purge": "trim"}, "no purge by `trim`", "one of `strongest`, `overwrite`"),
    ],
)
def test_what_cannot_be_prepared_is_refused(
    target: FileSystem, parameters: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(StudyError) as raised:
        fitted(target, **parameters)
    assert message in raised.value.what
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"fill": 30, "purge": "none"}, "`fill` needs a `purge`"),
        ({"fill": 30, "offset": "1MiB"}, "leave out `offset`"),
        ({"capacity": "1GiB"}, "`capacity` applies to `fill` only"),
        ({"round_length": "1500ms"}, "`round_length` must be a multiple of `interval`"),
    ],
)
def test_what_does_not_fit_together_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as raised:
        BLOCK.build({"purge": "strongest", **parameters})
    assert message in f"{raised.value.what} {raised.value.hint}"


DRIVE = "sim:pm963,capacity=4GiB"

STUDY = """
name = "states"
title = "States"
question = "?"
device_state = "steady"
[measurement]
access = "random"
read_fraction = 0
purge = "strongest"
span = "100%"
{measurement}
[[parts]]
name = "main"
{part}
[profiles.standard]
"""


ROUNDS = "[parts.rounds]\nmax_rounds = 25"


def planned(measurement: str = "", part: str = ROUNDS, target: str = DRIVE) -> Plan:
    return expand(parse(STUDY.format(measurement=measurement, part=part)), open_target(target))


PRECONDITIONED, READS = 'precondition = "128KiB"', "measurement = { read_fraction = 1 }\n[parts.rounds]"
ONE_ROUND = "[parts.rounds]\nmax_rounds = 1"


@pytest.mark.parametrize(
    ("measurement", "part", "target", "state"),
    [
        # A purged drive that is written whole becomes steady, and too few bytes or rounds do not make it so.
        (PRECONDITIONED, ROUNDS, DRIVE, "steady"),
        ('limit_spans = 4\nround_length = "60s"', ONE_ROUND, DRIVE, "steady"),
        ('limit_bytes = "4GiB"', ROUNDS, DRIVE, "fresh"),
        (PRECONDITIONED, ONE_ROUND, DRIVE, "preconditioned"),
        (PRECONDITIONED, 'measurement = { span = "16MiB" }\n[parts.rounds]', "a directory", "unknown"),
        ("", READS, DRIVE, "not_applicable"),
        ("", "[parts.rounds]", "null:4GiB", "not_applicable"),
    ],
)
def test_a_plan_declares_the_state_that_its_loads_bring_about(
    measurement: str, part: str, target: str, state: str, tmp_path: Path
) -> None:
    [case] = planned(measurement, part, str(tmp_path) if target == "a directory" else target).cases
    assert case.device_state == state
    assert bool(case.device_state_reason) == (state not in ("steady", "not_applicable"))


def test_a_small_range_of_a_purged_drive_stays_fresh() -> None:
    small = planned('precondition = "128KiB"', part='measurement = { span = "1GiB" }\n[parts.rounds]\nmax_rounds = 25')
    assert small.cases[0].device_state == "fresh"
    assert "active range of 1 GiB is 25 % of the purged 4 GiB" in small.cases[0].device_state_reason
    [note] = [note for note in small.notes if "device state" in note]
    assert note.startswith("the declared device state cannot be reached in 1 case, recorded as `fresh`: ")


def test_the_quick_profiles_of_snia_state_that_they_measure_a_fresh_drive() -> None:
    for name in ("snia-iops", "snia-throughput", "snia-latency", "snia-write-saturation", "jo2024-mixed"):
        plan = expand(load(name), open_target(DRIVE), profile="quick")
        assert {case.device_state for case in plan.cases} == {"fresh"}, name
        whole = expand(load(name), open_target(DRIVE), profile="standard")
        assert {case.device_state for case in whole.cases} <= {"steady", "preconditioned"}, name


def test_preparation_is_for_parts_with_rounds() -> None:
    with pytest.raises(StudyError, match="require a part with `rounds`") as raised:
        planned(part="")
    assert "case `main`" in raised.value.where
