"""Every shipped model delivers what its maker specifies, within stated bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from engines import real_engine

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

from simulated import Figures, Load, measure

from iosonde.errors import TargetError
from iosonde.features.simulated_drives.model import load_model, models
from iosonde.features.simulated_drives.target import SimulatedDriveTarget
from iosonde.storage import open_target


class Specification(NamedTuple):
    """Of the maker's data sheet, or of who printed it: sequential MB/s of 128 KiB, IOPS and microseconds of 4 KiB at random.

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
"""Specified by limits, which `test_simulated_limits.py` compares."""
CAPACITY = "1GiB"
"""Written in a moment."""


def test_every_shipped_model_is_held_against_its_specification() -> None:
    assert set(SPECIFICATIONS) | LIMITED == set(models())


@pytest.mark.parametrize("name", models())
def test_a_model_loads_and_names_the_source_of_its_values(name: str) -> None:
    model = load_model(name, target=f"sim:{name}")
    assert len(model.sources) > 200
    target = open_target(f"sim:{name}")
    assert isinstance(target, SimulatedDriveTarget)
    assert target.free_bytes() == model.capacity // 4096 * 4096


@pytest.mark.parametrize("name", SPECIFICATIONS)
@pytest.mark.engine
def test_its_figures_are_those_of_its_specification(name: str) -> None:
    wanted, engine = SPECIFICATIONS[name], real_engine()
    capacity = 1 << 30

    def figures(block_bytes: int, queue_depth: int, read_fraction: float, access: str = "random") -> Figures:
        load = Load(block_bytes=block_bytes, queue_depth=queue_depth, read_fraction=read_fraction, access=access)
        return measure(engine, f"sim:{name},capacity={CAPACITY}", load, seconds=0.1, ramp_seconds=0.1)

    def steady_write_iops() -> float:
        span = round(capacity * wanted.write_span)
        load = Load(block_bytes=4096, queue_depth=64, read_fraction=0, span_bytes=span)
        seconds = 2 * span / 4096 / (wanted.write_iops or 1)
        return measure(
            engine, f"sim:{name},capacity={CAPACITY}", load, seconds=0.3 * seconds, ramp_seconds=seconds
        ).iops

    found = {
        "read_mb_s": figures(128 << 10, 32, 1, "sequential").bandwidth / 1e6,
        "write_mb_s": figures(128 << 10, 32, 0, "sequential").bandwidth / 1e6,
        "read_iops": figures(4096, 256, 1).iops,
        "read_us": (figures(4096, 1, 1).latency_ns["read"]["mean"] or 0) / 1000,
        # The median: now and then a write waits for collection.
        "write_us": (figures(4096, 1, 0).latency_ns["write"]["p50"] or 0) / 1000,
    }
    if wanted.write_iops:
        found["write_iops"] = steady_write_iops()
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
