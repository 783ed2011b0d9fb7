"""Simulated drives: every shipped model delivers what its maker specifies, within stated bounds, and rates are limited."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engines import real_engine

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from simulated import Figures, Load, measure

from iosonde.errors import TargetError
from iosonde.features.simulated_drives.model import load_model, models
from iosonde.features.simulated_drives.storage import SimulatedDriveTarget
from iosonde.results import ResultSet
from iosonde.storage import open_target


class Specification(NamedTuple):
    """Of the maker's data sheet: sequential MB/s of 128 KiB, IOPS and microseconds of 4 KiB at random.

    None where it gives no value, or where two of its values contradict each other (`sources` in the model names them).
    Random writes are those of a drive that is full and steady.
    """

    read_mb_s: float
    write_mb_s: float
    read_iops: float | None
    write_iops: float | None
    read_us: float | None
    write_us: float | None
    bound: float = 0.05
    """Largest relative error of any figure."""
    write_iops_bound: float = 0.05
    """Where collection decides, a model of a thousandth of the size is further off."""
    write_span: float = 1.0
    """The part of the drive that random writes go to."""


SPECIFICATIONS = {
    "iodrive": Specification(750, 700, 110_000, None, None, None),
    "p4800x": Specification(2400, 2000, 550_000, 500_000, 10, 10),
    "p900": Specification(2500, 2000, 550_000, 500_000, 10, 10),
    "pm1725a": Specification(3300, 2950, 800_000, 160_000, 90, 20, write_iops_bound=0.15),
    "pm963": Specification(2000, 1200, 430_000, 40_000, 79, 22, write_iops_bound=0.15),
    "sp900": Specification(555, 535, None, None, None, None, bound=0.07),
    "sz985": Specification(3200, 3000, 750_000, 170_000, 16, 16, write_iops_bound=0.15),
    "x25m": Specification(250, 100, 35_000, 8_600, 65, None, bound=0.06, write_span=0.05),
}
LIMITED = {"gp2-100g"}
"""Specified by limits (below)."""
CAPACITY = 512 << 20
"""Written in a moment."""


@pytest.mark.parametrize("name", models())
def test_a_model_loads_names_the_source_of_its_values_and_is_held_against_its_specification(name: str) -> None:
    assert name in SPECIFICATIONS or name in LIMITED
    model = load_model(name, target=f"sim:{name}")
    assert len(model.sources) > 200
    target = open_target(f"sim:{name}")
    assert isinstance(target, SimulatedDriveTarget)
    assert target.free_bytes() == model.capacity // 4096 * 4096


@pytest.mark.parametrize("name", SPECIFICATIONS)
@pytest.mark.engine
def test_its_figures_are_those_of_its_specification(name: str) -> None:
    wanted, engine, target = SPECIFICATIONS[name], real_engine(), f"sim:{name},capacity={CAPACITY}"

    def figures(block_bytes: int, queue_depth: int, read_fraction: float, access: str = "random") -> Figures:
        load = Load(block_bytes=block_bytes, queue_depth=queue_depth, read_fraction=read_fraction, access=access)
        return measure(engine, target, load, seconds=0.1, ramp_seconds=0.1)

    found = {
        "read_mb_s": figures(128 << 10, 32, 1, "sequential").bandwidth / 1e6,
        "write_mb_s": figures(128 << 10, 32, 0, "sequential").bandwidth / 1e6,
        "read_iops": figures(4096, 256, 1).iops,
        "read_us": (figures(4096, 1, 1).latency_ns["read"]["mean"] or 0) / 1000,
        # The median: now and then a write waits for collection.
        "write_us": (figures(4096, 1, 0).latency_ns["write"]["p50"] or 0) / 1000,
    }
    if wanted.write_iops:
        span = round(CAPACITY * wanted.write_span)
        load = Load(block_bytes=4096, queue_depth=64, read_fraction=0, span_bytes=span)
        seconds = 2 * span / 4096 / wanted.write_iops
        found["write_iops"] = measure(engine, target, load, seconds=0.3 * seconds, ramp_seconds=seconds).iops
    errors = {figure: round(value / (getattr(wanted, figure) or value) - 1, 3) for figure, value in found.items()}
    of_writes = errors.pop("write_iops", 0)
    assert max(map(abs, errors.values())) <= wanted.bound, (found, errors)
    assert abs(of_writes) <= wanted.write_iops_bound, (found, of_writes)


def test_a_smaller_drive_is_as_fast_as_the_whole() -> None:
    """Fewer blocks, then smaller ones that are erased in less time; never more of anything for each byte."""
    whole = load_model("pm963", target="sim:pm963")
    for capacity in (whole.capacity // 2, 16 << 30, 256 << 20):
        small = whole.scaled(capacity)
        erased = (small.translation.erase_time or 0) / (small.translation.block or 1)
        assert small.media == whole.media
        assert erased == pytest.approx((whole.translation.erase_time or 0) / (whole.translation.block or 1), rel=1e-4)
        assert (small.translation.block or 0) % small.media.program == 0


def test_an_array_may_be_limited_by_what_the_host_does_for_parity() -> None:
    target = open_target("sim:p900*4,raid=5,chunk=64KiB,parity=350MB/s")
    assert isinstance(target, SimulatedDriveTarget)
    assert open_target(target.name) == target
    assert target.backend()["array"]["parity_bytes_per_second"] == 350_000_000
    with pytest.raises(TargetError, match="the parity of `sim:p900,parity=fast` cannot be `fast`"):
        open_target("sim:p900,parity=fast")


# Volumes with rate limits ----------------------------------------------------------------------------------------------


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
    wrong = limited(tmp_path, '[[limit]]\ncounts = "operations"\nrate = 0\n')
    with pytest.raises(TargetError, match=r"`limit\.0\.rate` cannot be"):
        load_model(str(wrong), target="sim:mine")


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

[[parts]]
name = "reads"
rounds = { max_rounds = 1 }
[parts.measurement]
access = "random"
read_fraction = 1.0
queue_depth = 16
span = "1GiB"
purge = "strongest"
ramp = 0
duration = "20s"
interval = "1s"

[profiles.standard]
"""
