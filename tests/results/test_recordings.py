"""Recorded result sets are intact, and the engine of today still writes records of their shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from recordings import RECORDED, RECORDINGS, recorded

from iosonde.plan import Plan
from iosonde.results import ResultSet
from iosonde.results.schema import Record
from iosonde.study.model import Study

OF_THE_MACHINE = {"target", "target_after", "environment", "warnings", "device_totals", "own_io", "verdict"}
"""Parts of a record that depend on the devices and the other load of the machine that measured."""
MEASURED_AGAIN = ("both-loops", "arms", "store", "command")
"""Short, and without a server; every kind of workload that needs none."""


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_set_is_intact_complete_and_consistent(name: str, tmp_path: Path) -> None:
    result_set = recorded(name, tmp_path / "set")
    assert result_set.problems == []
    assert result_set.records()
    for record in result_set.records():
        if record.outcome == "complete":
            assert_consistent(result_set, record)


def test_every_recorded_file_can_be_written_again() -> None:
    assert {path.name for path in RECORDED.iterdir()} == {f"{name}.tar.xz" for name in RECORDINGS}


@pytest.mark.engine
@pytest.mark.parametrize("name", MEASURED_AGAIN)
def test_the_engine_of_today_writes_records_and_tables_of_the_same_schema(name: str, tmp_path: Path) -> None:
    before = recorded(name, tmp_path / "before")
    RECORDINGS[name](tmp_path / "again")
    again = ResultSet.open(tmp_path / "again")
    assert plan_of(again.plan, again.plan.target) == plan_of(before.plan, before.plan.target)
    for old, new in zip(before.records(), again.records(), strict=True):
        assert (new.outcome, new.run_id) == ("complete", old.run_id)
        assert shape_of(new) == shape_of(old)
        assert schemas(again, new) == schemas(before, old)
        assert_consistent(again, new)


def assert_consistent(result_set: ResultSet, record: Record) -> None:
    """Operations of all jobs are those of the intervals, and each is in a histogram; the same for bytes."""
    assert record.result
    of_run = (pl.col("run_id") == record.run_id) & (pl.col("phase") == "measure")
    intervals, histograms = result_set.intervals.filter(of_run), result_set.histograms.filter(of_run)
    place = ["interval", "stream", "operation"]
    counts = intervals.group_by(place).agg(pl.col("count").sum()).filter(pl.col("count") > 0).sort(place)
    for latency in ("completion", *histograms.filter(latency="response")["latency"].unique()):
        found = histograms.filter(latency=latency).group_by(place).agg(pl.col("count").sum()).sort(place)
        known = counts if latency == "completion" else counts.join(found, on=place, how="semi").sort(place)
        assert found.rows() == known.rows(), (record.run_id, latency)
    for stream in intervals["stream"].unique():
        jobs = [job for job in record.result["jobs"] if job["stream"] == stream]
        sums = intervals.filter(stream=stream).select(pl.sum("count"), pl.sum("bytes")).row(0)
        assert sums == (sum(job["operations"] for job in jobs), sum(job["bytes"] for job in jobs)), record.run_id


def with_defaults(study: dict[str, Any]) -> dict[str, Any]:
    """A study with what is optional now and did not exist when it was recorded."""
    return Study.model_validate(study).model_dump(mode="json")


def plan_of(plan: Plan, target: str) -> str:
    """Everything that the engine is asked for, without the place of its files."""
    arms = [arm.model_copy(update={"study": with_defaults(arm.study)}) for arm in plan.arms]
    whole = plan.model_copy(update={"study": with_defaults(plan.study), "arms": arms})
    text = whole.model_dump_json(exclude={"destroys", "against", "cost"})
    return text.replace(target, "TARGET").replace(plan.created_name or "-", "OWN")


def shape_of(record: Record) -> set[str]:
    """Names of all fields of a record and of their parts, and types of the values."""
    paths = _paths(record.model_dump(mode="json", exclude=OF_THE_MACHINE), "")
    # Not threads of the kernel that used a CPU, nor a peak of memory, which is known only where this process has less.
    return {path for path in paths if ".evidence.kernel." not in path and ".child.max_rss_bytes" not in path}


def _paths(value: Any, place: str) -> list[str]:
    match value:
        case dict():
            return [path for key, each in value.items() for path in _paths(each, f"{place}.{key}")]
        case list():
            return [path for each in value for path in _paths(each, f"{place}[]")]
        case None:
            return []
        case _:
            return [f"{place}: {'number' if isinstance(value, int | float) else 'text'}"]


def schemas(result_set: ResultSet, record: Record) -> dict[str, dict[str, pl.DataType]]:
    directory = result_set.directory / "records" / record.run_id
    return {path.name: dict(pl.read_parquet_schema(path)) for path in directory.glob("*.parquet")}
