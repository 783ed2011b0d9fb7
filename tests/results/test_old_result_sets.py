"""Result sets and specs that earlier versions wrote are read: what is required today was written then, too.

`old/` has result sets of the first public version (format 1) and of the last one with protocol 1 (format 3), both with a
study of block I/O on the null target, and a spec of every shape that the studies shipped with the latter expand to.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from iosonde.protocol import checking
from iosonde.report import write
from iosonde.results import ResultSet
from iosonde.results.schema import FORMAT

OLD = Path(__file__).with_name("old")
SPECS = [json.loads(line) for line in (OLD / "specs-protocol-1.jsonl").read_text().splitlines()]


def unpacked(name: str, directory: Path) -> Path:
    with tarfile.open(OLD / f"{name}.tar.xz") as archive:
        archive.extractall(directory / "set", filter="data")
    return directory / "set"


@pytest.mark.parametrize("name", ["format-1", "format-3"])
def test_a_result_set_of_an_earlier_version_is_read_completely(name: str, tmp_path: Path) -> None:
    directory = unpacked(name, tmp_path)
    result_set = ResultSet.open(directory)
    assert result_set.problems == []
    assert [record.outcome for record in result_set.records()] == ["complete"] * 4
    assert {spec["protocol"] for spec in result_set.plan.specs()} == {1}
    assert {phase["phase"] for record in result_set.records() for phase in record.phases} <= {
        "layout",
        "ramp",
        "measure",
    }
    assert result_set.intervals["count"].sum() > 0
    with result_set.lock():
        pass
    assert json.loads((directory / "format.json").read_text())["format"] == FORMAT
    assert len(ResultSet.open(directory).records()) == 4


@pytest.mark.engine
@pytest.mark.parametrize("name", ["format-1", "format-3"])
def test_a_report_of_an_earlier_result_set_is_written(name: str, tmp_path: Path) -> None:
    directory = unpacked(name, tmp_path)
    text = write([ResultSet.open(directory)], tmp_path / "report.md", format="md")[0].read_text()
    assert "4 of 4 complete" in text
    shutil.rmtree(directory)


def test_there_are_old_specs_of_both_workloads_of_the_studies_of_then() -> None:
    assert {spec["workload"]["kind"] for spec in SPECS} == {"block", "kv"}
    assert len(SPECS) > 30


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec['workload']['kind']}-{spec['run_id']}")
def test_a_spec_of_protocol_1_has_every_field_that_is_required_today(spec: dict[str, object]) -> None:
    """If this fails, a field was added: make it optional in the protocol (`#[serde(default)]`)."""
    assert spec["protocol"] == 1
    assert checking.mismatch(spec) == ""
