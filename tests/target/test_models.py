"""Every shipped model delivers what its maker specifies, within stated bounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from engines import real_engine

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from simulated import Load, measure

from iosonde.target import open_target
from iosonde.target.drive_model import load_model, models
from iosonde.target.simulated_drive import SimulatedDriveTarget


class Specification(NamedTuple):
    """Sequential MB/s of 128 KiB, IOPS and latency in microseconds of 4 KiB at random, reads and writes."""

    read_mb_s: float
    write_mb_s: float
    read_iops: float
    write_iops: float
    read_us: float
    write_us: float
    bound: float = 0.06
    """Largest relative error of any figure."""
    scaled: str = "2GiB"
    """A capacity that is written in a moment; random writes are measured once it is full and steady."""


SPECIFICATIONS = {
    "p900": Specification(2500, 2000, 550_000, 500_000, 10, 10),
}


def test_every_shipped_model_has_a_specification_here() -> None:
    assert set(SPECIFICATIONS) <= set(models())


@pytest.mark.parametrize("name", models())
def test_a_model_loads_and_says_where_its_figures_come_from(name: str) -> None:
    model = load_model(name, target=f"sim:{name}")
    assert model.class_ and len(model.sources) > 200
    target = open_target(f"sim:{name}")
    assert isinstance(target, SimulatedDriveTarget)
    assert target.free_bytes() == model.capacity // 4096 * 4096


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_its_figures_are_those_of_its_specification(name: str) -> None:
    wanted, engine = SPECIFICATIONS[name], real_engine()
    target = f"sim:{name},capacity={wanted.scaled}"

    def figures(block_bytes: int, queue_depth: int, read_fraction: float, access: str = "random"):  # type: ignore[no-untyped-def]
        load = Load(block_bytes=block_bytes, queue_depth=queue_depth, read_fraction=read_fraction, access=access)
        return measure(engine, target, load, seconds=0.1, ramp_seconds=0.05)

    found = {
        "read_mb_s": figures(128 << 10, 32, 1, "sequential").bandwidth / 1e6,
        "write_mb_s": figures(128 << 10, 32, 0, "sequential").bandwidth / 1e6,
        "read_iops": figures(4096, 256, 1).iops,
        "write_iops": figures(4096, 256, 0).iops,
        "read_us": (figures(4096, 1, 1).latency_ns["read"]["mean"] or 0) / 1000,
        "write_us": (figures(4096, 1, 0).latency_ns["write"]["mean"] or 0) / 1000,
    }
    errors = {figure: value / getattr(wanted, figure) - 1 for figure, value in found.items()}
    assert max(map(abs, errors.values())) <= wanted.bound, (found, errors)
