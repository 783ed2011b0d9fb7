"""Differences of a drive's counters: valid numbers, and none."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hand_made import results, study
from plans import a_record, hand_plan

from iosonde.findings.finding import Support
from iosonde.findings.values import NAME, MediaAmplification, NoAmplification, UnknownMedia, write_amplification
from iosonde.metrics import derivation
from iosonde.results.run_facts import RUNS, values

GIB = 1 << 30
UNIT = derivation.DATA_UNIT_BYTES


def a_drive(
    *, handed: int = GIB, units: int | None = None, written: int = 2 * GIB, step: int = 1, **changes: Any
) -> dict[str, Any]:
    """A drive in a record: what it was handed, and by how much its counters grew."""
    grown = -(-handed // UNIT) if units is None else units
    start = {"data_units_written": 10**6, "media": {"written_bytes": 10**12, "step_bytes": step}}
    end = {"data_units_written": 10**6 + grown, "media": {"written_bytes": 10**12 + written, "step_bytes": step}}
    return {"name": "nvme0n1", "device": "259:0", "write_bytes": handed, "start": start, "end": end, **changes}


COLUMNS = [each for each in RUNS.columns if each.name.startswith(("run_drive_", "run_media_"))]


def facts(*drives: dict[str, Any]) -> dict[str, Any]:
    plan = hand_plan()
    return values(a_record(plan, plan.runs[0]).model_copy(update={"drives": list(drives)}), COLUMNS)


def judged(*drives: dict[str, Any]) -> dict[str, Any]:
    none = {"simulated_media_write_bytes": None, "simulated_write_bytes": None}
    schema = {each.name: pl.Int64 if each.is_number else each.dtype for each in COLUMNS}
    schema |= dict.fromkeys(none, pl.Int64)
    return derivation.judged(pl.DataFrame([{**facts(*drives), **none}], schema=schema)).row(0, named=True)


def test_media_amplification_divides_the_sums_over_all_drives() -> None:
    row = judged(a_drive(written=2 * GIB), a_drive(written=4 * GIB))
    assert (row["media_write_bytes"], row["media_taken_bytes"], row["media_not_reported"]) == (6 * GIB, 2 * GIB, None)


@pytest.mark.parametrize(
    ("drive", "reason"),
    [
        (a_drive(handed=63 * UNIT), derivation.TOO_LITTLE),
        (a_drive(handed=GIB, step=10**9), derivation.TOO_LITTLE),
        (a_drive(units=0), derivation.DISAGREE),
        (a_drive(units=2 * GIB // UNIT), derivation.DISAGREE),
        (a_drive(written=0), derivation.STOOD_STILL),
        (a_drive(written=-1), "a counter of `nvme0n1` went backwards during the run"),
        (a_drive(units=-1), "a counter of `nvme0n1` went backwards during the run"),
        (a_drive(end={"not_reported": "`nvme0n1` is gone"}), "`nvme0n1` is gone"),
        (a_drive(start={"not_reported": "`sda` is not an NVMe drive"}), "`sda` is not an NVMe drive"),
    ],
)
def test_what_is_no_number_has_a_reason(drive: dict[str, Any], reason: str) -> None:
    row = judged(drive)
    assert (row["media_write_bytes"], row["media_taken_bytes"], row["media_not_reported"]) == (None, None, reason)


def test_one_drive_without_counters_prevents_the_value_and_without_a_drive_there_is_no_reason_either() -> None:
    reason = judged(a_drive(), a_drive(start={"not_reported": "no"}))["media_not_reported"]
    assert reason == UnknownMedia(reasons=(reason,), strength="strong").evidence == "no"
    assert judged(a_drive(handed=64 * UNIT, written=1))["media_write_bytes"] == 1, "the least that is a number"
    assert set(facts().values()) == {None}
    assert judged()["media_not_reported"] is None


@pytest.mark.parametrize(("most", "kind"), [(1.001, NoAmplification), (1.4, MediaAmplification)])
def test_a_drive_that_writes_each_byte_once_has_no_result(most: float, kind: type[MediaAmplification]) -> None:
    cases, runs = results(["jobs"], {NAME: {(1,): [1.0] * 3, (2,): [most] * 3}})
    [found] = write_amplification(study({"jobs": [1, 2]}, []), cases, runs, None, Support())
    assert type(found) is kind
    assert found.topic == ("quality" if kind is NoAmplification else "performance")
