"""The device state that a plan declares is one that its profile can bring about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iosonde.plan import Plan
from iosonde.planning import expand, load, parse
from iosonde.storage import open_target

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


def planned(measurement: str = "", part: str = "[parts.rounds]\nmax_rounds = 25", target: str = DRIVE) -> Plan:
    return expand(parse(STUDY.format(measurement=measurement, part=part)), open_target(target))


def state(*arguments: Any, **named: Any) -> tuple[str, str]:
    [case] = planned(*arguments, **named).cases
    return case.device_state, case.device_state_reason


def test_a_purged_drive_that_is_written_whole_becomes_steady() -> None:
    assert state('precondition = "128KiB"') == ("steady", "")
    assert state('limit_spans = 4\nround_length = "60s"', part="[parts.rounds]\nmax_rounds = 1") == ("steady", "")


def test_a_small_range_of_a_purged_drive_stays_fresh() -> None:
    small = planned('precondition = "128KiB"', part='measurement = { span = "1GiB" }\n[parts.rounds]\nmax_rounds = 25')
    assert small.cases[0].device_state == "fresh"
    assert "active range of 1 GiB is 25 % of the purged 4 GiB" in small.cases[0].device_state_reason
    [note] = [note for note in small.notes if "device state" in note]
    assert note.startswith("the declared device state cannot be reached in 1 case, recorded as `fresh`: ")


def test_too_few_bytes_or_rounds_do_not_reach_steady_state() -> None:
    assert state('limit_bytes = "4GiB"')[0] == "fresh"
    assert state('precondition = "128KiB"', part="[parts.rounds]\nmax_rounds = 1")[0] == "preconditioned"


def test_files_and_unprepared_devices_and_reads_have_no_known_state(tmp_path: Path) -> None:
    small = 'measurement = { span = "16MiB" }\n[parts.rounds]'
    assert state('precondition = "128KiB"', part=small, target=str(tmp_path))[0] == "unknown"
    assert state(part="measurement = { read_fraction = 1 }\n[parts.rounds]")[0] == "not_applicable"
    assert state(part="[parts.rounds]", target="null:4GiB")[0] == "not_applicable"


def test_the_quick_profiles_of_snia_state_that_they_measure_a_fresh_drive() -> None:
    for name in ("snia-iops", "snia-throughput", "snia-latency", "snia-write-saturation", "jo2024-mixed"):
        plan = expand(load(name), open_target(DRIVE), profile="quick")
        assert {case.device_state for case in plan.cases} == {"fresh"}, name
        whole = expand(load(name), open_target(DRIVE), profile="standard")
        assert {case.device_state for case in whole.cases} <= {"steady", "preconditioned"}, name
