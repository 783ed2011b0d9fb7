"""Simulated volumes with rate limits: what a model states, and what is measured on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iosonde.errors import TargetError
from iosonde.features.simulated_drives.model import load_model, models
from iosonde.results import ResultSet


def limited(tmp_path: Path, limit: str) -> Path:
    """A model of a user: the shipped one with another limit."""
    text = models()["gp2-100g"].read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.partition("[[limit]]")[0] + limit, encoding="utf-8")
    return path


def test_rates_are_numbers_or_bytes_per_second(tmp_path: Path) -> None:
    text = """
[[limit]]
counts = "bytes"
rate = "40MiB/s"
burst_rate = "250MiB/s"
bucket = "1TiB"
[[limit.change]]
after = "10s"
rate = "20MiB/s"
[first_touch]
time = "2ms"
region = "512KiB"
"""
    model = load_model(str(limited(tmp_path, text)), target="sim:mine").for_engine("mine")
    (limit,) = model["limits"]
    assert (limit["rate"], limit["burst_rate"], limit["bucket"]) == (40 << 20, 250 << 20, 1 << 40)
    assert limit["changes"] == [{"after_ns": 10 * 10**9, "rate": 20 << 20}]
    assert model["first_touch"] == {"time_ns": 2_000_000, "region_bytes": 512 << 10}


def test_a_wrong_limit_is_named_with_its_place(tmp_path: Path) -> None:
    path = limited(tmp_path, '[[limit]]\ncounts = "operations"\nrate = 0\n')
    with pytest.raises(TargetError, match=r"`limit\.0\.rate` cannot be"):
        load_model(str(path), target="sim:mine")


@pytest.mark.engine
def test_a_burst_is_spent_once_across_the_runs_of_a_session(tmp_path: Path, iosonde: Callable[..., Any]) -> None:
    """Bursts of 1,000 for 10 s, then 100: the second run finds the bucket empty, though the drive was purged."""
    path = limited(tmp_path, '[[limit]]\ncounts = "operations"\nrate = 100\nburst_rate = 1000\nbucket = 9000\n')
    study = tmp_path / "burst.toml"
    study.write_text(STUDY, encoding="utf-8")
    output = tmp_path / "result"
    done = iosonde("run", str(study), "--target", f"sim:{path}", "--output", str(output))
    assert done.returncode == 0, done.stderr
    records = [each for each in ResultSet.open(output).records() if each.part == "reads"]
    done_ios = {each.repeat: sum(job["operations"] for job in (each.result or {})["jobs"]) for each in records}
    assert done_ios == {1: pytest.approx(10 * 1000 + 10 * 100, rel=0.01), 2: pytest.approx(20 * 100, rel=0.01)}


STUDY = """
name = "burst"
title = "Burst"
question = "?"
repeats = 2
shuffle = false
device_state = "unknown"

[measurement]
access = "random"
block_size = "4KiB"
read_fraction = 1.0
queue_depth = 16
span = "1GiB"
purge = "strongest"
ramp = 0
duration = "20s"
interval = "1s"

[[parts]]
name = "reads"
rounds = { max_rounds = 1 }

[profiles.standard]
"""
