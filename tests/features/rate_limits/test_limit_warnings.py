"""Warnings of runs on simulated volumes with limits, from the command line to the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iosonde.features.simulated_drives.model import load_model, models
from iosonde.results import ResultSet
from iosonde.results.schema import Record

STUDY = """
name = "reads"
title = "Reads"
question = "?"
repeats = 1

[measurement]
access = "random"
block_size = "4KiB"
read_fraction = 1.0
queue_depth = {depth}
span = "1GiB"
ramp = 0
duration = "30s"
interval = "1s"

[[parts]]
name = "reads"

[profiles.standard]
"""

pytestmark = pytest.mark.engine


@pytest.fixture
def measured(tmp_path: Path, iosonde: Callable[..., Any]) -> Callable[..., Record]:
    """The record of 30 s of reads on a simulated drive, with other limits if given."""

    def run(name: str, limit: str | None = None, *, depth: int = 32) -> Record:
        target = name
        if limit is not None:
            path = tmp_path / "mine.toml"
            text = models()[name].read_text(encoding="utf-8").replace("Amazon EBS", "a volume like")
            path.write_text(text.partition("[[limit]]")[0] + limit, encoding="utf-8")
            target = str(path)
        study = tmp_path / "reads.toml"
        study.write_text(STUDY.format(depth=depth), encoding="utf-8")
        done = iosonde("run", str(study), "--target", f"sim:{target}", "--output", str(tmp_path / "result"))
        assert done.returncode == 0, done.stderr
        (record,) = ResultSet.open(tmp_path / "result").records()
        return record

    return run


def codes(record: Record) -> list[str]:
    return [warning.code for warning in record.warnings]


DROPPING = '[[limit]]\ncounts = "operations"\nrate = 500\nburst_rate = 2500\nbucket = 20_000\n'


@pytest.mark.parametrize(
    ("limit", "depth", "code", "message"),
    [
        ('[[limit]]\ncounts = "bytes"\nrate = "8MiB/s"\n', 32, "rate_limit", "constant at 2,048 IOPS (8.39 MB/s) for"),
        (DROPPING, 32, "rate_limit_drop", "to a constant 500 IOPS (2.05 MB/s) after 10 s"),
        ("", 32, "", ""),
        (None, 1, "", ""),
    ],
)
def test_a_limit_that_a_load_reaches_is_named(
    measured: Callable[..., Record], limit: str | None, depth: int, code: str, message: str
) -> None:
    record = measured("gp2-100g", limit, depth=depth)
    assert codes(record) == [code][: bool(code)]
    assert message in "".join(warning.message for warning in record.warnings)


def test_a_burst_of_gp2_is_named_with_its_length_and_marked_transient(measured: Callable[..., Record]) -> None:
    record = measured("gp2-100g")
    assert codes(record) == ["burst_rate"]
    assert record.warnings[0].is_transient
    part = record.parts["rate_limits"]
    assert part["burst_s"] == pytest.approx(2000)
    assert part["published"][0] == "Amazon EBS gp2: 300 IOPS, bursts to 3,000 IOPS for 2,000 s"


def test_the_study_of_limits_concludes_instead_of_warning_and_its_drive_can_be_measured(
    tmp_path: Path, iosonde: Callable[..., Any]
) -> None:
    path, output, exported = tmp_path / "mine.toml", tmp_path / "result", tmp_path / "exported"
    text = models()["gp2-100g"].read_text(encoding="utf-8").partition("[[limit]]")[0]
    path.write_text(text + '[[limit]]\ncounts = "operations"\nrate = 800\n', encoding="utf-8")
    options = ("--profile", "quick", "--set", "procedure.operations=both", "--output", str(output))
    done = iosonde("run", "limits", "--target", f"sim:{path}", *options)
    assert done.returncode == 0, done.stderr
    assert [codes(record) for record in ResultSet.open(output).records() if codes(record)] == []
    done = iosonde("export", str(output), "--format", "limits", "--output", str(exported))
    assert done.returncode == 0, done.stderr
    (drive,) = exported.glob("*.drive.toml")
    (limit, *_) = load_model(str(drive), target="sim:exported").limit
    assert limit.rate == pytest.approx(800, rel=0.02)
