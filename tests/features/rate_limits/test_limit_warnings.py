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


def codes(record: Record) -> list[str]:
    return [warning.code for warning in record.warnings]


DROPPING = '[[limit]]\ncounts = "operations"\nrate = 500\nburst_rate = 2500\nbucket = 20_000\n'


@pytest.mark.parametrize(
    ("limit", "depth", "expected", "message"),
    [
        (DROPPING, 32, ["rate_limit_drop"], "to a constant 500 IOPS (2.05 MB/s) after 10 s"),
        ("", 32, [], ""),
        (None, 1, [], ""),
        (None, 32, ["burst_rate"], ""),
    ],
)
def test_a_limit_that_a_load_reaches_is_named(
    limit: str | None, depth: int, expected: list[str], message: str, tmp_path: Path, iosonde: Callable[..., Any]
) -> None:
    """30 s of reads on a simulated volume, with other limits if given."""
    path, study = models()["gp2-100g"], tmp_path / "reads.toml"
    if limit is not None:
        text = path.read_text(encoding="utf-8").replace("Amazon EBS", "a volume like").partition("[[limit]]")[0]
        path = tmp_path / "mine.toml"
        path.write_text(text + limit, encoding="utf-8")
    study.write_text(STUDY.format(depth=depth), encoding="utf-8")
    target = f"sim:{path}" if limit is not None else "sim:gp2-100g"
    done = iosonde("run", str(study), "--target", target, "--output", str(tmp_path / "result"))
    assert done.returncode == 0, done.stderr
    [record] = ResultSet.open(tmp_path / "result").records()
    assert codes(record) == expected
    assert message in "".join(warning.message for warning in record.warnings)
    if expected == ["burst_rate"]:
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
    procedure = {"operations": "both", "probe": "1s", "drain": "4s", "total": "2min"}
    settings = [each for name, value in procedure.items() for each in ("--set", f"procedure.{name}={value}")]
    options = ("--profile", "quick", *settings, "--output", str(output))
    done = iosonde("run", "limits", "--target", f"sim:{path}", *options)
    assert done.returncode == 0, done.stderr
    assert [codes(record) for record in ResultSet.open(output).records() if codes(record)] == []
    done = iosonde("export", str(output), "--format", "limits", "--output", str(exported))
    assert done.returncode == 0, done.stderr
    (drive,) = exported.glob("*.drive.toml")
    (limit, *_) = load_model(str(drive), target="sim:exported").limit
    assert limit.rate == pytest.approx(800, rel=0.02)
