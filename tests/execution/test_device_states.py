"""Records have the device state of their case, and the preparation is part of the result set."""

from __future__ import annotations

from pathlib import Path

from iosonde.execution import execute
from iosonde.planning import expand, parse
from iosonde.results import ResultSet
from iosonde.storage import open_target

STUDY = """
name = "states"
title = "States"
question = "?"
device_state = "preconditioned"
[measurement]
access = "random"
read_fraction = 0
purge = "strongest"
precondition = "1MiB"
span = "100%"
ramp = 0
duration = "100ms"
interval = "100ms"
[[parts]]
name = "main"
[parts.rounds]
max_rounds = 1
[profiles.standard]
repeats = 1
"""


def test_a_prepared_case_records_its_state(tmp_path: Path) -> None:
    execute(expand(parse(STUDY), open_target("sim:pm963,capacity=64MiB")), tmp_path / "set")
    read = ResultSet.open(tmp_path / "set")
    assert read.problems == []
    assert {record.run_id: record.device_state for record in read.records()} == {
        "c0001-a1-purge-r1": "not_applicable",
        "c0001-a1-precondition-r1": "not_applicable",
        "c0001-a1-round001-01-r1": "preconditioned",
    }
    assert read.cases["device_state"].unique().to_list() == ["preconditioned"]
    assert read.sql("SELECT device_state FROM runs WHERE part = 'main'").rows() == [("preconditioned",)]
